/** For React Native and others without workers: the app hands in a runtime that works off this thread by itself. */

import { makeEdge } from "./create.js";
import { Engine } from "./engine.js";
import { memoryStore } from "./memory.js";
import type { FromEngine, Port } from "./messages.js";
import type { Edge, NativeOptions } from "./types.js";

export { memoryStore } from "./memory.js";
export { BUNDLE_REASONS, EDGE_REASONS, type BundleReason, type EdgeReason } from "./reasons.js";
export type * from "./types.js";

/** An edge for this app. Never throws: what is wrong with the options is in `status().problem`. */
export function createEdge(options: NativeOptions): Edge {
  return makeEdge(options, { place: "inline", lacks: lacking(options), connect: (receive) => inline(options, receive) });
}

function lacking(options: Partial<NativeOptions> | undefined): string | null {
  if (!options?.runtime) return "no runtime: hand onnxruntime in";
  return options.digests ? null : "no digests: hand in pureDigests() of beforehand-edge/pure, or a native library's";
}

function inline(options: NativeOptions, receive: (message: FromEngine) => void): Port {
  const { runtime } = options;
  const engine = new Engine(
    {
      runtime: () => Promise.resolve(typeof runtime === "function" ? runtime() : runtime),
      store: () => options.store ?? memoryStore(),
      digests: options.digests,
      fetch: options.fetch ?? ((input, init) => fetch(input, init)),
      now: options.now ?? Date.now,
    },
    (message) => receive(message),
  );
  return { send: (message) => engine.receive(message), close: () => engine.close() };
}
