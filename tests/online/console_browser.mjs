// A real browser on the console at $CONSOLE_URL, with the key $CONSOLE_KEY. Prints what the page shows as JSON.
import { createRequire } from "node:module";

const { chromium } = createRequire(new URL("../../edge/sdk-js/package.json", import.meta.url))("playwright-core");
const flags = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"];
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: flags });
const page = await browser.newPage({ viewport: { width: 360, height: 740 } });
const faults = [];
page.on("pageerror", (error) => faults.push(error.message));
await page.goto(process.env.CONSOLE_URL);
await page.waitForFunction(() => document.getElementById("said").textContent.includes("API key"));
const refused = await page.textContent("#said");
await page.fill("#key", process.env.CONSOLE_KEY);
await page.dispatchEvent("#key", "change");
await page.waitForFunction(() => document.getElementById("said").textContent.startsWith("read at"));
await page.fill("#user", "<b>nobody</b>");
await page.click("#look button");
await page.waitForSelector("#explained p");
const wide = await page.evaluate(() => document.documentElement.scrollWidth > document.documentElement.clientWidth);
console.log(
  JSON.stringify({
    refused,
    faults,
    wide,
    releases: await page.textContent("#releases"),
    rungs: await page.textContent("#rungs"),
    budget: await page.getAttribute("#waterfall", "aria-label"),
    explained: await page.textContent("#explained"),
  }),
);
await browser.close();
