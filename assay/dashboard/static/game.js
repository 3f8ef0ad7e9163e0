// One game: the way down from the claim, both clocks, and what a replay on this machine says.

import { cards, h, party, short, span, tag } from "./dom.js";

const asked = new Map(); // game → what this machine's replay said, or why it could not

export function game(view) {
  const how = view.decided ? `won by the ${view.challengerWon ? "challenger" : "defender"} (${view.reason})` : `the ${view.toMove} is to ${view.asked}`;
  return [
    h("h1", {}, `Game ${view.id}`),
    h("p", {}, view.decided ? tag(view.challengerWon ? "convicted" : "settled") : tag("disputed"), " ", how, "."),
    h("div", { class: "clocks" }, ["challenger", "defender"].map((side) => clock(view, side))),
    cards([["moves so far", view.moves], ["time for a move", span(view.moveTime)], ["job", h("a", { href: `#/job/${view.job}` }, short(view.job))]]),
    h("h2", {}, "What is in dispute"),
    tree(view),
    h("h2", {}, "What this machine's own replay says"),
    ...replay(view),
  ];
}

function clock(view, side) {
  const { runs, seconds, out } = view.clocks[side];
  const words = view.decided ? "stopped: the game is over" : out ? "has run out" : runs ? "running" : "stopped; for its next move";
  return h("div", { class: runs ? "runs" : null }, h("strong", {}, side), " ", party(view[side]),
    h("span", { class: "clock" }, view.decided ? "–" : span(seconds)), words);
}

function tree(view) {
  const claim = h("span", {}, "claim ", short(view.claim), `: ${view.kind} of round ${view.round}, shard ${view.shard}, by `, party(view.claimant));
  const down = view.path.reduceRight((inner, level) => h("ul", {}, h("li", {}, h("strong", {}, level.what), ` – ${level.detail}`, inner)), null);
  return h("ul", { class: "tree" }, h("li", {}, claim, down));
}

function replay(view) {
  const said = view.replay ?? asked.get(view.id);
  const button = h("button", { class: "plain secondary", type: "button", id: "replay", on: () => ask(view.id) }, said ? "Replay it again" : "Replay the disputed segment here");
  if (!said) return [h("p", {}, "Not asked yet. It fetches the job's files and recomputes the segment, bit by bit."), button];
  if (said.waiting) return [h("p", { "aria-busy": "true" }, "replaying")];
  if (said.code) return [h("p", { class: "differs" }, said.message), button];
  return [
    h("p", {}, h("strong", {}, `The ${said.right} is right: `), said.words, "."),
    h("ul", {}, said.levels.map((level) => h("li", { class: level.agrees ? "agrees" : "differs" },
      `${level.what}: `, level.agrees ? "the same, " : "differs: claimed ", short(level.claimed), level.agrees ? "" : [", here ", short(level.mine)]))),
    button,
  ];
}

async function ask(id) {
  asked.set(id, { waiting: true });
  try {
    asked.set(id, await (await fetch(`/api/replay/${id}`)).json());
  } catch (error) {
    asked.set(id, { code: "gone", message: String(error) });
  }
}
