/** For browsers: the encoder runs in a worker of its own. */

import { makeEdge } from "./create.js";
import type { FromEngine, Port } from "./messages.js";
import type { Edge, WebOptions } from "./types.js";

export { BUNDLE_REASONS, EDGE_REASONS, type BundleReason, type EdgeReason } from "./reasons.js";
export type * from "./types.js";

/** An edge for this page. Never throws: what is wrong with the options is in `status().problem`. */
export function createEdge(options: WebOptions): Edge {
  return makeEdge(options, {
    place: "worker",
    lacks: globalThis.crypto?.subtle ? null : "no WebCrypto: serve the page over TLS",
    connect: (receive, failed) => toWorker(options.worker ?? ownWorker, receive, failed),
  });
}

const ownWorker = (): Worker => new Worker(new URL("./worker.js", import.meta.url), { type: "module" });

function toWorker(make: () => Worker, receive: (m: FromEngine) => void, failed: () => void): Port | undefined {
  try {
    const worker = make();
    worker.onmessage = (event: MessageEvent<FromEngine>) => receive(event.data);
    worker.onerror = failed;
    return { send: (message) => worker.postMessage(message), close: () => worker.terminate() };
  } catch {
    return undefined; // a content policy may forbid workers
  }
}
