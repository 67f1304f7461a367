// Makes the folder that `serve --shop` serves: the page, its scripts, the SDK's worker, the runtime's wasm.
//
//   node edge/shop/build.mjs OUT

import { copyFile, mkdir } from "node:fs/promises";
import { createRequire } from "node:module";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const { build } = createRequire(here("../sdk-js/package.json"))("esbuild");
const RUNTIME = here("../sdk-js/node_modules/onnxruntime-web/dist/");
const [out] = process.argv.slice(2);
if (!out) {
  console.error("usage: node edge/shop/build.mjs OUT");
  process.exit(2);
}

await mkdir(out, { recursive: true });
await build({
  entryPoints: { main: here("src/main.ts"), worker: here("../sdk-js/src/worker.ts") },
  bundle: true,
  minify: true,
  splitting: true,
  format: "esm",
  target: "es2022",
  outdir: out,
  logLevel: "warning",
});
for (const name of ["index.html", "theme.css", "shop.css", "panel.css", "icon.svg"]) await copyFile(here(name), join(out, name));
for (const name of ["ort-wasm-simd-threaded.wasm", "ort-wasm-simd-threaded.mjs"]) {
  await copyFile(join(RUNTIME, name), join(out, name));
}
