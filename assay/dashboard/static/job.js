// A job: what goes on, its money, its loss curve, what of its work was checked, its disputes, what happened.

import { draw, series } from "./curve.js";
import { bar, bytes, doing, h, moment, party, short, table, tag, tok } from "./dom.js";
import { games } from "./market.js";
import { flows } from "./parties.js";

const MARKS = { unchecked: "", attested: "✓", settled: "", disputed: "?", convicted: "✗" };
const WORDS = {
  unchecked: "committed to; no drawn verifier vouches for it",
  attested: "drawn verifiers vouch for their own replay of it",
  settled: "paid: nobody can dispute it any more",
  disputed: "a game about it is played",
  convicted: "shown to be false",
};
const INTO = { budget: "budget", stake: "stake taken from it", bond: "bond of a dispute" };
const OUT = {
  price: "price of its work", fee: "fee for votes", reward: "reward for what it found", compensation: "for work that was wasted",
  burnt: "burnt", back: "what was left, back", "bond back": "bond of a dispute, back", "bond won": "half of the bond of a dispute that it won",
};

const POTS = {
  escrow: "left in escrow", bonds: "bonds of open disputes", "taken stakes": "of taken stakes, for votes and rewards to come",
  "set aside": "of taken stakes, for work that was wasted",
};

export function job(view) {
  const { money } = view;
  const pay = (words) => (line) => [line.who ? [party(line.who), ` (${line.role}): `, words[line.kind]] : words[line.kind], line.amount];
  return [
    h("h1", {}, "Job ", view.name || short(view.id), " ", tag(view.state)),
    doing(view.doing),
    h("p", {}, bar("rounds settled", view.settled, view.rounds), ` ${view.settled} of ${view.rounds} rounds settled`, view.rewinds ? `, rewound ${view.rewinds === 1 ? "once" : `${view.rewinds} times`}` : "", ". ",
      "Client ", party(view.client), `; job ${view.id.slice(0, 16)}; a round is ${view.stepsPerRound} steps in ${view.segments} segments, each of which ends in a published state of ${bytes(view.stateBytes)}.`),
    h("h2", {}, "Money"),
    ...flows(money.in.map(pay(INTO)), money.out.map(pay(OUT)), money.held.map(({ pot, amount }) => [POTS[pot], amount]), money.reconciles),
    h("h2", { id: "curve-title" }, "Training loss"),
    key(),
    curve(view),
    h("h2", {}, "Work"),
    ...coverage(view),
    work(view),
    h("h2", {}, "Disputes"), games(view.games),
    h("h2", {}, "What happened"),
    view.story.length
      ? h("ol", { class: "log", tabindex: "0", "aria-label": "Events, newest first" }, view.story.map((line) => h("li", {}, moment(line.time, line.block), " ", h("span", { class: line.state ? `tag ${line.state}` : null }, line.text))))
      : h("p", {}, "nothing yet"),
    view.leftOut ? h("p", {}, `${view.leftOut} earlier events are not shown.`) : null,
  ];
}

function key() {
  return h("ul", { class: "key" }, Object.keys(MARKS).map((state) => h("li", {}, h("span", { class: `tag ${state}` }, `${MARKS[state]} ${state}`), " ", WORDS[state])));
}

function curve(view) {
  if (!view.lossesRead) return h("p", {}, "Losses are not read (--no-losses).");
  const lines = series(view.curve), rows = lines.flatMap(({ label, points }) => points.map(([step, loss]) => [step, label, Number(loss).toFixed(4)]));
  if (!rows.length) return h("p", {}, view.done ? "The states that held the losses are gone: nodes delete them once a task is settled. `assay job watch JOB --metrics FOLDER` keeps the losses of a job while it runs." : "No committed state with a loss has been read yet.");
  return h("div", {},
    h("p", {}, "Losses are what solvers committed to. The ground shows how far each stretch of steps is checked: as far as the shard of which the least is."),
    h("div", { class: "chart", id: "curve", "data-kept": view.id, role: "img", "aria-labelledby": "curve-title" }),
    h("details", {}, h("summary", {}, "The same as a table"), table("Losses", ["#step", "line", "#loss"], rows.sort((a, b) => a[0] - b[0]))));
}

document.addEventListener("shown", ({ detail }) => {
  const place = document.getElementById("curve");
  if (place && detail.path.startsWith("job/") && detail.view) draw(place, detail.view.curve);
});

const percent = (share) => `${(100 * share).toFixed(0)} %`;

function coverage(view) {
  const { attested, segments, escaped, escapesDraw } = view.coverage;
  if (!segments) return [h("p", {}, "No task stands yet.")];
  return [
    h("p", {}, `Verifiers vouch for ${attested} of ${segments} segments of the tasks that stand. One wrong segment among these would have escaped them with a chance of ${percent(escaped)}; `,
      `before the draw, with ${view.verifiers} honest verifiers of ${view.samples} sample(s) each, ${percent(escapesDraw)}. A whistleblower who replays everything misses nothing.`),
  ];
}

function work(view) {
  const missing = view.missing.map(([round, shard]) => [`task ${round}/${shard}`, "nobody", "the round was closed without it", "", ""]);
  return table("Work", ["what", "by", "state", "segments", "votes"], [...view.work.map((line) => [
    line.place, [party(line.solver), ` for ${tok(line.price)}`],
    [tag(line.state), line.voted ? ` ${line.voted}` : "", line.standing || line.state === "convicted" ? "" : " (overtaken)"],
    line.kind === "task" ? strip(line) : ["ends in ", short(line.root)],
    line.votes.map((vote) => h("div", {}, party(vote.verifier), `: ${vote.said}`)),
  ]), ...missing]);
}

function strip(task) {
  const count = (state) => task.segments.filter((other) => other === state).length;
  const label = Object.keys(MARKS).filter(count).map((state) => `${count(state)} ${state}`).join(", ");
  return h("div", { class: "strip", role: "img", "aria-label": label, title: label },
    task.segments.map((state, i) => h("span", { class: state, title: `segment ${i}: ${state}` }, task.segments.length > 32 ? "" : MARKS[state])));
}
