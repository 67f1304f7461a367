/** The worker: onnxruntime-web on the CPU, one thread. */

import * as ort from "onnxruntime-web/wasm";
import { serveEngine } from "./serve.js";
import type { Runtime } from "./types.js";

serveEngine((settings) => {
  ort.env.wasm.numThreads = 1;
  ort.env.logLevel = "error";
  if (settings.wasmPaths) ort.env.wasm.wasmPaths = settings.wasmPaths;
  return Promise.resolve(ort as unknown as Runtime);
});
