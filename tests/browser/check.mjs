// Looks at a dashboard with Chromium, as a person would: node check.mjs URL [FOLDER FOR PICTURES].
// The server is tests/browser/serve.py, whose /test/... routes move its market. Exits with 1 if anything fails.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import puppeteer from "puppeteer-core";

const [url, pictures] = process.argv.slice(2);
const AXE = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const browser = await puppeteer.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
});
const page = await browser.newPage();
const complaints = [];
page.on("console", (message) => { if (["error", "warn", "warning"].includes(message.type())) complaints.push(message.text()); });
page.on("pageerror", (error) => complaints.push(String(error)));
page.on("request", (request) => { if (!request.url().startsWith(url) && !request.url().startsWith("data:")) complaints.push(`asks ${request.url()}`); });

const tell = async (what) => (await fetch(`${url}/test/${what}`)).json();
const text = () => page.$eval("main", (main) => main.innerText);
const until = (words) => page.waitForFunction((wanted) => document.querySelector("main").innerText.includes(wanted), { timeout: 20000 }, words);

async function open(path, words) {
  await page.goto(`${url}/#/${path}`);
  await until(words);
}

async function shot(name, full = true) {
  if (pictures) await page.screenshot({ path: `${pictures}/${name}.png`, fullPage: full });
}

// Nothing sticks out to the side at 390 px, and axe finds no fault: contrast, names, landmarks, keyboard.
async function sound(what) {
  for (const [width, theme] of [[1280, "light"], [390, "light"], [390, "dark"]]) {
    await page.setViewport({ width, height: 844 });
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: theme }]);
    await new Promise((done) => setTimeout(done, 300));
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(wide <= width, `${what} is ${wide} px wide in a window of ${width}`);
    // Scripts that a debugger puts in are not subject to the page's policy.
    await page.evaluate(AXE);
    const found = await page.evaluate(() => axe.run({ resultTypes: ["violations"] }));
    const said = found.violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html.slice(0, 120)).join(" | ")}`);
    assert.deepEqual(said, [], `${what} at ${width} px, ${theme}`);
  }
  await page.setViewport({ width: 1280, height: 844 });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "light" }]);
  await new Promise((done) => setTimeout(done, 400));
}

const checks = {
  async "the market lists its job and leads there by the keyboard alone"() {
    await open("market", "Jobs");
    const { job } = await tell("state");
    await sound("market");
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.className), "skip");
    for (let i = 0; i < 12; i++) {
      await page.keyboard.press("Tab");
      if ((await page.evaluate(() => document.activeElement.getAttribute("href"))) === `#/job/${job}`) break;
    }
    await page.keyboard.press("Enter");
    await until("Rounds and shards");
    assert.equal(await page.evaluate(() => document.activeElement.id), "page", "focus goes to the new page");
  },

  async "a job's page moves with the market and keeps what one has opened"() {
    const { job } = await tell("state");
    await open(`job/${job}`, "Rounds and shards");
    await tell("until/committed");
    await until("committed");
    await page.waitForSelector("#curve .u-wrap", { timeout: 20000 });
    await page.click("details summary");
    await tell("until/disputed");
    await until("game 1");
    // The curve has a point for each of the four segments of both shards, as their states are read.
    await page.waitForFunction(() => document.querySelector("#curve").dataset.points === "8", { timeout: 20000 });
    assert.ok(await page.$eval("details", (details) => details.open), "the table stays open");
    assert.ok((await page.$$(".strip .disputed")).length > 0, "the disputed segment is marked");
    await sound("a job in dispute");
    await shot("job-disputed");
  },

  async "a game shows both clocks, the way down, and what a replay here says"() {
    await open("game/1", "What is in dispute");
    assert.equal((await page.$$(".clocks > .runs")).length, 1, "one clock runs");
    await page.focus("#replay");
    await page.keyboard.press("Enter");
    await tell("turn");
    await until("The challenger is right");
    await sound("a game");
    await shot("game");
    await tell("until/decided");
    await until("won by the challenger");
    assert.equal((await page.$$(".clocks > .runs")).length, 0, "no clock runs");
  },

  async "a reorganisation takes back what it took from the chain, and is said"() {
    const { job } = await tell("state");
    await open(`job/${job}`, "convicted");
    await tell("keep");
    const before = await page.$$eval(".strip", (all) => all.length);
    await tell("until/more");
    await page.waitForFunction((n) => document.querySelectorAll(".strip").length > n, { timeout: 20000 }, before);
    await tell("reorganise");
    await page.waitForFunction((n) => document.querySelectorAll(".strip").length === n, { timeout: 20000 }, before);
    assert.match(await page.$eval("#notice", (p) => p.innerText), /reorganised: \d+ block/);
    await tell("until/done");
    await until("done");
    await sound("a finished job");
    await shot("job");
  },

  async "a node that fails is said, what was there stays, and it goes on"() {
    await open("market", "Jobs");
    await tell("silent");
    await page.waitForFunction(() => /does not answer/.test(document.getElementById("notice").innerText));
    assert.match(await text(), /Jobs/);
    await tell("speak");
    await page.waitForFunction(() => /answers again/.test(document.getElementById("notice").innerText));
    await shot("market");
  },

  async "words from the chain are words"() {
    const { account } = await tell("state");
    await open(`account/${account}`, "add up");
    assert.match(await text(), /<img src=x onerror=/);
    assert.equal(await page.$("main img"), null);
    await sound("an account");
    await open("nodes", "javascript:alert(1)");
    assert.equal(await page.$("main a[href^='javascript']"), null);
    await sound("nodes");
    await open("accounts", "solver stake");
    await sound("accounts");
    await shot("accounts");
    await open("job/" + "ab".repeat(32), "Not here");
    await sound("a page that is not there");
  },
};

let failed = 0;
for (const [name, check] of Object.entries(checks)) {
  try {
    await check();
    assert.deepEqual(complaints.splice(0), [], "the console is silent and nothing is asked elsewhere");
    console.log(`ok   ${name}`);
  } catch (error) {
    failed += 1;
    await shot(`failed-${failed}`);
    console.log(`FAIL ${name}\n${error.stack ?? error}`);
    complaints.splice(0);
  }
}
await browser.close();
process.exit(failed ? 1 : 0);
