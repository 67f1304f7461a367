// A bad bundle is refused with its reason and the present one stays; what is kept is used, what is new is fetched.

import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, test } from "node:test";
import { IDBFactory } from "fake-indexeddb";
import { indexedDbStore } from "../dist/store.js";
import { difference, FAULTS, makeEdge, memoryStore, overlay, PATIENT, PROMPT, REASONS, replay, serve } from "./support.mjs";

const CASE = PROMPT.cases.find((one) => one.name === "one");
let server;
let edges;
const open = (more) => {
  const edge = makeEdge(server.url, more);
  edges.push(edge);
  return edge;
};

beforeEach(async () => {
  server = await serve();
  edges = [];
});
afterEach(async () => {
  for (const edge of edges) edge.close();
  await server.close();
});

describe("a fault leaves the present bundle in use", () => {
  for (const fault of FAULTS) {
    test(`${fault.name}: ${fault.reason}`, async () => {
      const edge = open();
      assert.equal((await replay(edge, CASE)).release, PROMPT.release);
      server.changes = overlay(fault);
      assert.equal(await edge.refresh(), fault.reason);
      const made = await replay(edge, CASE);
      assert.deepEqual([made.reason, made.release], ["ok", fault.release]);
      assert.equal(edge.status().update, fault.reason);
    });
  }
});

test("a first start with only a bad bundle is not_loaded, with the reason in the status", async () => {
  server.changes = overlay(FAULTS.find((fault) => fault.reason === "unknown_key"));
  const edge = open();
  edge.setUser("u1");
  assert.deepEqual(await edge.prompt(PATIENT), { ok: false, reason: "not_loaded" });
  assert.equal(edge.status().update, "unknown_key");
});

test("a new bundle fetches only the files that changed", async () => {
  const edge = open();
  await replay(edge, CASE);
  server.changes = overlay(FAULTS.find((fault) => fault.reason === "ok"));
  server.asked.length = 0;
  assert.equal(await edge.refresh(), "ok");
  assert.deepEqual(server.asked, ["current.json", "00000000000000b1/manifest.json"]);
});

test("both forms of the graph give the same, and only the one that was chosen is fetched", async () => {
  for (const [format, other] of [["onnx", "ort"], ["ort", "onnx"]]) {
    server.asked.length = 0;
    const made = await replay(open({ format }), CASE);
    assert.ok(difference(made.rows, CASE.prompt) <= PROMPT.tolerance);
    assert.ok(server.asked.includes(`${PROMPT.bundle}/model.${format}`));
    assert.ok(!server.asked.includes(`${PROMPT.bundle}/model.${other}`));
  }
});

test("a tail shard is fetched when an item of it is met, once", async () => {
  const edge = open();
  edge.setUser("u1");
  await edge.settled();
  assert.deepEqual(server.asked.filter((path) => path.includes("codes/")), [`${PROMPT.bundle}/codes/0.bin`]);
  for (let i = 0; i < 60; i += 1) {
    edge.track({ event_id: `e${i}`, item_id: `item-${String(i).padStart(3, "0")}`, kind: "click" });
  }
  await edge.settled();
  assert.equal(edge.status().pending, 0);
  assert.equal(edge.status().events.unknown_item, undefined);
  const tails = server.asked.filter((path) => path.includes("codes/")).map((path) => path.split("/").pop());
  assert.ok(tails.length > 9, "more than are kept in memory");
  assert.equal(new Set(tails).size, tails.length);
});

describe("offline start", () => {
  for (const [name, make] of [
    ["memory", () => memoryStore()],
    ["IndexedDB", () => indexedDbStore(new IDBFactory())],
  ]) {
    test(`from ${name}: the kept bundle serves though the server is gone`, async () => {
      const store = make();
      await replay(open({ store }), CASE);
      server.act = (_path, response) => response.destroy() || true;
      const edge = open({ store });
      const made = await replay(edge, CASE);
      assert.equal(made.release, PROMPT.release);
      assert.equal((await edge.settled()).update, "unreachable");
      assert.equal(edge.status().fetchedBytes, 0);
    });
  }

  test("a kept file that was changed is fetched again", async () => {
    const store = memoryStore();
    await replay(open({ store }), CASE);
    for (const key of await store.keys()) {
      if (key.startsWith("file:")) await store.put(key, Uint8Array.of(1, 2, 3));
    }
    const made = await replay(open({ store }), CASE);
    assert.equal(made.reason, "ok");
  });

  test("a kept manifest that was changed is not believed", async () => {
    const store = memoryStore();
    await replay(open({ store }), CASE);
    const raw = await store.get("manifest");
    await store.put("manifest", raw.slice(0, 100));
    server.act = (_path, response) => response.destroy() || true;
    const edge = open({ store });
    edge.setUser("u1");
    assert.equal((await edge.prompt(PATIENT)).reason, "not_loaded");
  });

  test("a kept bundle past its age is too_old, and is not deleted", async () => {
    const store = memoryStore();
    await replay(open({ store }), CASE);
    server.act = (_path, response) => response.destroy() || true;
    const edge = open({ store, now: () => REASONS.now_ms + 20 * 365 * 86_400_000 });
    edge.setUser("u1");
    assert.equal((await edge.prompt(PATIENT)).reason, "too_old");
    assert.ok((await store.keys()).length > 3);
  });

  test("a pointer older than the kept one is not followed after a restart either", async () => {
    const store = memoryStore();
    await replay(open({ store }), CASE);
    server.changes = overlay(FAULTS.find((fault) => fault.reason === "not_newer"));
    const edge = open({ store });
    edge.warm();
    assert.equal((await edge.settled()).update, "not_newer");
    assert.equal(edge.status().release, PROMPT.release);
  });
});

describe("a server in trouble", () => {
  test("500 is http_error", async () => {
    server.act = (_path, response) => {
      response.statusCode = 500;
      response.end("broken");
      return true;
    };
    const edge = open();
    assert.equal(await edge.refresh(), "http_error");
  });

  test("one that hangs is timed_out, and the first call is back within its limit", async () => {
    server.act = () => true;
    const edge = open({ fetchTimeoutMs: 3000 });
    edge.setUser("u1");
    const begun = performance.now();
    assert.deepEqual(await edge.prompt({ timeLimitMs: 5 }), { ok: false, reason: "not_loaded" });
    assert.ok(performance.now() - begun < 3000, "it did not wait for the fetch");
    assert.equal((await edge.settled()).update, "timed_out");
  });

  test("one that hangs in the middle of a file is timed_out", async () => {
    server.act = (path, response) => {
      if (!path.endsWith("model.onnx")) return false;
      response.write("begun");
      return true;
    };
    const edge = open({ fetchTimeoutMs: 200 });
    edge.warm();
    assert.equal((await edge.settled()).update, "timed_out");
  });

  test("one that sends without end is cut off", async () => {
    server.act = (path, response) => {
      if (!path.endsWith("defaults.bin")) return false;
      const pour = () => void (response.destroyed || response.write(Buffer.alloc(65_536), pour));
      pour();
      return true;
    };
    const edge = open();
    edge.warm();
    assert.equal((await edge.settled()).update, "too_large");
  });

  test("it is asked again and then serves", async () => {
    server.act = (_path, response) => response.destroy() || true;
    const edge = open();
    assert.equal(await edge.refresh(), "unreachable");
    server.act = null;
    assert.equal(await edge.refresh(), "ok");
    assert.equal((await replay(edge, CASE)).reason, "ok");
  });
});

describe("a store in trouble", () => {
  const failing = (method, message) => ({ ...memoryStore(), [method]: () => Promise.reject(new Error(message)) });

  test("a full quota is told, and the bundle works", async () => {
    const edge = open({ store: failing("put", "QuotaExceededError") });
    assert.equal((await replay(edge, CASE)).reason, "ok");
    assert.equal(edge.status().storage, "full");
  });

  test("no storage at all is told, and the bundle works", async () => {
    const edge = open({ store: failing("get", "SecurityError") });
    assert.equal((await replay(edge, CASE)).reason, "ok");
    assert.equal(edge.status().storage, "none");
  });

  test("files of an earlier bundle are dropped", async () => {
    const store = memoryStore();
    await store.put("file:0123", Uint8Array.of(1));
    await replay(open({ store }), CASE);
    assert.ok(!(await store.keys()).includes("file:0123"));
  });

  test("more than maxStoreBytes is not kept", async () => {
    const store = memoryStore();
    await replay(open({ store, maxStoreBytes: 1_000 }), CASE);
    assert.ok(!(await store.keys()).some((key) => key.startsWith("file:") && key.length > 70));
    const sizes = await Promise.all((await store.keys()).map(async (key) => (await store.get(key)).length));
    assert.ok(sizes.every((size) => size <= 1_000));
  });
});

test("nothing of a user is stored", async () => {
  const store = memoryStore();
  const edge = open({ store });
  edge.setUser("somebody-unmistakable", "55+|high");
  edge.track({ event_id: "event-unmistakable", item_id: "item-000", kind: "click" });
  await edge.settled();
  await edge.prompt(PATIENT);
  for (const key of await store.keys()) {
    const value = Buffer.from(await store.get(key)).toString("latin1");
    for (const word of ["unmistakable", "item-000"]) assert.ok(!`${key} ${value}`.includes(word), key);
  }
});
