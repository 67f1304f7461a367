// What an app downloads for the SDK, without the runtime, and what it may not contain.

import assert from "node:assert/strict";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { bundled } from "./bundled.mjs";

const BUDGET_BYTES = 15 * 1024;

for (const entries of [["index"], ["worker"], ["index", "worker"], ["native"], ["pure"]]) {
  test(`${entries.join(" and ")}: within 15 KB gzip`, async () => {
    const sizes = (await bundled(entries)).map((file) => gzipSync(file.contents, { level: 9 }).length);
    const total = sizes.reduce((sum, size) => sum + size, 0);
    console.log(`# sdk_gzip_bytes ${entries.join("+")} ${total}`);
    assert.ok(total <= BUDGET_BYTES, `${total} bytes`);
  });
}

test("the native entry has no import.meta: Hermes can't parse it", async () => {
  for (const file of await bundled(["native"])) assert.ok(!file.text.includes("import.meta"));
});
