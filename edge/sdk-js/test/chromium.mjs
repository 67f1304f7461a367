// A page with the SDK in a real browser. The site is served from here: scripts, the runtime's wasm, the bundles.

import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { chromium } from "playwright-core";
import { REASONS, serve, vectors, USER } from "./support.mjs";

export const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
export const hasChromium = existsSync(CHROMIUM);
const HERE = fileURLToPath(new URL(".", import.meta.url));
const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];
/** A worker in a browser whose WebCrypto knows no Ed25519. */
const OLD_WORKER = 'import "/no-ed25519.js"; import "/worker.js";';
const NO_ED25519 = `const { subtle } = crypto;
const importKey = subtle.importKey.bind(subtle);
subtle.importKey = (format, key, algorithm, ...rest) =>
  algorithm === "Ed25519" ? Promise.reject(new DOMException("unknown", "NotSupportedError")) : importKey(format, key, algorithm, ...rest);`;

async function scripts() {
  const made = await build({
    entryPoints: { page: `${HERE}page.js`, worker: `${HERE}../dist/worker.js` },
    bundle: true,
    splitting: true,
    format: "esm",
    outdir: "out",
    write: false,
  });
  return new Map(made.outputFiles.map((file) => [file.path.split("/").pop(), file.text]));
}

/** The site; `headers` are added to the page. Bundles are served as `serve` does, with its faults. */
export async function site(headers = {}) {
  const files = await scripts();
  files.set("old-worker.js", OLD_WORKER);
  files.set("no-ed25519.js", NO_ED25519);
  files.set("", '<!doctype html><title>edge</title><script type="module" src="/page.js"></script>');
  const server = await serve();
  const origin = new URL(server.url).origin;
  server.act = (path, response) => {
    if (!path.startsWith("/")) return server.down?.(response) ?? false;
    void answer(path.slice(1), response);
    return true;
  };
  async function answer(name, response) {
    const wasm = name.startsWith("wasm/");
    const body = wasm ? await readFile(`${HERE}../node_modules/onnxruntime-web/dist/${name.slice(5)}`) : files.get(name);
    response.statusCode = body === undefined ? 404 : 200;
    const type = name.endsWith(".wasm") ? "application/wasm" : name ? "text/javascript" : "text/html";
    response.setHeader("content-type", type);
    if (!name) for (const [key, value] of Object.entries(headers)) response.setHeader(key, value);
    response.end(body);
  }
  return { server, origin };
}

/** A browser with an empty profile; `page()` opens the site and hands the vectors over. */
export async function browse(origin) {
  const browser = await chromium.launch({ executablePath: CHROMIUM, headless: true, args: FLAGS });
  const context = await browser.newContext();
  const page = async (more = {}) => {
    const opened = await context.newPage();
    await opened.goto(origin);
    await opened.waitForFunction(() => "edgeTest" in window);
    const given = { keys: REASONS.keys, now: REASONS.now_ms, user: USER, vectors: await vectors("prompt"), ...more };
    await opened.evaluate((all) => window.edgeTest.open(all), given);
    return opened;
  };
  return { page, close: () => browser.close() };
}
