"""Lists what a job is doing now: each activity with its deadline and what follows it.

Contract: pure, at one chain time; most urgent first; never empty while the job goes on. Times are the
chain's; a deadline that is over may not have passed yet (protocol 7.4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from assay.app.game_text import WHAT_IS_ASKED, side_to_move
from assay.app.times import show_moment
from assay.app.units import round_amount
from assay.client.closing import closes_at
from assay.node.idle_reasons import place_of
from assay.node.rounds import Claims, closable, closable_from, closable_since, slices, standing
from assay.node.upkeep import window_end
from assay.protocol.game_state import GameView
from assay.protocol.ports import MarketView
from assay.protocol.types import (
    ZERO_ADDRESS,
    Address,
    ClaimView,
    Holder,
    JobView,
    Kind,
    Phase,
    Seconds,
)

Who = Callable[[Address], str]
"""An account's name."""


@dataclass(frozen=True)
class Doing:
    """One activity. `until`: its latest end; None without a deadline."""

    now: str
    next: str
    until: Seconds | None = None


def outlook(
    job: JobView,
    claims: Claims,
    games: Sequence[GameView],
    holders: Sequence[Holder],
    now: Seconds,
    closes: Seconds | None,
    who: Who,
) -> list[Doing]:
    """Activities of a job whose shards have these holders. `closes`: when it can first be closed
    (``client.closing``)."""
    progress, back = job.progress, f"{round_amount(job.escrow)} come back to its client"
    if progress.closed:
        return [Doing(f"closed: {progress.settled_rounds} of {job.terms.rounds} rounds are settled", "")]
    found = [_game(view, who) for view in games if not view.decided]
    if progress.round < progress.final_round:
        found += _round(job, claims, holders, now, who)
    found += _window(job, claims, now)
    if closes is not None and now >= closes:
        done = "all rounds are settled" if progress.round >= progress.final_round else "halted"
        found.append(Doing(f"{done}: it can be closed (`assay job close`)", back))
    elif progress.halted:
        when = "the job can be closed" if closes else "what has begun is settled, and the job is closed"
        found.append(Doing("halted: no further round begins", f"{when}: {back}", closes))
    return found


def outlook_of(market: MarketView, job: JobView, now: Seconds, who: Who) -> list[Doing]:
    """As `outlook`, read from a market."""
    if job.progress.closed:  # of which there may be many
        return outlook(job, Claims(()), (), (), now, None, who)
    holders = [market.holder(job.job_id, shard) for shard in range(job.terms.shards)]
    claims, games = Claims(market.claims(job.job_id)), market.games(job.job_id)
    return outlook(job, claims, games, holders, now, closes_at(market, job, claims), who)


def in_words(doing: Doing, now: Seconds) -> str:
    """Formats an activity as a line."""
    until = "" if doing.until is None else f" (until {show_moment(doing.until, now)})"
    return f"{doing.now}{until}" + (f"; then {doing.next}" if doing.next else "")


def who_of(names: Mapping[Address, str]) -> Who:
    """Formats an account as its name or abbreviated address."""
    return lambda address: names.get(address) or f"{address[:8]}…{address[-4:]}"


def _game(view: GameView, who: Who) -> Doing:
    game, side = view.game, side_to_move(view)
    other = "defender" if side == "challenger" else "challenger"
    asked = WHAT_IS_ASKED[game.phase]
    text = f"game {view.game_id}: the {side}, {who(game.mover)}, is to {asked}"
    return Doing(text, f"without a move the {other} wins", Seconds(game.deadline))


def _round(
    job: JobView, claims: Claims, holders: Sequence[Holder], now: Seconds, who: Who
) -> Iterator[Doing]:
    """Activities of the present round."""
    progress, terms, at = job.progress, job.terms, job.progress.round
    if closable(job, claims, now):
        until = Seconds(closable_since(job, claims) + terms.outer_time)
        left = terms.slices - len(slices(job, claims))
        what = "is computed" if left == terms.slices else f"is computed: {left} slices are left"
        then = f"round {at + 1} begins" if at + 1 < progress.final_round else "the last round is closed"
        yield Doing(f"the outer step of round {at} {what}", f"{then}; later, anybody may compute it", until)
        return
    if at - progress.settled_rounds >= terms.max_unsettled:
        yield Doing(f"round {at} waits", f"round {progress.settled_rounds} has to be settled first")
        return
    views = [standing(claims, Kind.TASK, at, shard) for shard in range(terms.shards)]
    training, free = list[int](), list[int]()
    for shard, view in enumerate(views):
        if view is None:
            (free if holders[shard].solver == ZERO_ADDRESS else training).append(shard)
    if training:
        each = dict.fromkeys(who(holders[shard].solver) for shard in training)
        due = (max(progress.due_since, holders[shard].since) + terms.task_time for shard in training)
        text = f"{_listed(each)} train{'' if len(each) > 1 else 's'} {_shards(training)} of round {at}"
        yield Doing(text, "verifiers are drawn; who is late loses the shard", Seconds(min(due)))
    if free and not progress.halted:
        yield Doing(f"{_shards(free)} of round {at}: no solver yet", "the price rises until one takes it")
    for view in views:
        if view is not None and view.status.phase in (Phase.COMMITTED, Phase.SEEDED):
            yield _vote(job, view)
    if (without := closable_from(job, claims)) is not None:
        yield Doing(f"round {at} waits for its other tasks", "it goes on without them", without)


def _vote(job: JobView, view: ClaimView) -> Doing:
    status, terms, place = view.status, job.terms, place_of(view)
    if status.phase == Phase.COMMITTED:
        return Doing(f"{place} is unchecked", f"verifiers are drawn for it at block {status.seed_block}")
    seats = sum(vote.shown or not vote.gone for vote in view.votes)
    text = f"{place}: {status.shown} of {seats} verifiers drawn for it have voted" if seats else ""
    until = Seconds(status.since + terms.vote_time)
    return Doing(text or f"{place}: nobody could be drawn for it", "its challenge window begins", until)


def _window(job: JobView, claims: Claims, now: Seconds) -> Iterator[Doing]:
    """The challenge window of the round that is settled next."""
    at, terms = job.progress.settled_rounds, job.terms
    if at >= job.progress.round:
        return
    places = [(kind, unit) for kind in Kind for unit in range(terms.units_of(kind))]
    views = [view for kind, unit in places if (view := standing(claims, kind, at, unit)) is not None]
    ends = [window_end(view, terms) for view in views if view.status.phase == Phase.ACCEPTED]
    if not ends:
        return
    end, then = max(ends), f"round {at} is settled, and its solvers and verifiers are paid"
    if now > end:
        yield Doing(f"the challenge window of round {at} is over", then)
    else:
        yield Doing(f"round {at} can be challenged", then, end)


def _shards(numbers: Sequence[int]) -> str:
    return f"shard{'s' if len(numbers) > 1 else ''} {_listed(map(str, numbers))}"


def _listed(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
