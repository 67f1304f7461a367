// Runs in the page: what a test asks for, with the SDK as an app has it.

import { createEdge } from "../dist/index.js";

const PATIENT = { timeLimitMs: 60_000 };
let edge;
let given;

function open(all) {
  given = all;
  edge = createEdge({
    baseUrl: `${location.origin}/v1/edge`,
    keys: all.keys,
    appVersion: "1.0",
    consent: true,
    warm: "manual",
    wasmPaths: `${location.origin}/wasm/`,
    now: () => all.now,
    worker: () => new Worker(all.workerUrl ?? "/worker.js", { type: "module" }),
  });
}

const difference = (rows, expected) => Math.max(...expected.flat().map((value, i) => Math.abs(value - rows[i])));

async function replay(test) {
  given.now = test.now_ms;
  edge.forget();
  edge.setUser(given.user, test.bucket);
  for (const event of test.events) edge.track(event);
  await edge.settled();
  const made = await edge.prompt(PATIENT);
  return { name: test.name, reason: made.reason, difference: made.ok ? difference(made.rows, test.prompt) : null };
}

async function replayAll() {
  const all = [];
  for (const test of given.vectors.cases) all.push(await replay(test));
  return all;
}

/** Milliseconds that each call keeps the page's own thread, and those until the embedding is here. */
async function measure(runs) {
  await replayAll(); // all shards are here then
  const cases = given.vectors.cases.filter((test) => test.used.length);
  const main = [];
  const encode = [];
  const timed = (act) => {
    const begun = performance.now();
    const made = act();
    main.push(performance.now() - begun);
    return made;
  };
  let worst = 0;
  for (let run = 0; run < runs; run += 1) {
    const test = cases[run % cases.length];
    given.now = test.now_ms;
    edge.forget();
    edge.setUser(given.user, test.bucket);
    for (const event of test.events) timed(() => edge.track(event));
    const begun = performance.now();
    const made = await timed(() => edge.prompt(PATIENT));
    encode.push(performance.now() - begun);
    timed(() => edge.attach({ user_id: given.user }));
    worst = Math.max(worst, made.ok ? difference(made.rows, test.prompt) : Infinity);
  }
  return { main, encode, worst };
}

window.edgeTest = {
  open,
  replay: (index) => replay(given.vectors.cases[index]),
  replayAll,
  measure,
  refresh: () => edge.refresh(),
  settled: () => edge.settled(),
  status: () => edge.status(),
  prompt: (options) => edge.prompt(options).then((made) => made.reason),
  track: (event) => edge.track(event),
  setUser: (user) => edge.setUser(user),
};
