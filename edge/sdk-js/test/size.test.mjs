// What an app downloads for the SDK, without the runtime, and what it may not contain.

import assert from "node:assert/strict";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { bundled } from "./bundled.mjs";

const KB = 1024;
/** `pure` is a library's SHA-2 and Ed25519, for apps without a native one: it has a budget beside the SDK's 15 KB. */
const BUDGETS = [
  [["index", "worker"], 15 * KB],
  [["native"], 15 * KB],
  [["pure"], 8.5 * KB],
  [["native", "pure"], 17 * KB],
];

for (const [entries, budget] of BUDGETS) {
  test(`${entries.join(" and ")}: within ${budget / KB} KB gzip`, async () => {
    const sizes = (await bundled(entries)).map((file) => gzipSync(file.contents, { level: 9 }).length);
    const total = sizes.reduce((sum, size) => sum + size, 0);
    console.log(`# sdk_gzip_bytes ${entries.join("+")} ${total}`);
    assert.ok(total <= budget, `${total} bytes`);
  });
}

test("the native entry has no import.meta: Hermes can't parse it", async () => {
  for (const file of await bundled(["native"])) assert.ok(!file.text.includes("import.meta"));
});
