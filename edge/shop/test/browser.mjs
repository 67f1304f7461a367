// A real browser on the shop at $SHOP_URL, and what tests ask of its page.

import { existsSync } from "node:fs";
import { createRequire } from "node:module";

const { chromium } = createRequire(new URL("../../sdk-js/package.json", import.meta.url))("playwright-core");
export const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
export const URL_OF_SHOP = process.env.SHOP_URL;
export const skip = !URL_OF_SHOP ? "no SHOP_URL" : existsSync(CHROMIUM) ? false : `no browser at ${CHROMIUM}`;
export const PHONE = { viewport: { width: 360, height: 740 } };
export const DESKTOP = { viewport: { width: 1280, height: 900 } };
const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

export const launch = () => chromium.launch({ executablePath: CHROMIUM, headless: true, args: FLAGS });

/** The shop in a context of its own; `prepare` may route requests before it opens. */
export async function open(browser, options = DESKTOP, prepare = async () => {}) {
  const context = await browser.newContext(options);
  const page = Object.assign(await context.newPage(), { reading: [] });
  const shop = { page, faults: [], calls: [], close: () => context.close() };
  page.on("console", (message) => message.type() === "error" && shop.faults.push(message.text()));
  page.on("pageerror", (error) => shop.faults.push(error.message));
  page.on("response", (response) => {
    if (!response.url().endsWith("/v1/recall")) return;
    const call = { asked: response.request().postDataJSON(), answer: null };
    shop.calls.push(call);
    page.reading.push(response.json().then((answer) => (call.answer = answer), () => null));
  });
  await prepare(page);
  await page.goto(`${URL_OF_SHOP}?limit_ms=10000`);
  await page.waitForSelector("#list li");
  return shop;
}

export const summary = (page) => page.textContent("#summary");
export const shown = (page) => page.$$eval("#list li", (all) => all.map((item) => item.dataset.item));
export const ids = (call) => call.answer.items.map((item) => item.item_id);

/** Until the answers that have come are in `calls`, too: the page may show one before. */
export const read = (page) => Promise.all(page.reading);

/** Do `act` and wait until the page says something else. */
export async function answered(page, act) {
  await page.evaluate(() => (document.getElementById("summary").textContent = "…"));
  await act();
  await page.waitForFunction(() => document.getElementById("summary").textContent !== "…");
  await read(page);
  return summary(page);
}

export const tap = (page, place) => answered(page, () => page.locator("#list .look").nth(place).click());
