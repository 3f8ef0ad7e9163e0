// A job: where it stands, its loss curve, what of it was replayed, its disputes and checkpoints.

import { draw } from "./curve.js";
import { bytes, cards, h, party, short, table, tag, tok } from "./dom.js";
import { games } from "./market.js";

const MARKS = { replayed: "✓", committed: "", disputed: "?", convicted: "✗" };
const WORDS = {
  replayed: "a drawn verifier vouches for its own replay of it",
  committed: "committed to; no drawn verifier has vouched for it",
  disputed: "in dispute",
  convicted: "convicted",
};

export function job(view) {
  return [
    h("h1", {}, "Job ", short(view.id)),
    cards([
      ["state", view.done ? "done" : view.state], ["round", `${Math.min(view.round, view.rounds)} of ${view.rounds}`],
      ["rounds settled", view.settled], ["paid so far", tok(view.paid)], ["left in escrow", tok(view.escrow)],
      ["convictions", view.convictions], ["rewinds", view.rewinds],
    ]),
    h("p", {}, "Client ", party(view.client), `; ${view.stepsPerRound} steps a round in ${view.segments} segments, each of which ends in a published state of ${bytes(view.stateBytes)}; a challenge can be opened for ${view.challengeWindow} s.`),
    h("h2", { id: "curve-title" }, "Training loss"),
    curve(view),
    h("h2", {}, "Rounds and shards"),
    rounds(view),
    h("h2", {}, "Coverage"),
    ...coverage(view),
    h("h2", {}, "Games"), games(view.games),
    h("h2", {}, "Checkpoints"),
    table("Checkpoints", ["#after round", "slice", "phase", "root of the model's state"], view.checkpoints.map((point) => [
      point.round, point.slice, tag(point.phase), short(point.root)])),
    h("h2", {}, "What happened while somebody looked"),
    view.events.length
      ? h("ul", { class: "log", tabindex: "0", "aria-label": "Events, newest first" }, view.events.map((event) => h("li", {}, `block ${event.block}: ${event.text}`)))
      : h("p", {}, "nothing yet"),
  ];
}

function key() {
  return h("ul", { class: "key" }, Object.keys(MARKS).map((state) => h("li", {}, h("span", { class: `tag ${state}` }, `${MARKS[state]} ${state}`), " ", WORDS[state])));
}

function curve(view) {
  const known = view.points.filter((point) => point.loss !== null);
  if (!view.lossesRead) return h("p", {}, "Losses are not read (--no-losses).");
  if (!known.length) return h("p", {}, "No committed state with a loss has been read yet.");
  return h("div", {},
    h("p", {}, "From the states that solvers committed to; the ground tells what is known of the steps that led to each."),
    key(),
    h("div", { class: "chart", id: "curve", "data-kept": view.id, role: "img", "aria-labelledby": "curve-title" }),
    h("details", {}, h("summary", {}, "The same as a table"),
      table("Losses", ["#step", "#shard", "#loss", "state"], known.map((point) => [point.step, point.shard, point.loss.toFixed(4), tag(point.state)]))));
}

document.addEventListener("shown", ({ detail }) => {
  const place = document.getElementById("curve");
  if (place && detail.path.startsWith("job/") && detail.view) draw(place, detail.view);
});

function rounds(view) {
  const shards = [...Array(view.shards).keys()];
  const missing = new Set(view.missing.map(([round, shard]) => `${round}/${shard}`));
  const rows = [...Array(view.rounds).keys()].map((round) => [
    round,
    ...shards.map((shard) => {
      const tasks = view.tasks.filter((task) => task.round === round && task.shard === shard);
      if (!tasks.length) return missing.has(`${round}/${shard}`) ? "closed without it" : round === view.round && view.holders[shard] && !view.done ? ["in training by ", party(view.holders[shard])] : "–";
      return tasks.map((task) => h("div", {}, tag(task.phase), " ", party(task.solver), task.standing || task.phase === "convicted" ? "" : " (overtaken)"));
    }),
    view.outer[round] !== "none" ? tag(view.outer[round]) : view.slicesThere[round] ? `${view.slicesThere[round]} of ${view.slices} slices` : "–",
  ]);
  return table("Rounds and shards", ["#round", ...shards.map((shard) => `shard ${shard}`), "outer step"], rows);
}

const percent = (share) => `${(100 * share).toFixed(0)} %`;

function coverage(view) {
  const { replayed, segments, escaped, escapesDraw } = view.coverage;
  if (!segments) return [h("p", {}, "No task stands yet.")];
  return [
    h("p", {}, `Verifiers vouch for ${replayed} of ${segments} segments of the tasks that stand (${percent(1 - escaped)}). `,
      `One wrong segment among those that stand, put anywhere, would have escaped them with chance ${percent(escaped)}; `,
      `before the draw of a task, with ${view.verifiers} honest verifiers of ${view.samples} sample(s) each: ${percent(escapesDraw)}. `,
      "A whistleblower who replays everything misses nothing."),
    key(),
    table("Coverage", ["task", "solver", "phase", "segments", "votes"], view.tasks.map((task) => [
      `${task.round}/${task.shard}`, party(task.solver), tag(task.phase), strip(task),
      task.votes.map((vote) => h("div", {}, party(vote.verifier), `: ${vote.said}`)),
    ])),
  ];
}

function strip(task) {
  const count = (state) => task.segments.filter((other) => other === state).length;
  const label = Object.keys(MARKS).filter(count).map((state) => `${count(state)} ${state}`).join(", ");
  return h("div", { class: "strip", role: "img", "aria-label": label, title: label },
    task.segments.map((state, i) => h("span", { class: state, title: `segment ${i}: ${state}` }, task.segments.length > 32 ? "" : MARKS[state])));
}
