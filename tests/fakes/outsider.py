"""An account without funds that ends whatever anybody may end, while all others do nothing.

Contract: `end_all` changes a pure market by that account's events and by waiting. Once nothing more can be
ended, it waits for the next time at which something can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from eth_utils.crypto import keccak

from assay.protocol.dispute import Timeout
from assay.protocol.game_state import Found
from assay.protocol.params import MAX_CALLS
from assay.protocol.trees import Tree
from assay.protocol.types import ZERO_ADDRESS, Address, Claim, Phase, Seconds, Terms
from spec import events as e
from spec.ledger import Bucket
from spec.lifecycle import transition
from spec.market_state import MarketState, Moment
from spec.refusal import Refused

OUTSIDER = Address("0x" + "e" * 40)
SLACK = 8
"""Seconds: each of the steps that follow one another comes a second after its time at most."""
Roots = Mapping[bytes, Tree]
Check = Callable[[MarketState, MarketState, Seconds], None]


@dataclass(frozen=True)
class Ended:
    """One event of the outsider, and the market before and after it."""

    event: e.Event
    time: Seconds
    before: MarketState
    after: MarketState


def bound(terms: Terms) -> int:
    """Seconds after which nothing of a job is locked, if nobody acts but an outsider (invariant 21).

    A game or demand ends by moveTime; a task is accepted by then or after four voteTimes, and settled after
    two challengeWindows, or voided after one; votes on what fell are free a challengeWindow after; a halted
    job ends taskTime later, and with it what waits for its claims.
    """
    votes = (1 + MAX_CALLS) * terms.vote_time
    return terms.move_time + votes + 2 * terms.challenge_window + terms.task_time + SLACK


def end_all(
    market: MarketState,
    time: Seconds,
    block: int,
    most: int,
    check: Check | None = None,
    halting: bool = False,
    roots: Roots | None = None,
) -> tuple[MarketState, list[Ended]]:
    """The market after at most `most` seconds in which only the outsider acts, and its actions.

    `halting`: clients halt their own jobs as soon as these have a round to come (again). `roots`: of claims'
    segments, by their root, as the chain's events give them.
    """
    done: list[Ended] = []
    start = time
    while True:
        acted = True
        while acted:
            acted = False
            halts = [(e.Halt(i), job.terms.client) for i, job in market.jobs.items() if halting]
            doings: list[tuple[e.Event, Address]] = [*halts]
            if any(map(missed(market, time), deadlines(market, time))):
                doings.append((e.Tick(), OUTSIDER))
            for event, by in [*doings, *((event, OUTSIDER) for event in endings(market, roots or {}))]:
                block += 1
                try:
                    after = transition(market, event, by, Moment(time, block))
                except Refused:
                    continue
                if after == market:
                    continue
                if check is not None:
                    check(market, after, time)
                done.append(Ended(event, time, market, after))
                market, acted = after, True
        later = [due + 1 for due in deadlines(market, time) if due + 1 > time]
        later += [market.ticks.ticked + market.ticks.lag] * (market.ticks.ticked + market.ticks.lag > time)
        if not later or min(later) > start + most:
            return market, done
        time = Seconds(min(later))


def missed(market: MarketState, time: Seconds) -> Callable[[int], bool]:
    """Which deadlines are over, and pass only once somebody ticks (rule 7.4)."""
    return lambda due: market.ticks.ticked <= due < time


def endings(market: MarketState, roots: Roots) -> Iterator[e.Event]:
    """Everything that anybody might end."""
    for game_id, challenge in market.games.items():
        yield e.Play(game_id, challenge.game, Timeout())
    for demand_id, made in market.demands.items():
        yield e.ExpireDemand(demand_id, made, market.claims[made.claim_id].claim)
    for claim_id, state in market.claims.items():
        claim = state.claim
        digest = keccak(claim_id)
        if state.status.phase == Phase.COMMITTED:
            yield e.RecordSeed(claim, digest, e.Header(digest, digest))
        if state.status.phase == Phase.SEEDED:
            yield e.Tally(claim)
        if state.status.phase == Phase.ACCEPTED:
            yield e.Settle(claim)
        if state.live:
            yield e.Void(claim)
        if state.status.phase == Phase.CONVICTED:
            yield e.FreeSeats(claim)
            if state.winner != ZERO_ADDRESS:
                yield e.ShareAlike(claim_id, state.kept)
                yield from shares(market, claim, state.kept, roots)
                yield e.ShareWon(claim, state.kept)
    for job_id, job in market.jobs.items():
        for number, shard in enumerate(job.shards):
            if shard.solver != ZERO_ADDRESS and not job.closed:
                yield e.Expire(job_id, number)
        if not job.closed:
            yield e.Close(job_id)


def shares(market: MarketState, fallen: Claim, kept: tuple[Found, ...], roots: Roots) -> Iterator[e.Share]:
    """By the settled claim of the place, if there is one."""
    last = market.places[fallen.job_id, fallen.kind, fallen.round, fallen.shard]
    state = market.claims[last]
    if state.status.phase == Phase.SETTLED:
        both = (tuple(roots[each.segments_root].levels[0]) for each in (fallen, state.claim))
        yield e.Share(fallen, next(both), state.claim, next(both), kept)


def deadlines(market: MarketState, now: Seconds) -> Iterator[int]:
    """When something may be ended that may not be yet."""
    yield from (challenge.game.deadline for challenge in market.games.values())
    yield from (made.deadline for made in market.demands.values())
    for state in market.claims.values():
        terms, since = market.jobs[state.claim.job_id].terms, state.status.since
        yield since + terms.vote_time
        yield since + terms.challenge_window
        yield state.window_end(terms)
    for job_id, job in market.jobs.items():
        yield job.waits_until
        yield max(market.due_since(job_id, now), job.last_shard_claim) + job.terms.task_time
        yield from (market.deadline(job_id, shard, now) for shard in range(job.terms.shards))


def stakes_in_claims(market: MarketState) -> int:
    """Stake that claims and seats have locked: all locked stake except holders' for their shards."""
    locked = sum(entry.locked for entry in market.funds.accounts.values())
    return locked - sum(
        job.terms.miss_penalty
        for job in market.jobs.values()
        for shard in job.shards
        if shard.solver != ZERO_ADDRESS
    )


def bonds(market: MarketState) -> int:
    """Total of all bonds."""
    return market.funds.ledger.total(Bucket.BOND)
