"""The clocks that run against an account: what it owes, since when, and until when.

Contract: pure. A clock is named by what is owed, so that the same one has the same name at each look. A node
that does its work in time never sees one come near its end; that one does is a reason to wake somebody.
Not guaranteed: demands' clocks say when they end, not when they began, and count as half over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from assay.node.upkeep import voted
from assay.protocol.errors import Unknown
from assay.protocol.ports import MarketView
from assay.protocol.types import Address, ClaimId, ClaimView, JobView, Kind, Phase

HALF, LATE = 0.5, 0.9
"""Shares of a clock at which somebody is told."""


@dataclass(frozen=True)
class Clock:
    """Something owed. Times are the chain's, in seconds."""

    what: str
    """In words, with the ids it takes to find it."""
    loses: str
    """What is lost when it runs out."""
    begins: int
    ends: int

    def share(self, now: int) -> float:
        """How much of it has passed: 0 at its beginning, 1 and more once it is over."""
        return (now - self.begins) / max(self.ends - self.begins, 1)


@dataclass(frozen=True)
class Alarm:
    """A clock that has passed a share of its time."""

    clock: Clock
    share: float
    left_s: int
    """Negative once it is over."""

    def __str__(self) -> str:
        left = f"{self.left_s} s left" if self.left_s >= 0 else f"over for {-self.left_s} s"
        return f"{self.clock.what}: {left}, or {self.clock.loses}"


def clocks(market: MarketView, me: Address) -> list[Clock]:
    """Every clock that runs against an account. Raises RpcUnreachable."""
    found: list[Clock] = []
    with market.snapshot():
        for job in market.jobs():
            if not job.progress.closed:
                found += _of_shards(market, job, me)
                found += [clock for view in market.claims(job.job_id) for clock in _of_votes(job, view, me)]
        for view in market.games():
            if not view.decided and view.game.mover == me:
                what, ends = f"a move in game {view.game_id}", int(view.game.deadline)
                found.append(Clock(what, "the game is lost", ends - int(view.game.move_time), ends))
        for demand in market.demands():
            if not demand.outcome and _claimant(market, demand.claim_id) == me:
                ends = int(demand.deadline)
                found.append(Clock(f"an answer to demand {demand.demand_id}", "the claim falls", ends, ends))
    return found


def _claimant(market: MarketView, claim_id: ClaimId) -> Address | None:
    """None of a claim that is not there: it hides no other clock."""
    try:
        return market.claim(claim_id).claim.claimant
    except Unknown:
        return None


def _of_shards(market: MarketView, job: JobView, me: Address) -> Iterator[Clock]:
    progress, terms = job.progress, job.terms
    if progress.round >= progress.final_round:
        return
    for shard in range(terms.shards):
        holder = market.holder(job.job_id, shard)
        if holder.solver != me:
            continue
        if market.current(job.job_id, Kind.TASK, progress.round, shard) is None:
            begins = max(int(progress.round_start), int(holder.since))
            what = f"task {progress.round}/{shard} of job {job.job_id.hex()[:16]}"
            yield Clock(what, "the shard and a penalty are lost", begins, begins + int(terms.task_time))


def _of_votes(job: JobView, view: ClaimView, me: Address) -> Iterator[Clock]:
    if view.status.phase != Phase.SEEDED or view.stale:
        return
    for vote in view.votes:
        if vote.verifier == me and not voted(vote):
            begins = int(view.status.since)
            what = f"a vote on claim {view.claim_id.hex()[:16]}"
            yield Clock(what, "a penalty is lost", begins, begins + int(job.terms.vote_time))


class Alarms:
    """Tells of each clock once at half of its time and once near its end."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, int], float] = {}

    def look(self, running: Iterable[Clock], now: int) -> list[Alarm]:
        """What is to be told now; clocks that are gone are forgotten."""
        told: dict[tuple[str, int], float] = {}
        due: list[Alarm] = []
        for clock in running:
            key = clock.what, clock.ends
            share = HALF if clock.begins == clock.ends else clock.share(now)
            if clock.begins == clock.ends and now >= clock.ends:
                share = 1.0
            passed = max((mark for mark in (HALF, LATE) if share >= mark), default=0.0)
            if passed > self._told.get(key, 0.0):
                due.append(Alarm(clock, passed, clock.ends - now))
            told[key] = max(passed, self._told.get(key, 0.0))
        self._told = told
        return due
