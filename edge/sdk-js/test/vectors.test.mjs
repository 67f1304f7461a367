// The numbers are those of the Python reference.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, describe, test } from "node:test";
import { Shard, tailShard } from "../dist/codes.js";
import { features, newest } from "../dist/features.js";
import { itemHash } from "../dist/hash.js";
import { BUNDLE_REASONS, EDGE_REASONS } from "../dist/reasons.js";
import { choose, place } from "../dist/rollout.js";
import { difference, FOLDER, makeEdge, PROMPT, REASONS, replay, serve, vectors } from "./support.mjs";

const manifest = JSON.parse(
  JSON.parse(await readFile(`${FOLDER}/bundle/${PROMPT.bundle}/manifest.json`, "utf8")).payload,
);
const { sizes, tail_shards: tailShards } = manifest.content;
const shards = await Promise.all(
  Array.from({ length: tailShards + 1 }, async (_, number) => {
    return new Shard(await readFile(`${FOLDER}/bundle/${PROMPT.bundle}/codes/${number}.bin`), sizes.levels);
  }),
);

test("the reasons are the same words", () => {
  assert.deepEqual([...EDGE_REASONS], REASONS.edge);
  assert.deepEqual([...BUNDLE_REASONS], REASONS.bundle);
});

test("hashes and codes are the same", async () => {
  const { hashes, codes } = await vectors("codes");
  for (const [id, expected] of Object.entries(hashes)) {
    const { hi, lo } = itemHash(id);
    assert.equal(hi.toString(16).padStart(8, "0") + lo.toString(16).padStart(8, "0"), expected, id);
  }
  for (const [id, expected] of Object.entries(codes)) {
    const hash = itemHash(id);
    assert.deepEqual(shards[0].find(hash) ?? shards[tailShard(hash, tailShards)].find(hash), expected, id);
  }
});

test("roll-outs choose the same", async () => {
  for (const { seed, app, offers, place: expected, chosen } of await vectors("rollout")) {
    assert.equal(choose(offers, seed, app)?.id ?? null, chosen, `${app} ${JSON.stringify(offers)}`);
    assert.equal(place(seed, offers[0]?.id ?? ""), expected);
  }
});

describe("prompt", () => {
  let server;
  let edge;
  before(async () => {
    server = await serve();
    let now = 0;
    edge = makeEdge(server.url, { now: () => now });
    edge.at = (ms) => (now = ms);
  });
  after(async () => {
    edge.close();
    await server.close();
  });

  for (const expected of PROMPT.cases) {
    test(expected.name, async () => {
      edge.at(expected.now_ms);
      const unknown = edge.status().events.unknown_item ?? 0;
      const made = await replay(edge, expected);
      assert.equal(made.reason, expected.used.length ? "ok" : "no_events");
      assert.ok(difference(made.rows, expected.prompt) <= PROMPT.tolerance, `${difference(made.rows, expected.prompt)}`);
      assert.equal(made.release, PROMPT.release);
      assert.equal(made.numRows, expected.prompt.length);
      assert.equal((edge.status().events.unknown_item ?? 0) - unknown, expected.num_unknown);
    });

    test(`${expected.name}: inputs`, () => {
      const find = (id) => {
        const hash = itemHash(id);
        return shards[0].find(hash) ?? shards[tailShard(hash, tailShards)].find(hash);
      };
      const known = expected.events
        .map((event, order) => ({ ...event, order, codes: find(event.item_id) }))
        .filter((event) => event.codes);
      const kept = newest(known, sizes.local_events);
      assert.deepEqual(kept.map((event) => event.event_id), expected.used);
      const feeds = features(kept, sizes, expected.graph_bucket, expected.now_ms);
      assert.deepEqual([...feeds.codes].map(Number), expected.codes.flat());
      assert.deepEqual([...feeds.kind].map(Number), expected.kind);
      assert.ok(difference(feeds.age, expected.age) <= 1e-6);
      assert.ok(difference(feeds.clock, expected.clock) <= 1e-6);
    });
  }
});
