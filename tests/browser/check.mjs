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

// Nothing sticks out to the side, no table hides a column, no text is wider than one can read, and axe finds no fault:
// contrast, names, landmarks, keyboard.
async function sound(what) {
  for (const [width, theme] of [[1440, "light"], [390, "light"], [390, "dark"]]) {
    await page.setViewport({ width, height: 844 });
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: theme }]);
    await new Promise((done) => setTimeout(done, 300));
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(wide <= width, `${what} is ${wide} px wide in a window of ${width}`);
    const hidden = await page.$$eval(".scroll", (all) => all.filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.ariaLabel));
    assert.deepEqual(hidden, [], `${what} at ${width} px: tables hide columns`);
    const widest = await page.$$eval("main p, .doing", (all) => Math.max(0, ...all.map((one) => one.clientWidth)));
    assert.ok(widest <= 760, `${what} at ${width} px: text is ${widest} px wide`);
    // Scripts that a debugger puts in are not subject to the page's policy.
    await page.evaluate(AXE);
    const found = await page.evaluate(() => axe.run({ resultTypes: ["violations"] }));
    const said = found.violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html.slice(0, 120)).join(" | ")}`);
    assert.deepEqual(said, [], `${what} at ${width} px, ${theme}`);
  }
  await page.setViewport({ width: 1440, height: 844 });
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
    await until("What happened");
    assert.equal(await page.evaluate(() => document.activeElement.id), "page", "focus goes to the new page");
  },

  async "a job's page moves with the market and keeps what one has opened"() {
    const { job } = await tell("state");
    await open(`job/${job}`, "no solver yet");
    assert.equal(await page.$("main img"), null, "the job's name is words");
    assert.match(await text(), /Job <img src=x onerror=/);
    await tell("until/committed");
    await until("is unchecked");
    await page.waitForSelector("#curve .u-wrap", { timeout: 20000 });
    await page.click("details summary");
    await tell("until/disputed");
    await until("game 1");
    // The curve has a point for each of the four segments of both shards, as their states are read.
    await page.waitForFunction(() => document.querySelector("#curve").dataset.points === "8", { timeout: 20000 });
    assert.ok(await page.$eval("details", (details) => details.open), "the table stays open");
    assert.ok((await page.$$(".strip .disputed")).length > 0, "the disputed segment is marked");
    const clock = await page.$eval(".doing [data-until]", (one) => one.textContent);
    await page.waitForFunction((before) => document.querySelector(".doing [data-until]").textContent !== before, { timeout: 5000 }, clock);
    const borders = await page.$$eval(".u-marker", (all) => all.slice(1).map((one) => getComputedStyle(one).borderTopStyle));
    assert.equal(new Set(borders).size, borders.length, `the legend tells lines apart: ${borders}`);
    assert.equal((await page.$$(".key")).length, 1, "the legend is there once");
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
    await until("closed: 2 of 2 rounds are settled");
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
    await open(`account/${account}`, "to the last unit");
    assert.match(await text(), /<img src=x onerror=/);
    assert.equal(await page.$("main img"), null);
    await sound("an account");
    await open("nodes", "javascript:alert(1)");
    assert.equal(await page.$("main a[href^='javascript']"), null);
    assert.match(await text(), /member 1 \(<img src=x onerror=/);
    assert.equal(await page.$("main img"), null);
    assert.notEqual(await page.title(), "pwned");
    assert.match(await text(), /This node waits for 41 s for node 812 of step 7, of member 1/);
    assert.match(await text(), /↓ 2.1 MB a step\s+↑ 4.2 MB a step/);
    const bars = await page.$$eval(".spent", (all) => all.map((bar) => [bar.children.length, bar.lastElementChild.getBoundingClientRect().right <= bar.getBoundingClientRect().right + 1]));
    assert.deepEqual(bars, [[3, true], [4, true]], "the parts of a step fill its bar");
    await sound("nodes");
    await shot("nodes");
    await open("accounts", "locked of it");
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
