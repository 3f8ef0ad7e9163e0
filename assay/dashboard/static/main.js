// Which page is shown, and its stream. Each message has the whole page, so a page is right after anything.

import { CLOCK, h, morph, setTime } from "./dom.js";
import { market } from "./market.js";
import { job } from "./job.js";
import { game } from "./game.js";
import { account, accounts, nodes } from "./parties.js";

const PAGES = { market, job, game, accounts, account, nodes };
const page = document.getElementById("page");
const head = document.getElementById("head");
const notice = document.getElementById("notice");
let stream = null;
let reorganisations = null;

function topic() {
  const path = location.hash.replace(/^#\/?/, "") || "market";
  return /^[a-z]+(\/[\w.-]+)?$/.test(path) && PAGES[path.split("/")[0]] ? path : "market";
}

function show(message) {
  const { head: at, trouble, error, view, topic: path } = message;
  if (path !== topic()) return;
  setTime(at.time);
  const time = at.time ? new Date(at.time * 1000).toLocaleTimeString([], CLOCK) : "";
  head.textContent = at.block === undefined ? "waiting for the chain" : `chain ${at.chain}, block ${at.block}, ${time}`;
  if (at.reorganisations !== undefined) {
    if (reorganisations !== null && at.reorganisations > reorganisations) {
      notice.textContent = `The chain was reorganised: ${at.blocksReplaced} block(s) replaced. The page shows what is true now.`;
      document.body.dataset.reorganisations = at.reorganisations;
    }
    reorganisations = at.reorganisations;
  }
  if (trouble) notice.textContent = `${trouble.message}${trouble.hint ? "; " + trouble.hint : ""}`;
  else if (notice.dataset.trouble) notice.textContent = "The chain's node answers again.";
  if (trouble) notice.dataset.trouble = "1"; else delete notice.dataset.trouble;
  const fresh = h("main", { id: "page", class: "container-fluid", tabindex: "-1" });
  if (view) fresh.append(...PAGES[path.split("/")[0]](view).flat(Infinity).filter(Boolean));
  else if (error) fresh.append(h("h1", {}, "Not here"), h("p", {}, `${error.message}. ${error.hint}`));
  else fresh.append(h("p", { "aria-busy": "true" }, "reading the chain"));
  morph(page, fresh);
  document.dispatchEvent(new CustomEvent("shown", { detail: { view, path } }));
}

function follow() {
  stream?.close();
  const path = topic();
  for (const link of document.querySelectorAll("#menu a")) {
    if (link.getAttribute("href") === `#/${path.split("/")[0]}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `Assay: ${path}`;
  morph(page, h("main", { id: "page", class: "container-fluid", tabindex: "-1" }, h("p", { "aria-busy": "true" }, "reading the chain")));
  stream = new EventSource(`/events/${path}`);
  stream.onmessage = (event) => show(JSON.parse(event.data));
  stream.onopen = () => { document.body.dataset.live = "yes"; };
  stream.onerror = () => {
    document.body.dataset.live = "no";
    notice.textContent = "The dashboard does not answer; this page tries again by itself.";
    notice.dataset.trouble = "1";
  };
  stream.addEventListener("end", () => { notice.textContent = "The dashboard was stopped."; });
}

document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); page.focus(); });
addEventListener("hashchange", () => { follow(); page.focus(); });
follow();
