/** What the app's side and the engine say to each other; plain data, for it may cross to a worker. */

import type { BundleReason, EdgeReason } from "./reasons.js";
import type { Settings } from "./types.js";
import type { Tracked } from "./visit.js";

export type ToEngine =
  | { type: "start"; settings: Settings }
  | { type: "visit"; visit: number; bucket: string | number; anew: boolean }
  | { type: "track"; event: Tracked }
  | { type: "prompt"; id: number; visit: number; nowMs: number; deadlineMs: number }
  | { type: "refresh" | "settled"; id: number }
  | { type: "pause"; paused: boolean };

export interface EngineStatus {
  loaded: boolean;
  bundle: string | null;
  release: string | null;
  graph: string | null;
  update: BundleReason | null;
  fetchedBytes: number;
  storage: "ok" | "full" | "none";
  pending: number;
  unknown: number;
  loadMs: number | null;
  encodeMs: number | null;
  usualMs: number | null;
  /** Age past which a prompt embedding is not sent. */
  promptUsableForS: number;
}

export type FromEngine =
  | { type: "status"; status: EngineStatus }
  | { type: "done"; id: number; status: EngineStatus }
  | {
      type: "prompt";
      id: number;
      reason: EdgeReason;
      release: string;
      numRows: number;
      rows: Float32Array | null;
      encodeMs: number | null;
      usualMs: number | null;
    };

/** One side's end of the line. */
export interface Port {
  send(message: ToEngine): void;
  close(): void;
}

/** A clock that the page and its worker share, in ms. */
export const sharedMs = (): number => (performance.timeOrigin || 0) + performance.now();
