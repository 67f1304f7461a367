// The differences of two lists against counting them one by one.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const { build } = createRequire(new URL("../../sdk-js/package.json", import.meta.url))("esbuild");
const entry = fileURLToPath(new URL("../src/changes.ts", import.meta.url));
const made = await build({ entryPoints: [entry], bundle: true, format: "esm", write: false });
const { changes, count } = await import(`data:text/javascript,${encodeURIComponent(made.outputFiles[0].text)}`);

const some = (all) => all.filter(() => Math.random() < 0.7).sort(() => Math.random() - 0.5);

test("random lists", () => {
  const all = [..."abcdefghij"];
  for (let run = 0; run < 500; run += 1) {
    const [was, is] = [some(all), some(all)];
    const found = changes(was, is);
    assert.deepEqual([...found.keys()], is);
    const expected = { new: 0, up: 0, down: 0, gone: was.filter((id) => !is.includes(id)).length };
    for (const [place, id] of is.entries()) {
      const moved = was.includes(id) ? was.indexOf(id) - place : null;
      const kind = moved === null ? "new" : moved > 0 ? "up" : moved < 0 ? "down" : "same";
      assert.deepEqual(found.get(id), moved ? { kind, by: Math.abs(moved) } : { kind });
      if (kind !== "same") expected[kind] += 1;
    }
    assert.deepEqual(count(was, is), expected);
  }
});

test("nothing to compare", () => {
  assert.deepEqual(count([], []), { new: 0, up: 0, down: 0, gone: 0 });
  assert.deepEqual(count(["a"], []), { new: 0, up: 0, down: 0, gone: 1 });
});
