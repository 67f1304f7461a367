// In Chromium: a real worker, WebCrypto, IndexedDB, WASM.

import assert from "node:assert/strict";
import { after, before, beforeEach, describe, test } from "node:test";
import { browse, CHROMIUM, hasChromium, site } from "./chromium.mjs";
import { FAULTS, overlay, PROMPT } from "./support.mjs";

const skip = hasChromium ? false : `no browser at ${CHROMIUM}`;
const ONE = PROMPT.cases.findIndex((one) => one.name === "one");

describe("Chromium", { skip }, () => {
  let made;
  let browser;
  before(async () => {
    made = await site();
  });
  after(async () => {
    await browser?.close();
    await made?.server.close();
  });
  beforeEach(async () => {
    await browser?.close();
    browser = await browse(made.origin);
    made.server.changes = {};
    made.server.down = null;
  });
  const offline = (response) => (response.destroy(), true);

  test("the vectors are reproduced", async () => {
    const page = await browser.page();
    for (const one of await page.evaluate(() => window.edgeTest.replayAll())) {
      assert.ok(one.difference !== null && one.difference <= PROMPT.tolerance, JSON.stringify(one));
    }
    const status = await page.evaluate(() => window.edgeTest.status());
    assert.deepEqual([status.place, status.threads, status.crossOriginIsolated], ["worker", 1, false]);
    assert.equal(status.storage, "ok");
  });

  test("the next page starts offline from IndexedDB", async () => {
    const first = await browser.page();
    await first.evaluate((index) => window.edgeTest.replay(index), ONE);
    await first.close();
    made.server.down = offline;
    const page = await browser.page();
    const one = await page.evaluate((index) => window.edgeTest.replay(index), ONE);
    assert.ok(one.difference <= PROMPT.tolerance, JSON.stringify(one));
    const status = await page.evaluate(() => window.edgeTest.settled());
    assert.deepEqual([status.update, status.fetchedBytes, status.release], ["unreachable", 0, PROMPT.release]);
  });

  test("a browser without Ed25519 verifies all the same, and refuses all the same", async () => {
    const page = await browser.page({ workerUrl: "/old-worker.js" });
    const one = await page.evaluate((index) => window.edgeTest.replay(index), ONE);
    assert.equal(one.reason, "ok");
    made.server.changes = overlay(FAULTS.find((fault) => fault.reason === "bad_signature"));
    assert.equal(await page.evaluate(() => window.edgeTest.refresh()), "bad_signature");
  });

  test("a fault leaves the present bundle in use", async () => {
    const page = await browser.page();
    await page.evaluate((index) => window.edgeTest.replay(index), ONE);
    for (const fault of FAULTS.filter((each) => each.reason !== "ok")) {
      made.server.changes = overlay(fault);
      assert.equal(await page.evaluate(() => window.edgeTest.refresh()), fault.reason, fault.name);
    }
    const one = await page.evaluate((index) => window.edgeTest.replay(index), ONE);
    assert.equal(one.reason, "ok");
    assert.equal((await page.evaluate(() => window.edgeTest.status())).release, PROMPT.release);
  });

  test("a server that hangs: the first prompt is back within its limit", async () => {
    made.server.down = () => true;
    const page = await browser.page();
    await page.evaluate(() => window.edgeTest.setUser("u1"));
    assert.equal(await page.evaluate(() => window.edgeTest.prompt({ timeLimitMs: 20 })), "not_loaded");
  });

  test("a worker that can't be made is a reason", async () => {
    const page = await browser.page({ workerUrl: "/no-such-worker.js" });
    await page.evaluate(() => window.edgeTest.setUser("u1"));
    assert.equal(await page.evaluate(() => window.edgeTest.prompt({ timeLimitMs: 500 })), "not_loaded");
    const status = await page.evaluate(() => window.edgeTest.settled());
    assert.equal(status.problem, "the worker failed");
  });
});
