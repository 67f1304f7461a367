/** Runs the engine in a worker, with whatever runtime the worker's file imports. */

import { webDigests } from "./digests.js";
import { Engine } from "./engine.js";
import type { ToEngine } from "./messages.js";
import { indexedDbStore } from "./store.js";
import type { Runtime, Settings } from "./types.js";

interface WorkerScope {
  onmessage: ((event: MessageEvent<ToEngine>) => void) | null;
  postMessage(message: unknown, transfer: Transferable[]): void;
}

export function serveEngine(runtime: (settings: Settings) => Promise<Runtime>): void {
  const scope = globalThis as unknown as WorkerScope;
  const engine = new Engine(
    {
      runtime,
      store: indexedDbStore,
      digests: webDigests(),
      fetch: (input, init) => fetch(input, init),
      now: Date.now,
    },
    (message, transfer) => scope.postMessage(message, transfer),
  );
  scope.onmessage = (event) => engine.receive(event.data);
}
