// Accounts with their stakes, one account's ledger, and the health of nodes.

import { cards, h, party, table, tok } from "./dom.js";

export function accounts(view) {
  const stake = (line, role) => `${tok(line.stakes[role].active)}${line.stakes[role].locked === "0" ? "" : `, ${tok(line.stakes[role].locked)} locked`}`;
  return [
    h("h1", {}, "Accounts and stakes"),
    table("Accounts", ["account", "#free in the vault", "#wallet", "#solver stake", "#verifier stake", "#unbonding"], view.accounts.map((line) => [
      party(line), tok(line.free), tok(line.wallet), stake(line, "solver"), stake(line, "verifier"),
      tok((BigInt(line.stakes.solver.unbonding) + BigInt(line.stakes.verifier.unbonding)).toString()),
    ])),
  ];
}

export function account(view) {
  return [
    h("h1", {}, view.name || "Account"), h("p", {}, h("code", {}, view.address)),
    cards(Object.entries(view.pots).map(([pot, held]) => [pot, tok(held)])),
    h("p", {}, view.reconciles ? "The lines below add up to what the contracts hold, to the last unit." : "The lines below do NOT add up to what the contracts hold: report it."),
    table("Ledger", ["#block", "pot", "#amount", "why"], view.entries.map((entry) => [entry.block, entry.pot, tok(entry.amount, 6), `${entry.kind}: ${entry.why}`])),
    view.leftOut ? h("p", {}, `${view.leftOut} earlier lines are not shown.`) : null,
  ];
}

export function nodes(view) {
  const words = ({ status, answers, ready }) => (!answers ? "does not answer" : status.error ? status.error : `${ready ? "" : "not ready: "}${status.action ?? ""}`);
  const counters = (status) => Object.entries(status.counters ?? {}).map(([name, value]) => `${name} ${value}`).join(", ");
  return [
    h("h1", {}, "Nodes"),
    h("p", {}, "Health of this folder's nodes, and of those named with --node."),
    table("Nodes", ["node", "role", "what it does", "counters", "address"], view.nodes.map((node) => [
      node.name, node.status.role ?? "–", words(node), counters(node.status), node.url])),
    h("h2", {}, "Where accounts say that they serve blocks"),
    table("Endpoints", ["account", "address"], view.endpoints.map((line) => [party(line.party), line.url])),
  ];
}
