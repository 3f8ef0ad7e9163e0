// All jobs with what goes on in them, and all games.

import { bar, doing, h, job, left, party, table, tag, tok } from "./dom.js";

export function market(view) {
  const open = view.jobs.filter((line) => line.state === "open").length;
  const disputed = view.games.filter((game) => !game.decided).length;
  const count = (number, what) => `${number} ${what}${number === 1 ? "" : "s"}`;
  return [
    h("h1", {}, "Market"),
    h("p", {}, `${count(open, "open job")} of ${view.jobs.length}, ${count(disputed, "dispute")} now, ${count(view.accounts, "node")} known.`),
    h("h2", {}, "Jobs"),
    table("Jobs", ["job", "now", "state", "rounds settled", "#left in escrow"], view.jobs.map((line) => [
      [job(line), h("div", {}, "of ", party(line.client))], doing(line.doing.slice(0, 3)), tag(line.state),
      [bar(`rounds settled of job ${line.name || line.id.slice(0, 8)}`, line.settled, line.rounds), ` ${line.settled} of ${line.rounds}`], tok(line.escrow),
    ])),
    h("h2", {}, "Disputes"),
    games(view.games),
  ];
}

export function games(list) {
  return table("Disputes", ["game", "challenger", "defender", "segment", "#moves", "state", "what is asked"], list.map((game) => [
    h("a", { href: `#/game/${game.id}` }, `game ${game.id}`), party(game.challenger), party(game.defender), game.segment,
    game.moves, game.decided ? tag(game.challengerWon ? "convicted" : "upheld") : tag("disputed"),
    [game.state, game.decided ? null : [" ", left(game.until)]],
  ]));
}
