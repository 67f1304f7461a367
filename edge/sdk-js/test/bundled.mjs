// Entries as an app's bundler makes them, without the runtime.

import { fileURLToPath } from "node:url";
import { build } from "esbuild";

export async function bundled(entries) {
  const made = await build({
    entryPoints: entries.map((name) => fileURLToPath(new URL(`../dist/${name}.js`, import.meta.url))),
    bundle: true,
    minify: true,
    splitting: true,
    format: "esm",
    target: "es2020",
    external: ["onnxruntime-web/*"],
    outdir: "out",
    write: false,
    logOverride: { "empty-import-meta": "silent" },
  });
  return made.outputFiles;
}
