// The shop by keyboard, on a phone, in light and dark, and for who does not see it.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { answered, DESKTOP, launch, open, PHONE, shown, skip, tap } from "./browser.mjs";

const SHOTS = process.env.SHOP_SHOTS;
const MIN_TARGET_PX = 24;
const LOOKS = [
  ["desktop-light", { ...DESKTOP, colorScheme: "light" }],
  ["desktop-dark", { ...DESKTOP, colorScheme: "dark" }],
  ["phone-light", { ...PHONE, colorScheme: "light" }],
  ["phone-dark", { ...PHONE, colorScheme: "dark" }],
];

const focused = (page) => page.evaluate(() => document.activeElement.getAttribute("aria-label") ?? document.activeElement.textContent);

async function press(page, key, until, limit = 80) {
  for (let times = 0; times < limit; times += 1) {
    await page.keyboard.press(key);
    if (await page.evaluate((selector) => document.activeElement.matches(selector), until)) return;
  }
  assert.fail(`${key} does not reach ${until}`);
}

/** Runs in the page: text whose contrast with what lies behind it is below 4.5 (WCAG 2.2, 1.4.3). */
function faint() {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const luminance = (parts) => {
    const [r, g, b] = parts.slice(0, 3).map((part) => {
      const share = part / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = rgb(getComputedStyle(at).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return rgb(matchMedia("(prefers-color-scheme: dark)").matches ? "#121212" : "#fff");
  };
  const bad = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !element.checkVisibility() || element.closest(":disabled")) continue;
    const [a, b] = [luminance(rgb(getComputedStyle(element).color)), luminance(behind(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.push(`${element.tagName}.${element.className} ${ratio.toFixed(2)}`);
  }
  return bad;
}

describe("access", { skip }, () => {
  let browser;
  before(async () => {
    browser = await launch();
  });
  after(() => browser?.close());

  test("by keyboard alone", async () => {
    const shop = await open(browser);
    const { page, calls } = shop;
    await page.keyboard.press("Tab");
    assert.equal(await focused(page), "Skip to the list");
    await page.keyboard.press("Enter");
    await press(page, "Tab", "#list li:nth-child(2) .look");
    const chosen = await page.evaluate(() => document.activeElement.closest("li").dataset.item);
    assert.match(await answered(page, () => page.keyboard.press("Enter")), /^After/);
    assert.equal(calls.length, 3);
    const stayed = (await shown(page)).includes(chosen);
    const at = await page.evaluate(() => document.activeElement.closest("li")?.dataset.item ?? document.activeElement.id);
    assert.equal(at, stayed ? chosen : "list-title");
    await press(page, "Shift+Tab", "#compare input");
    await page.keyboard.press("ArrowDown");
    assert.equal(await page.isChecked("#compare [value=before]"), true);
    await press(page, "Tab", "#forget");
    await answered(page, () => page.keyboard.press("Enter"));
    assert.equal(await page.evaluate(() => document.activeElement.id), "list-title");
    await press(page, "Shift+Tab", "#panel > summary");
    const open_ = await page.evaluate(() => document.getElementById("panel").open);
    await page.keyboard.press("Enter");
    assert.equal(await page.evaluate(() => document.getElementById("panel").open), !open_);
    await press(page, "Shift+Tab", "#consent");
    await answered(page, () => page.keyboard.press("Space"));
    await shop.close();
  });

  test("everything that acts has a name and a role, and answers are announced", async () => {
    const shop = await open(browser);
    const { page } = shop;
    await tap(page, 3);
    const count = await page.locator("#list li").count();
    assert.equal(await page.getByRole("button", { name: /^Add .+ to the basket$/ }).count(), count);
    assert.equal(await page.getByRole("button", { name: /.+/ }).count(), await page.locator("button:visible").count());
    for (const [role, name] of [
      ["combobox", /^Shopper/],
      ["switch", "Use my taps"],
      ["radio", "with the last tap"],
      ["radio", "without it"],
      ["table", "Timeline, in milliseconds"],
      ["region", "For you"],
      ["region", "Known to this device only"],
      ["heading", "Beforehand shop"],
    ]) {
      assert.equal(await page.getByRole(role, { name }).count(), 1, `${role} ${name}`);
    }
    assert.equal(await page.getByRole("status").getAttribute("id"), "summary");
    assert.equal(await page.getByRole("rowheader").count(), 6);
    await shop.close();
  });

  for (const [name, options] of LOOKS) {
    test(`${name}: it fits, and can be read`, async () => {
      const shop = await open(browser, options);
      const { page } = shop;
      const wide = options.viewport.width >= 960;
      assert.equal(await page.evaluate(() => document.getElementById("panel").open), wide);
      await tap(page, 3);
      if (!wide) await page.click("#panel > summary");
      assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true);
      assert.deepEqual(await page.evaluate(faint), []);
      const background = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
      assert.equal(background, options.colorScheme === "dark" ? "rgb(20, 23, 26)" : "rgb(246, 247, 249)");
      const small = await page.$$eval(
        "button, select, input, summary",
        (all, least) =>
          all
            .filter((element) => element.checkVisibility())
            .map((element) => (element.closest("label") ?? element).getBoundingClientRect())
            .filter((box) => Math.min(box.width, box.height) < least).length,
        MIN_TARGET_PX,
      );
      assert.equal(small, 0);
      if (SHOTS) await page.screenshot({ path: `${SHOTS}/${name}.png` });
      assert.deepEqual(shop.faults, []);
      await shop.close();
    });
  }
});
