// Accounts with their stakes, one account's money and ledger, and the health of nodes.

import { bar, h, moment, party, table, tag, tok } from "./dom.js";
import { pipeline } from "./pipeline.js";

const some = (amount) => (amount === null ? "not read" : amount === "0" ? "–" : tok(amount));

// Money in, money out and what is held, as three lists of [what, amount] that add up.
export function flows(came, went, held, adds) {
  const sum = (rows) => rows.reduce((total, [, amount]) => total + BigInt(amount), 0n);
  const most = [...came, ...went, ...held].reduce((max, [, amount]) => (BigInt(amount) > max ? BigInt(amount) : max), 1n);
  const list = (title, rows) => h("section", {}, h("h3", {}, `${title}: ${tok(sum(rows))}`),
    h("ul", {}, rows.map(([what, amount]) => h("li", {}, what, h("strong", {}, ` ${tok(amount)}`), bar("share", Number((BigInt(amount) * 1000n) / most), 1000)))));
  return [
    h("div", { class: "flows" }, list("came in", came), list("went out", went), list("is held", held)),
    h("p", {}, adds ? "From the chain's events. What came in is what went out and what the contracts hold, to the last unit." : "The events do NOT add up to what the contracts hold: report it."),
  ];
}

export function accounts(view) {
  return [
    h("h1", {}, "Accounts"),
    h("p", {}, "Earned is pay, fees and rewards less bonds and stakes that were lost."),
    table("Accounts", ["account", "roles", "#earned", "#free in the vault", "#stake", "#locked of it", "#unbonding", "#wallet"], view.accounts.map((line) => [
      party(line), line.roles.join(", ") || "–", some(line.earned), some(line.free), some(line.stake), some(line.locked), some(line.unbonding), some(line.wallet),
    ])),
  ];
}

const REASONS = {
  deposit: "deposits from the wallet", withdrawal: "withdrawals", budget: "budgets of jobs", refund: "what was left of budgets", pay: "pay for work",
  fee: "fees for votes", reward: "rewards", compensation: "for wasted work", bond: "bonds of disputes", "bond back": "bonds that came back",
  "bond won": "bonds of the other side", slashed: "stake that was lost", staked: "stake of, or for, others",
};

export function account(view) {
  const lines = Object.entries(view.flows), row = ([kind, amount]) => [REASONS[kind] ?? kind, amount.replace("-", "")];
  return [
    h("h1", {}, view.name || "Account", view.roles.length ? ` (${view.roles.join(", ")})` : ""), h("p", {}, h("code", {}, view.address)),
    h("p", {}, "Earned so far: ", h("strong", {}, tok(view.earned)), "."),
    h("h2", {}, "Money"),
    ...flows(lines.filter(([, amount]) => !amount.startsWith("-")).map(row), lines.filter(([, amount]) => amount.startsWith("-")).map(row), Object.entries(view.pots).filter(([, held]) => held !== "0"), view.reconciles),
    h("h2", {}, "Ledger"),
    table("Ledger", ["when", "pot", "#amount", "why"], view.entries.map((entry) => [moment(entry.time, entry.block), entry.pot, tok(entry.amount, 6), entry.words])),
    view.leftOut ? h("p", {}, `${view.leftOut} earlier lines are not shown.`) : null,
  ];
}

export function nodes(view) {
  return [
    h("h1", {}, "Nodes"),
    h("p", {}, "This folder's nodes, and those named with --node."),
    h("div", { class: "nodes" }, view.nodes.map((node) => h("article", {},
      h("h2", {}, node.name, ` (${node.role}) `, tag(node.ready ? "ready" : "not ready")),
      node.action ? h("p", {}, node.action) : null,
      node.troubles.map((line) => h("p", { class: "bad" }, line)),
      h("dl", { class: "facts" }, [["address", node.url], ...node.details].map(([what, value]) => h("div", {}, h("dt", {}, what), h("dd", {}, value)))),
      node.crews.map(pipeline)))),
    h("h2", {}, "Where accounts say that they serve blocks"),
    table("Endpoints", ["account", "address"], view.endpoints.map((line) => [party(line.party), line.url])),
  ];
}
