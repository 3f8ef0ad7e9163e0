// Takes the documents' pictures of a dashboard: node pictures.mjs URL FOLDER. Its market has one job, in which a solver
// lies and is caught; the pictures are of its dispute and of what came of it.

import { execFileSync } from "node:child_process";
import { stat } from "node:fs/promises";
import puppeteer from "puppeteer-core";

const [url, folder] = process.argv.slice(2);
const MOST_BYTES = 150_000;
const browser = await puppeteer.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
});
const page = await browser.newPage();
const read = async (path) => (await (await fetch(`${url}/api/${path}`)).json()).view;
const pause = () => new Promise((done) => setTimeout(done, 500));

async function until(path, met) {
  for (;;) {
    const view = await read(path).catch(() => null);
    if (view && met(view)) return view;
    await pause();
  }
}

async function picture(path, name, widths) {
  for (const width of widths) {
    await page.setViewport({ width, height: width > 1000 ? 1000 : 844 });
    await page.goto("about:blank");
    await page.goto(`${url}/#/${path}`);
    await page.waitForSelector("main h1");
    if (path.startsWith("job/")) await page.waitForSelector("#curve .u-wrap", { timeout: 15000 });
    await pause();
    const file = `${folder}/${name}-${width}.png`;
    await page.screenshot({ path: file, fullPage: true });
    execFileSync("pngquant", ["--speed", "1", "--strip", "--force", "--output", file, "128", file]);
    const { size } = await stat(file);
    if (size > MOST_BYTES) throw new Error(`${name}-${width}.png has ${size} bytes`);
    console.log(`${name}-${width}.png: ${size} bytes`);
  }
}

const { jobs } = await until("market", (view) => view.jobs.length > 0);
const job = `job/${jobs[0].id}`;
const { games } = await until(job, (view) => view.games.some((game) => !game.decided && game.moves > 2));
await picture(`game/${games[0].id}`, "dashboard-game", [1440]);
await until(job, (view) => view.convictions > 0 && view.settled > 0 && view.round > 0);
await picture("market", "dashboard-market", [1440, 390]);
await picture(job, "dashboard-job", [1440, 390]);
await browser.close();
