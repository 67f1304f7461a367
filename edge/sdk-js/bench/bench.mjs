// Measures the SDK in Node and in Chromium on vectors of any bundle; one JSON object a line on stdout.
//   BEFOREHAND_VECTORS=FOLDER BEFOREHAND_RUNS=500 npm run --silent bench
// A browser that is absent is a line too: its runtime and the reason.

import { gzipSync } from "node:zlib";
import { browse, CHROMIUM, hasChromium, site } from "../test/chromium.mjs";
import { bundled } from "../test/bundled.mjs";
import { difference, makeEdge, PATIENT, PROMPT, replay, serve } from "../test/support.mjs";

const RUNS = Number(process.env.BEFOREHAND_RUNS ?? 500);
const cases = PROMPT.cases.filter((one) => one.used.length);
const share = (values, at) => [...values].sort((a, b) => a - b)[Math.floor(values.length * at)];
const spread = (values) => ({ p50: share(values, 0.5), p99: share(values, 0.99) });

async function inNode() {
  const server = await serve();
  const clock = { ms: cases[0].now_ms };
  const begun = performance.now();
  const edge = makeEdge(server.url, { now: () => clock.ms });
  await replay(edge, cases[0]);
  const cold = performance.now() - begun;
  const encode = [];
  let worst = 0;
  for (let run = 0; run < RUNS; run += 1) {
    const one = cases[run % cases.length];
    clock.ms = one.now_ms;
    await replay(edge, one);
    const asked = performance.now();
    const made = await edge.prompt(PATIENT);
    encode.push(performance.now() - asked);
    worst = Math.max(worst, difference(made.rows, one.prompt));
  }
  edge.close();
  await server.close();
  return { runtime: "node", encode_ms: spread(encode), cold_start_ms: cold, max_abs_difference: worst };
}

async function inChromium() {
  const { server, origin } = await site();
  const browser = await browse(origin);
  const page = await browser.page();
  const cold = await page.evaluate(async () => {
    const begun = performance.now();
    await window.edgeTest.replay(2);
    return performance.now() - begun;
  });
  const { main, encode, worst } = await page.evaluate((runs) => window.edgeTest.measure(runs), RUNS);
  await browser.close();
  await server.close();
  return {
    runtime: "chromium",
    encode_ms: spread(encode),
    cold_start_ms: cold,
    main_thread_ms: { ...spread(main), max: Math.max(...main) },
    max_abs_difference: worst,
  };
}

const size = async (entries) =>
  (await bundled(entries)).reduce((sum, file) => sum + gzipSync(file.contents, { level: 9 }).length, 0);

const noBrowser = { runtime: "chromium", absent: `no browser at ${CHROMIUM}` };
const sizes = {
  web: await size(["index", "worker"]),
  native: await size(["native"]),
  native_with_pure: await size(["native", "pure"]),
};
for (const measured of [await inNode(), hasChromium ? await inChromium() : noBrowser]) {
  console.log(JSON.stringify({ bundle: PROMPT.bundle, ...measured, sdk_gzip_bytes: sizes }));
}
