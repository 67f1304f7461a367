/** Who gets which bundle: `edge/rollout.py` in JavaScript. */

import { itemHash, spread32 } from "./hash.js";

export interface Offer {
  id: string;
  share: number;
  min_app: string;
}

/** `2.10.1-beta` → [2, 10, 1]: leading numbers up to the first part without one, no zeros at the end. */
export function version(text: string): number[] {
  const numbers: number[] = [];
  for (const part of text.split(".")) {
    const digits = /^\d+/.exec(part)?.[0];
    if (digits === undefined) break;
    numbers.push(Number(digits));
    if (digits !== part) break;
  }
  while (numbers[numbers.length - 1] === 0) numbers.pop();
  return numbers;
}

export function atLeast(given: string, least: string): boolean {
  const a = version(given);
  const b = version(least);
  for (let i = 0; i < Math.max(a.length, b.length); i += 1) {
    const difference = (a[i] ?? 0) - (b[i] ?? 0);
    if (difference) return difference > 0;
  }
  return true;
}

/** Where a device stands in the roll-out of a bundle: 0 ≤ place < 1. */
export const place = (seed: string, bundle: string): number => spread32(itemHash(`${seed}:${bundle}`)) / 2 ** 32;

/** The first offer that admits the device. */
export const choose = (offers: readonly Offer[], seed: string, app: string): Offer | undefined =>
  offers.find((offer) => atLeast(app, offer.min_app) && place(seed, offer.id) < offer.share);
