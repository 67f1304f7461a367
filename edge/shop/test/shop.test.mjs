// The shop in Chromium: what is sent, what is shown, and what happens when a part is missing.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { answered, ids, launch, open, read, shown, skip, summary, tap } from "./browser.mjs";

const bytes = (prompt) => Buffer.from(prompt.rows, "base64").length;

describe("the shop", { skip }, () => {
  let browser;
  before(async () => {
    browser = await launch();
  });
  after(() => browser?.close());

  test("a tap becomes a prompt while the call is out, and the next call takes it along", async () => {
    const shop = await open(browser);
    const { page, calls } = shop;
    assert.equal(calls.length, 1);
    assert.equal(calls[0].asked.prompt, undefined);
    const said = await tap(page, 3);
    assert.match(said, /^After “.+”: \d+ new, \d+ up, \d+ down\. \d+ items by “generate”, [\d.]+ ms live, on-device/);
    assert.equal(calls.length, 3);
    const [, first, next] = calls;
    assert.equal(first.asked.prompt, undefined, "the first list is the one without the tap");
    assert.equal(next.asked.prompt.release, next.answer.release);
    assert.equal(bytes(next.asked.prompt), 4 * 16 * next.asked.prompt.num_rows);
    assert.ok(next.asked.prompt.age_ms < 10_000);
    assert.equal(next.answer.assets.prompt_embedding.state, "FRESH");
    assert.deepEqual(await shown(page), ids(next));
    await tap(page, 5);
    assert.deepEqual(calls[3].asked.prompt.rows, next.asked.prompt.rows, "what was known before the second tap");
    assert.notDeepEqual(calls[4].asked.prompt.rows, next.asked.prompt.rows);
    assert.deepEqual(shop.faults, []);
    await shop.close();
  });

  test("the panel shows the timeline and what changed, as the answers say", async () => {
    const shop = await open(browser);
    const { page, calls } = shop;
    await tap(page, 2);
    const [was, is] = [ids(calls[1]), ids(calls[2])];
    const fresh = is.filter((id) => !was.includes(id));
    const up = is.filter((id) => was.includes(id) && is.indexOf(id) < was.indexOf(id));
    const down = is.filter((id) => was.includes(id) && is.indexOf(id) > was.indexOf(id));
    assert.ok(up.length + down.length + fresh.length > 0, "the tap changed nothing");
    const words = `${fresh.length} new, ${fresh.length} gone, ${up.length} up, ${down.length} down, of ${is.length}.`;
    assert.equal(await page.textContent("#changes p"), words);
    for (const [kind, expected] of Object.entries({ new: fresh, up, down })) {
      const badged = await page.$$eval(`#list li:has(.change.${kind})`, (all) => all.map((item) => item.dataset.item));
      assert.deepEqual(badged, expected);
    }
    const rows = await page.$$eval("#timeline tbody tr", (all) => all.map((row) => [...row.cells].map((c) => c.textContent)));
    const names = rows.map(([name]) => name);
    const calling = (name) => [`${name} call: network`, `${name} call: live`];
    assert.deepEqual(names, [...calling("First"), "Prompt embedding", ...calling("Next"), "Tap to list"]);
    for (const [name, , took] of rows) assert.ok(Number(took) >= 0, `${name}: ${took}`);
    assert.equal(rows[4][2], calls[2].answer.ledger.total_ms.toFixed(1));
    const facts = await page.textContent("#facts");
    for (const word of ["generate", "FRESH", calls[2].answer.release, "one thread, in a worker"]) assert.ok(facts.includes(word), word);
    await page.check("#compare [value=before]");
    assert.deepEqual(await shown(page), was);
    await page.check("#compare [value=after]");
    assert.deepEqual(await shown(page), is);
    await shop.close();
  });

  test("titles are text, whatever they hold", async () => {
    const shop = await open(browser);
    const { page } = shop;
    for (let more = 0; more < 3; more += 1) await tap(page, more);
    assert.equal(await page.locator("#list b, #taps b").count(), 0);
    assert.ok((await page.textContent("#list")).includes("<b>Paper</b>"));
    await shop.close();
  });

  test("without consent nothing is computed or sent", async () => {
    const shop = await open(browser);
    const { page, calls } = shop;
    await tap(page, 1);
    await answered(page, () => page.uncheck("#consent"));
    const begun = calls.length;
    assert.match(await tap(page, 2), /Your taps are not used/);
    assert.equal(calls.length, begun + 1);
    for (const call of calls.slice(3)) assert.equal(call.asked.prompt, undefined);
    assert.equal(await page.locator("#visit").isVisible(), false);
    await shop.close();
  });

  test("forgetting and changing the shopper drop the taps and their prompt", async () => {
    const shop = await open(browser);
    const { page, calls } = shop;
    await tap(page, 1);
    await answered(page, () => page.click("#forget"));
    assert.equal(calls.at(-1).asked.prompt, undefined);
    await tap(page, 1);
    await answered(page, () => page.selectOption("#user", { index: 1 }));
    assert.notEqual(calls.at(-1).asked.user_id, calls[0].asked.user_id);
    assert.equal(calls.at(-1).asked.prompt, undefined);
    assert.equal(await page.locator("#visit").isVisible(), false);
    await shop.close();
  });

  test("what is in the basket is not recommended again", async () => {
    const shop = await open(browser);
    const { page, calls } = shop;
    const [first] = await shown(page);
    await answered(page, () => page.locator("#list .add").first().click());
    assert.deepEqual(calls.at(-1).asked.exclude, [first]);
    assert.ok(!(await shown(page)).includes(first));
    assert.equal(await page.textContent("#basket"), "Basket: 1");
    await shop.close();
  });

  test("of taps in quick succession the last one's list stays", async () => {
    const shop = await open(browser);
    const { page, calls } = shop;
    const last = await page.locator("#list .look").nth(7).evaluate((button) => button.firstChild.textContent);
    let held = 0; // the answers to all but the last tap come late
    await page.route("**/v1/recall", async (route) => {
      if ((held += 1) <= 4) await page.waitForTimeout(1500);
      await route.continue().catch(() => undefined); // it was given up in the meantime
    });
    await page.$$eval("#list .look", (all) => all.slice(3, 8).forEach((button) => button.click()));
    await page.waitForFunction((title) => document.getElementById("summary").textContent.includes(title), last);
    const stays = await shown(page);
    await read(page);
    assert.deepEqual(stays, ids(calls.at(-1)));
    await page.waitForTimeout(2500);
    assert.ok((await summary(page)).includes(last));
    assert.deepEqual(await shown(page), stays);
    assert.deepEqual(shop.faults, []);
    await shop.close();
  });

  test("no bundle: the list comes all the same, and says why", async () => {
    const shop = await open(browser, undefined, (page) => page.route("**/v1/edge/**", (route) => route.abort()));
    const { page, calls } = shop;
    assert.match(await tap(page, 4), /No prompt in time \((not_loaded|too_late)\)/);
    assert.equal(calls.length, 2);
    assert.equal(calls[1].answer.rung, "generate");
    await shop.close();
  });

  test("the service fails: the list stays, in words", async () => {
    const shop = await open(browser);
    const { page } = shop;
    const stays = await shown(page);
    await page.route("**/v1/recall", (route) => route.fulfill({ status: 503, body: "{}" }));
    assert.match(await tap(page, 4), /No new list: the service answered 503\. The last one stays\./);
    assert.deepEqual(await shown(page), stays);
    await page.unroute("**/v1/recall");
    assert.match(await tap(page, 4), /^After/);
    await shop.close();
  });
});
