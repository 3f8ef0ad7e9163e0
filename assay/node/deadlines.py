"""Tracks the deadlines that run against an account, and computes how long its node may be offline.

Contract: pure. A deadline keeps its name from poll to poll. A node that works in time never sees one come
near its end; when one does, a person is alerted. After the end, `is_lost` reads from the market whether it
cost anything. Not guaranteed: a demand's deadline has no known beginning and counts as half over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from assay.node.rounds import CHALLENGEABLE
from assay.node.upkeep import locks, voted, watched
from assay.protocol.errors import Unknown
from assay.protocol.game_state import GameView, returns_bond
from assay.protocol.ports import MarketView
from assay.protocol.types import Address, ClaimId, ClaimView, JobId, JobView, Kind, Phase, Role

HALF, LATE = 0.5, 0.9
"""Fractions of a deadline at which an alarm is raised."""


@dataclass(frozen=True)
class Deadline:
    """A duty with a deadline. Times are the chain's, in seconds."""

    what: str
    """Description, with the ids needed to find it."""
    loses: str
    """Description of the loss if it runs out."""
    begins: int
    ends: int
    of: tuple[str | int, ...] = ()
    """Key: ``("move", game)``, ``("answer", demand)``, ``("task", job, round, shard)``, ``("vote",
    claim)`` or ``("accusation", game)``, ids in hex."""

    def share(self, now: int) -> float:
        """Fraction of the time that has passed: 0 at the beginning, 1 or more after the end."""
        return (now - self.begins) / max(self.ends - self.begins, 1)


@dataclass(frozen=True)
class Alarm:
    """A deadline of which HALF or LATE of the time has passed."""

    deadline: Deadline
    share: float
    left_s: int
    """Seconds until the end; negative after it."""

    def __str__(self) -> str:
        left = f"{self.left_s} s left" if self.left_s >= 0 else f"over for {-self.left_s} s"
        return f"{self.deadline.what}: {left}, or {self.deadline.loses}"


def deadlines_of(market: MarketView, me: Address) -> list[Deadline]:
    """Lists every deadline that runs against an account. Raises RpcUnreachable."""
    found: list[Deadline] = []
    with market.snapshot():
        for job in market.jobs():
            if not job.progress.closed:
                found += _of_shards(market, job, me)
                found += [
                    deadline for view in market.claims(job.job_id) for deadline in _of_votes(job, view, me)
                ]
        for view in market.games():
            if not view.decided and view.game.mover == me and not _costs_nothing(market, view, me):
                what, ends = f"a move in game {view.game_id}", int(view.game.deadline)
                of = "move", view.game_id
                found.append(Deadline(what, "the game is lost", ends - int(view.game.move_time), ends, of))
        for demand in market.demands():
            if not demand.outcome and _claimant(market, demand.claim_id) == me:
                ends = int(demand.deadline)
                what, of = f"an answer to demand {demand.demand_id}", ("answer", demand.demand_id)
                found.append(Deadline(what, "the claim falls", ends, ends, of))
    return found


def _costs_nothing(market: MarketView, view: GameView, me: Address) -> bool:
    """True if the game's bond comes back however it ends, because its claim or vote has fallen by other
    means."""
    try:
        return view.game.challenger == me and returns_bond(market.claim(view.game.claim_id), view.game)
    except Unknown:
        return False


def _claimant(market: MarketView, claim_id: ClaimId) -> Address | None:
    """Claimant of a claim; None if the claim does not exist, so that other deadlines are still listed."""
    try:
        return market.claim(claim_id).claim.claimant
    except Unknown:
        return None


def _of_shards(market: MarketView, job: JobView, me: Address) -> Iterator[Deadline]:
    progress, terms = job.progress, job.terms
    if progress.round >= progress.final_round:
        return
    for shard in range(terms.shards):
        holder = market.holder(job.job_id, shard)
        if holder.solver != me:
            continue
        if market.current(job.job_id, Kind.TASK, progress.round, shard) is None:
            begins = max(int(progress.due_since), int(holder.since))
            what = f"task {progress.round}/{shard} of job {job.job_id.hex()[:16]}"
            of = "task", job.job_id.hex(), int(progress.round), shard
            yield Deadline(
                what, "the shard and a penalty are lost", begins, begins + int(terms.task_time), of
            )


def _of_votes(job: JobView, view: ClaimView, me: Address) -> Iterator[Deadline]:
    if view.status.phase != Phase.SEEDED or view.stale:
        return
    for vote in view.votes:
        if vote.verifier == me and not voted(vote):
            begins = int(view.status.since)
            what = f"a vote on claim {view.claim_id.hex()[:16]}"
            of = "vote", view.claim_id.hex()
            yield Deadline(what, "a penalty is lost", begins, begins + int(job.terms.vote_time), of)


def is_lost(market: MarketView, me: Address, deadline: Deadline) -> bool:
    """True if a duty was not done in time, by the market's present state. Raises RpcUnreachable."""
    try:
        match deadline.of:
            case ("move", int(game_id)):
                view = market.game(game_id)
                lost = view.decided and view.challenger_won != (view.game.challenger == me)
                return lost and not _costs_nothing(market, view, me)
            case ("answer", int(number)):
                return any(d.demand_id == number and d.outcome == "withheld" for d in market.demands())
            case ("task", str(job), int(round_), int(shard)):
                job_id = JobId(bytes.fromhex(job))
                held = market.holder(job_id, shard).solver == me
                return not held and not any(
                    (v.claim.kind, v.claim.round, v.claim.shard, v.claim.claimant)
                    == (Kind.TASK, round_, shard, me)
                    for v in market.claims(job_id)
                )
            case ("vote", str(claim)):
                votes = market.claim(ClaimId(bytes.fromhex(claim))).votes
                return any(vote.verifier == me and vote.gone and not vote.shown for vote in votes)
    except Unknown:
        pass  # a reorganisation has taken it
    return False


@dataclass(frozen=True)
class Sleep:
    """How long a node may be offline without a loss, and what is due then."""

    seconds: int
    what: str

    def __str__(self) -> str:
        return f"at most {max(self.seconds, 0)} s: {self.what}"


class Duties(NamedTuple):
    """Duties of a service that the market does not show."""

    running: Sequence[Deadline] = ()
    may_come: Sequence[Sleep] = ()


ANY_TIME = "as long as you like: nothing is owed"


def offline_allowance(market: MarketView, me: Address, now: int, others: Duties = Duties()) -> Sleep | None:
    """Computes how long this account's node may be offline; None if nothing is or can become due. `others`:
    the service's. Raises RpcUnreachable.
    """
    with market.snapshot():
        running = [*deadlines_of(market, me), *others.running]
        bounds = [Sleep(deadline.ends - now, f"{deadline.what} is due") for deadline in running]
        bounds += others.may_come
        own = market.subscription(me) if market.stake(me, Role.VERIFIER).active else b""
        for job in watched(market):
            bounds += _may_come(market, job, me, own)
    return min(bounds, key=lambda bound: bound.seconds, default=None)


def _may_come(market: MarketView, job: JobView, me: Address, own: bytes) -> Iterator[Sleep]:
    """Duties that others, or the next round, may create at any moment. `own`: the account's class."""
    terms, name = job.terms, f"job {job.job_id.hex()[:16]}"
    move, open_ = int(terms.move_time), not job.progress.closed
    for view in market.claims(job.job_id):
        claim = f"claim {view.claim_id.hex()[:16]}"
        if view.claim.claimant == me and view.status.phase in CHALLENGEABLE:
            yield Sleep(move, f"a game or a demand may be opened on {claim} at any time")
        elif locks(view, me):
            yield Sleep(move, f"a game may be opened on a vote on {claim} at any time")
    for game in market.games(job.job_id):
        if not game.decided and me in (game.game.challenger, game.game.defender) and game.game.mover != me:
            yield Sleep(
                int(game.game.move_time), f"the other side may move in game {game.game_id} at any time"
            )
    if open_ and job.progress.round < job.progress.final_round:
        if any(market.holder(job.job_id, k).solver == me for k in range(terms.shards)):
            yield Sleep(int(terms.task_time), f"the next round of {name} may begin at any time")
        if own == terms.class_id:
            yield Sleep(int(terms.vote_time), f"a seat may be drawn in {name} at any time")


class Alarms:
    """Raises an alarm once at half of each deadline and once near its end."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, int], float] = {}

    def look(self, running: Iterable[Deadline], now: int) -> list[Alarm]:
        """Returns new alarms, and forgets deadlines that are gone."""
        told: dict[tuple[str, int], float] = {}
        due: list[Alarm] = []
        for deadline in running:
            key = deadline.what, deadline.ends
            share = HALF if deadline.begins == deadline.ends else deadline.share(now)
            if deadline.begins == deadline.ends and now >= deadline.ends:
                share = 1.0
            passed = max((mark for mark in (HALF, LATE) if share >= mark), default=0.0)
            if passed > self._told.get(key, 0.0):
                due.append(Alarm(deadline, passed, deadline.ends - now))
            told[key] = max(passed, self._told.get(key, 0.0))
        self._told = told
        return due
