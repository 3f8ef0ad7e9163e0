// All jobs and all games.

import { cards, h, party, short, span, table, tag, tok } from "./dom.js";

export function market(view) {
  const open = view.jobs.filter((job) => job.state === "open").length;
  const disputed = view.games.filter((game) => !game.decided).length;
  return [
    h("h1", {}, "Market"),
    cards([["open jobs", open], ["jobs in all", view.jobs.length], ["games being played", disputed], ["nodes known", view.accounts]]),
    h("h2", {}, "Jobs"),
    table("Jobs", ["job", "client", "state", "#round", "#settled", "#shards", "#escrow", "#rewinds"], view.jobs.map((job) => [
      h("a", { href: `#/job/${job.id}` }, short(job.id)), party(job.client), job.state,
      `${Math.min(job.round, job.rounds)} of ${job.rounds}`, job.settled, job.shards, tok(job.escrow), job.rewinds,
    ])),
    h("h2", {}, "Games"),
    games(view.games),
  ];
}

export function games(list) {
  return table("Games", ["game", "challenger", "defender", "segment", "#moves", "state", "clock"], list.map((game) => [
    h("a", { href: `#/game/${game.id}` }, `game ${game.id}`), party(game.challenger), party(game.defender), game.segment,
    game.moves, game.decided ? tag(game.challengerWon ? "convicted" : "settled") : tag("disputed"),
    game.decided ? game.state : `${game.state}; ${span(game.secondsLeft)} left`,
  ]));
}
