// What an app sees: consent, users, limits, reasons; never an error.

import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, test } from "node:test";
import { makeEdge, ort, PATIENT, REASONS, serve } from "./support.mjs";

const NOW = REASONS.now_ms;
const event = (number, more = {}) => ({
  event_id: `e${number}`,
  item_id: `item-${String(number % 60).padStart(3, "0")}`,
  kind: "click",
  at: NOW - 1000 * number,
  ...more,
});
let server;
let edges;
const open = (more) => {
  const edge = makeEdge(server.url, more);
  edges.push(edge);
  return edge;
};
const ready = async (more) => {
  const edge = open(more);
  edge.setUser("u1", 1);
  edge.track(event(1));
  await edge.settled();
  return edge;
};
/** The real runtime, whose runs `act` may delay or replace. */
const runtime = (act) => ({
  ...ort,
  InferenceSession: {
    async create(...given) {
      const session = await ort.InferenceSession.create(...given);
      return { run: (feeds) => act(session, feeds) };
    },
  },
});

beforeEach(async () => {
  server = await serve();
  edges = [];
});
afterEach(async () => {
  for (const edge of edges) edge.close();
  await server.close();
});

describe("consent", () => {
  test("without it nothing is fetched, kept or computed", async () => {
    const edge = open({ consent: false, warm: "idle" });
    edge.setUser("u1");
    assert.equal(edge.track(event(1)), "no_consent");
    edge.warm();
    assert.deepEqual(await edge.prompt(PATIENT), { ok: false, reason: "no_consent" });
    assert.equal(await edge.refresh(), "no_offer");
    await new Promise((resolve) => setTimeout(resolve, 30));
    assert.deepEqual(server.asked, []);
  });

  test("given later it works; withdrawn, events and prompt are gone", async () => {
    const edge = open({ consent: false });
    edge.setUser("u1", 1);
    edge.setConsent(true);
    edge.track(event(1));
    await edge.settled();
    assert.equal((await edge.prompt(PATIENT)).reason, "ok");
    edge.setConsent(false);
    assert.equal(edge.latest().reason, "not_made");
    assert.deepEqual(edge.attach({ user_id: "u1" }), { user_id: "u1" });
    edge.setConsent(true);
    assert.equal((await edge.prompt(PATIENT)).reason, "no_events");
  });

  test("withdrawn while it runs, the result is dropped", async () => {
    const edge = await ready({ runtime: runtime((session, feeds) => (edge.setConsent(false), session.run(feeds))) });
    assert.deepEqual(await edge.prompt(PATIENT), { ok: false, reason: "no_consent" });
  });
});

describe("users", () => {
  test("B gets nothing of A", async () => {
    const edge = await ready();
    const first = await edge.prompt(PATIENT);
    edge.setUser("u2", 1);
    assert.equal(edge.latest().reason, "not_made");
    const second = await edge.prompt(PATIENT);
    assert.equal(second.reason, "no_events");
    assert.notDeepEqual([...first.rows], [...second.rows]);
  });

  test("B signing in while A's prompt runs: user_changed, nothing kept", async () => {
    const edge = await ready({ runtime: runtime((session, feeds) => (edge.setUser("u2"), session.run(feeds))) });
    assert.deepEqual(await edge.prompt(PATIENT), { ok: false, reason: "user_changed" });
    assert.equal(edge.latest().reason, "not_made");
  });

  test("forget drops everything; then events need a user again", async () => {
    const edge = await ready();
    await edge.prompt(PATIENT);
    edge.forget();
    assert.equal(edge.latest().reason, "not_made");
    assert.equal(edge.track(event(2)), "no_user");
    edge.setUser("u1");
    assert.equal((await edge.prompt(PATIENT)).reason, "no_events");
  });

  test("the same user again keeps the events; another bucket counts", async () => {
    const edge = await ready();
    const first = await edge.prompt(PATIENT);
    edge.setUser("u1", 2);
    assert.equal(edge.latest().reason, "not_made");
    const second = await edge.prompt(PATIENT);
    assert.equal(second.reason, "ok");
    assert.notDeepEqual([...first.rows], [...second.rows]);
  });

  test("an event of somebody else is refused", async () => {
    assert.equal((await ready()).track(event(2, { user_id: "u2" })), "other_user");
  });

  test("a user id that is none signs out", async () => {
    const edge = await ready();
    edge.setUser("");
    assert.equal(edge.track(event(2)), "no_user");
  });
});

describe("attach", () => {
  test("adds the prompt as the service takes it", async () => {
    const edge = await ready();
    const made = await edge.prompt(PATIENT);
    const { prompt, ...rest } = edge.attach({ user_id: "u1", k: 20 });
    assert.deepEqual(rest, { user_id: "u1", k: 20 });
    assert.deepEqual([prompt.release, prompt.num_rows], [made.release, made.numRows]);
    const bytes = Buffer.from(prompt.rows, "base64");
    assert.deepEqual([...made.rows], Array.from(made.rows, (_, i) => bytes.readFloatLE(4 * i)));
    assert.ok(prompt.age_ms >= made.ageMs);
  });

  test("leaves a request for another user as it is", async () => {
    const edge = await ready();
    await edge.prompt(PATIENT);
    assert.equal("prompt" in edge.attach({ user_id: "u2" }), false);
  });

  test("leaves the request as it is before a prompt was made", async () => {
    const request = { user_id: "u1" };
    assert.equal((await ready()).attach(request), request);
  });

  test("an embedding past its age is not sent", async (context) => {
    const edge = await ready();
    await edge.prompt(PATIENT);
    const later = performance.now() + 61_000;
    context.mock.method(performance, "now", () => later);
    assert.equal(edge.latest().reason, "too_old");
    assert.equal("prompt" in edge.attach({ user_id: "u1" }), false);
  });
});

describe("limits", () => {
  for (const limit of [0, -1, NaN, "soon"]) {
    test(`a limit of ${limit} leaves no time`, async () => {
      assert.deepEqual(await (await ready()).prompt({ timeLimitMs: limit }), { ok: false, reason: "too_late" });
    });
  }

  test("a run that takes too long is too_late, its result is dropped, the next one works", async () => {
    let held = [];
    let slow = true;
    const act = async (session, feeds) => {
      if (slow) await new Promise((resolve) => held.push(resolve));
      return session.run(feeds);
    };
    const edge = await ready({ runtime: runtime(act) });
    assert.deepEqual(await edge.prompt({ timeLimitMs: 15 }), { ok: false, reason: "too_late" });
    slow = false;
    held.forEach((resolve) => resolve());
    await edge.settled();
    assert.equal(edge.latest().reason, "not_made");
    assert.equal((await edge.prompt(PATIENT)).reason, "ok");
  });

  test("prompts that waited past their limit are not run", async () => {
    let runs = 0;
    let begin;
    let free;
    const begun = new Promise((resolve) => (begin = resolve));
    const act = async (session, feeds) => {
      runs += 1;
      begin();
      if (runs === 1) await new Promise((resolve) => (free = resolve));
      return session.run(feeds);
    };
    const edge = await ready({ runtime: runtime(act) });
    const first = edge.prompt(PATIENT);
    await begun;
    const all = await Promise.all(Array.from({ length: 5 }, () => edge.prompt({ timeLimitMs: 10 })));
    assert.deepEqual([...new Set(all.map((one) => one.reason))], ["too_late"]);
    free();
    assert.equal((await first).reason, "ok");
    await edge.settled();
    assert.equal(runs, 1);
  });

  test("a device that is too slow for the limit stops trying, says so, and tries one in five", async () => {
    let runs = 0;
    const act = async (session, feeds) => {
      runs += 1;
      await new Promise((resolve) => setTimeout(resolve, 500));
      return session.run(feeds);
    };
    const edge = await ready({ runtime: runtime(act) });
    for (let run = 0; run < 5; run += 1) assert.equal((await edge.prompt(PATIENT)).reason, "ok");
    assert.ok(edge.status().usualMs > 250, String(edge.status().usualMs));
    for (let run = 0; run < 5; run += 1) {
      assert.equal((await edge.prompt({ timeLimitMs: 250 })).reason, "too_late");
      await edge.settled();
    }
    assert.equal(runs, 6);
    assert.equal((await edge.prompt(PATIENT)).reason, "ok");
  });
});

describe("an encoder in trouble", () => {
  const answers = {
    encode_failed: () => Promise.reject(new Error("broken")),
    bad_shape: async () => ({ prompt: { data: new Float32Array(3), dims: [3] } }),
    not_finite: async (session, feeds) => {
      const out = await session.run(feeds);
      out.prompt.data[0] = NaN;
      return { prompt: { data: Float32Array.from(out.prompt.data), dims: out.prompt.dims } };
    },
  };
  for (const [reason, act] of Object.entries(answers)) {
    test(reason, async () => {
      const edge = await ready({ runtime: runtime(act) });
      assert.deepEqual(await edge.prompt(PATIENT), { ok: false, reason });
      assert.equal(edge.status().prompts[reason], 1);
    });
  }

  test("a runtime that can't be imported is does_not_load; the next look tries again", async () => {
    let tries = 0;
    const load = async () => (++tries === 1 ? Promise.reject(new Error("no such chunk")) : ort);
    const edge = open({ runtime: load });
    assert.equal(await edge.refresh(), "does_not_load");
    assert.equal(await edge.refresh(), "ok");
  });
});

describe("it never throws", () => {
  const junk = [undefined, null, 0, NaN, "", "x".repeat(10_000), [], {}, () => 0, Symbol("s"), 10n, "\ud800", "a\nb"];

  test("whatever an app hands in", async () => {
    const edge = await ready();
    for (const one of junk) {
      for (const field of ["event_id", "item_id", "kind"]) {
        assert.equal(edge.track({ ...event(3), [field]: one }), "bad_event", `${field} ${String(one)}`);
      }
      if (one !== undefined) assert.equal(edge.track({ ...event(3), at: one }), "bad_event", `at ${String(one)}`);
      assert.ok(REASONS.edge.includes(edge.track(one)));
      assert.equal(edge.attach(one), one);
      assert.equal((await edge.prompt(one)).reason !== undefined, true);
      edge.setConsent(one);
      edge.setConsent(true);
      edge.setUser(one, one);
    }
    edge.setUser("u1", Symbol("s"));
    assert.ok(REASONS.edge.includes((await edge.prompt(PATIENT)).reason));
  });

  test("an id of 256 characters is one, however many bytes they take", async () => {
    const edge = await ready();
    assert.equal(edge.track(event(4, { event_id: "🧼".repeat(256) })), "ok");
    assert.equal(edge.track(event(4, { event_id: "🧼".repeat(257) })), "bad_event");
  });

  test("seconds for milliseconds", async () => {
    assert.equal((await ready()).track(event(1, { at: Math.floor(NOW / 1000) })), "bad_event");
  });

  test("options that can't work are said, not thrown", async (context) => {
    const warned = context.mock.method(console, "warn", () => undefined);
    for (const more of [{ keys: [] }, { keys: ["short"] }, { baseUrl: "" }, { runtime: undefined }, { digests: null }]) {
      const edge = open(more);
      edge.setUser("u1");
      assert.match(edge.status().problem, /keys|baseUrl|runtime|digests/);
      assert.equal(edge.track(event(1)), "not_loaded");
      assert.deepEqual(await edge.prompt(PATIENT), { ok: false, reason: "not_loaded" });
      assert.deepEqual((await edge.settled()).loaded, false);
    }
    assert.equal(warned.mock.callCount(), 5);
  });

  test("after close", async () => {
    const edge = await ready();
    edge.close();
    assert.equal(edge.track(event(2)), "not_loaded");
    assert.deepEqual(await edge.prompt(PATIENT), { ok: false, reason: "not_loaded" });
    assert.equal(await edge.refresh(), "timed_out");
    edge.close();
  });
});

test("events tracked before the bundle is there are encoded when it is", async () => {
  const edge = open();
  edge.setUser("u1", 1);
  for (let i = 0; i < 3; i += 1) assert.equal(edge.track(event(i)), "ok");
  assert.equal(edge.status().loaded, false);
  await edge.settled();
  const early = await edge.prompt(PATIENT);
  const late = open();
  late.setUser("u1", 1);
  await late.settled();
  for (let i = 0; i < 3; i += 1) late.track(event(i));
  await late.settled();
  assert.equal(early.reason, "ok");
  assert.deepEqual([...early.rows], [...(await late.prompt(PATIENT)).rows]);
});
