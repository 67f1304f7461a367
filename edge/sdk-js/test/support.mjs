// The vectors, a server that serves them with faults, and an edge on them.

import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { fileURLToPath } from "node:url";
import * as ort from "onnxruntime-web/wasm";
import { createEdge, memoryStore } from "../dist/native.js";
import { pureDigests } from "../dist/pure.js";

ort.env.wasm.numThreads = 1;
ort.env.logLevel = "error";
export { createEdge, memoryStore, ort };

export const FOLDER = process.env.BEFOREHAND_VECTORS ?? fileURLToPath(new URL("../../vectors/", import.meta.url));
export const vectors = async (name) => JSON.parse(await readFile(new URL(`file://${FOLDER}/${name}.json`), "utf8"));
export const PROMPT = await vectors("prompt");
export const REASONS = await vectors("reasons");
export const FAULTS = await vectors("faults");
export const USER = "vector-user";
export const PATIENT = { timeLimitMs: 60_000 };

/** Serves the tree of the vectors. `changes` overlays files (bytes, or null: missing); `act` may answer instead. */
export async function serve() {
  const state = { changes: {}, act: null, asked: [] };
  const server = createServer(async (request, response) => {
    const path = request.url.replace(/^\/v1\/edge\//, ""); // anything else keeps its leading slash
    state.asked.push(path);
    if (state.act?.(path, response)) return;
    response.setHeader("access-control-allow-origin", "*");
    try {
      const changed = state.changes[path];
      if (changed === null) throw new Error("missing");
      const bytes = changed ?? (await readFile(`${FOLDER}/bundle/${path}`));
      response.end(bytes);
    } catch {
      response.statusCode = 404;
      response.end();
    }
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  state.url = `http://127.0.0.1:${server.address().port}/v1/edge`;
  state.close = () => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  };
  return state;
}

/** An edge on this thread, whose clock stands at the vectors' time. */
export function makeEdge(url, more = {}) {
  return createEdge({
    baseUrl: url,
    keys: REASONS.keys,
    appVersion: "1.0",
    consent: true,
    warm: "manual",
    runtime: ort,
    digests: pureDigests(),
    store: memoryStore(),
    now: () => REASONS.now_ms,
    ...more,
  });
}

export const difference = (rows, expected) =>
  Math.max(...expected.flat().map((value, index) => Math.abs(value - rows[index])));

/** One case of prompt.json through an edge; the outcome. */
export async function replay(edge, test) {
  edge.forget();
  edge.setUser(USER, test.bucket);
  for (const event of test.events) edge.track(event);
  await edge.settled();
  return edge.prompt(PATIENT);
}

export const overlay = (fault) =>
  Object.fromEntries(
    Object.entries(fault.files).map(([path, raw]) => [path, raw === null ? null : Buffer.from(raw, "base64")]),
  );
