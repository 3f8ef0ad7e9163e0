// Accounts with their stakes, one account's ledger, and the health of nodes.

import { bytes, cards, h, party, table, tok } from "./dom.js";

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

// As assay/app/worker_status.py has it.
function workerLine(worker) {
  const steps = worker.total ? ` ${worker.done}/${worker.total}` : "";
  const parts = [worker.order ? `${worker.order}${steps}` : "idle"];
  if (worker.seconds_a_step) parts.push(`${Number(Number(worker.seconds_a_step).toPrecision(3))} s a step`);
  if (worker.resident_bytes) parts.push(bytes(worker.resident_bytes));
  if (worker.device_bytes) parts.push(`${bytes(worker.device_bytes)} of the device`);
  if (worker.losses) parts.push(`${worker.losses} lost${worker.trouble ? `: ${worker.trouble}` : ""}`);
  for (const why of Array.isArray(worker.slower) ? worker.slower : []) parts.push(`slower: ${why}`);
  return `${worker.device}: ${parts.join(", ")}`;
}

export function nodes(view) {
  const words = ({ status, ready, troubles }) => [...troubles.map((line) => h("div", { class: "bad" }, line)), h("div", {}, `${ready ? "" : "not ready: "}${status.action ?? ""}`)];
  const counters = (status) => Object.entries(status.counters ?? {}).map(([name, value]) => `${name} ${value}`).join(", ");
  const workers = (status) => (Array.isArray(status.workers) ? status.workers : []).filter((worker) => worker && typeof worker === "object").map((worker) => h("div", {}, workerLine(worker)));
  return [
    h("h1", {}, "Nodes"),
    h("p", {}, "Health of this folder's nodes, and of those named with --node."),
    table("Nodes", ["node", "role", "what it does", "workers", "counters", "address"], view.nodes.map((node) => [
      node.name, node.status.role ?? "–", words(node), workers(node.status), counters(node.status), node.url])),
    h("h2", {}, "Where accounts say that they serve blocks"),
    table("Endpoints", ["account", "address"], view.endpoints.map((line) => [party(line.party), line.url])),
  ];
}
