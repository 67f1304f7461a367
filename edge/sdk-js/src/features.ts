/** From events, clock and bucket to the inputs of the prompt encoder: `edge/features.py` in JavaScript. */

import type { Kind } from "./types.js";

export const KINDS: readonly Kind[] = ["impression", "click", "cart", "purchase"];
const DAY_MS = 86_400_000;
const HOUR_MS = 3_600_000;

export interface Sizes {
  width: number;
  prompt_rows: number;
  local_events: number;
  levels: number;
  num_buckets: number;
}

/** An event whose item's codes are known. `order` is its place in the order of arrival. */
export interface KnownEvent {
  event_id: string;
  kind: Kind;
  at: number;
  order: number;
  codes: readonly number[];
}

export interface Feeds {
  bucket: BigInt64Array;
  clock: Float32Array;
  codes: BigInt64Array;
  kind: BigInt64Array;
  age: Float32Array;
}

/** By code point: JavaScript compares UTF-16 units, and puts U+FF5E after every emoji. */
export function compareText(a: string, b: string): number {
  const x = [...a];
  const y = [...b];
  for (let i = 0; i < x.length && i < y.length; i += 1) {
    const difference = x[i]!.codePointAt(0)! - y[i]!.codePointAt(0)!;
    if (difference) return difference;
  }
  return x.length - y.length;
}

/** The newest distinct events, newest last: of one id the first that arrived, ordered by (at, id). */
export function newest(events: readonly KnownEvent[], limit: number): KnownEvent[] {
  const distinct = new Map<string, KnownEvent>();
  for (const event of events) {
    const other = distinct.get(event.event_id);
    if (!other || event.order < other.order) distinct.set(event.event_id, event);
  }
  const ordered = [...distinct.values()].sort((a, b) => a.at - b.at || compareText(a.event_id, b.event_id));
  return ordered.slice(-limit);
}

const gap = (ms: number): number => Math.log1p(Math.max(0, ms) / HOUR_MS);

function clock(nowMs: number): number[] {
  const day = nowMs / DAY_MS;
  const hour = 2 * Math.PI * (day % 1);
  const week = (2 * Math.PI * ((day + 3) % 7)) / 7; // 1970-01-01 was a Thursday: 0 is Monday 00:00
  return [Math.sin(hour), Math.cos(hour), Math.sin(week), Math.cos(week)];
}

/** The inputs of the graph for one device; `events` are at most E, oldest first. Padding is on the left. */
export function features(events: readonly KnownEvent[], sizes: Sizes, bucket: number, nowMs: number): Feeds {
  const { local_events: most, levels } = sizes;
  const codes = new BigInt64Array(most * levels).fill(-1n);
  const kind = new BigInt64Array(most);
  const age = new Float32Array(most);
  events.forEach((event, index) => {
    const position = most - events.length + index;
    event.codes.forEach((code, level) => {
      codes[position * levels + level] = BigInt(code);
    });
    kind[position] = BigInt(KINDS.indexOf(event.kind) + 1);
    age[position] = gap(nowMs - event.at);
  });
  return { bucket: BigInt64Array.of(BigInt(bucket)), clock: Float32Array.from(clock(nowMs)), codes, kind, age };
}

/** The graph's shapes, B = 1. */
export const shapes = (sizes: Sizes): Record<keyof Feeds, number[]> => ({
  bucket: [1],
  clock: [1, 4],
  codes: [1, sizes.local_events, sizes.levels],
  kind: [1, sizes.local_events],
  age: [1, sizes.local_events],
});
