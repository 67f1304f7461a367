/** Options in, an `Edge` out. Bad options make an edge that says what is wrong, not an error in the app. */

import { fromBase64 } from "./bytes.js";
import { Facade, type Frame } from "./edge.js";
import type { FromEngine, Port } from "./messages.js";
import type { Edge, EdgeOptions, Settings } from "./types.js";

/** What differs between platforms. */
export interface Platform {
  place: "worker" | "inline";
  /** What is missing here, in words; null when nothing is. */
  lacks: string | null;
  connect: (receive: (message: FromEngine) => void, failed: () => void) => Port | undefined;
}

export function makeEdge(options: EdgeOptions, platform: Platform): Edge {
  const given: Partial<EdgeOptions> = options ?? {};
  const problem = problemOf(given) ?? platform.lacks;
  const frame: Frame = {
    settings: settingsOf(given),
    consent: given.consent === true,
    problem,
    place: platform.place,
    now: given.now ?? Date.now,
    connect: (receive, failed) => (problem ? undefined : platform.connect(receive, failed)),
  };
  if (problem) console.warn(`beforehand-edge: ${problem}`);
  const edge = new Facade(frame);
  if (given.warm !== "manual") whenIdle(() => edge.warm());
  return edge;
}

function settingsOf(options: Partial<EdgeOptions>): Settings {
  return {
    baseUrl: String(options.baseUrl ?? "").replace(/\/+$/, ""),
    keys: options.keys ?? [],
    appVersion: options.appVersion ?? "",
    maxBytes: options.maxBytes ?? 8 * 1024 * 1024,
    maxStoreBytes: options.maxStoreBytes ?? 16 * 1024 * 1024,
    format: options.format ?? "onnx",
    fetchTimeoutMs: options.fetchTimeoutMs ?? 30_000,
    wasmPaths: options.wasmPaths ?? null,
  };
}

function problemOf(options: Partial<EdgeOptions>): string | null {
  if (!options.baseUrl) return "no baseUrl: name the address that ends in /v1/edge";
  if (!Array.isArray(options.keys) || !options.keys.length) return "no keys: pin what `beforehand edge bundle` prints";
  const bad = options.keys.findIndex((key) => !isKey(key));
  return bad < 0 ? null : `keys[${bad}] is no key: 32 bytes in base64, as \`beforehand edge bundle\` prints them`;
}

function isKey(key: unknown): boolean {
  try {
    return typeof key === "string" && fromBase64(key).length === 32;
  } catch {
    return false;
  }
}

function whenIdle(act: () => void): void {
  if (typeof requestIdleCallback === "function") requestIdleCallback(act, { timeout: 5000 });
  else setTimeout(act, 0);
}
