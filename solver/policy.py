"""What a solver does next: a pure function from what it sees to a list of actions with reasons.

Contract: `decide` is deterministic and never acts; the same sight gives the same actions, in order of
urgency: clocks that run against us, then what moves claims on, then commits and work, then new shards. A
shard is taken only of a job whose program was examined and found sound. Not guaranteed: that an action
succeeds when it is sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from assay.node.rounds import accepted, closable, closable_since, standing
from assay.node.service import turn
from assay.node.upkeep import CHALLENGEABLE, Play, Poke, Watcher, plays, poke_for
from assay.protocol.demands import DemandView
from assay.protocol.types import (
    ZERO_ADDRESS,
    Address,
    ClaimView,
    GameView,
    Holder,
    JobId,
    JobView,
    Kind,
    Seconds,
    Wei,
)


@dataclass(frozen=True)
class Limits:
    """What the operator allows."""

    min_price: Wei
    max_shards: int
    patience: Seconds
    """How long the solver waits before it does for others what anyone may do."""
    release: frozenset[tuple[JobId, int]] = frozenset()
    """Shards to give back as soon as nothing is owed."""
    retire: bool = False
    """Take nothing new and give everything back."""


@dataclass(frozen=True)
class JobSight:
    """One job as the solver sees it."""

    view: JobView
    examined: bool
    refusal: str
    """Why the job must not be worked on; empty if it is sound or not yet examined."""
    holders: tuple[Holder, ...]
    prices: tuple[Wei, ...]
    claims: tuple[ClaimView, ...]
    games: tuple[GameView, ...]
    trained: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """Segments done of (round, shard), from the input state that the round has now."""
    demands: tuple[DemandView, ...] = ()

    def standing(self, kind: Kind, round_: int, shard: int) -> ClaimView | None:
        """The claim that stands at a place of the job."""
        return standing(self.claims, kind, round_, shard)


@dataclass(frozen=True)
class Sight:
    """Everything that a decision depends on."""

    me: Address
    now: Seconds
    block: int
    unlocked: Wei
    """Solver stake that no claim locks."""
    jobs: tuple[JobSight, ...]
    """Open ones, and closed ones in which something of ours is left."""
    limits: Limits

    @property
    def open_jobs(self) -> list[JobSight]:
        """Those in which there may be work."""
        return [job for job in self.jobs if not job.view.progress.closed]


@dataclass(frozen=True)
class Examine:
    """Fetch the job's files and validate its programs."""

    job_id: JobId
    reason: str


@dataclass(frozen=True)
class TakeShard:
    job_id: JobId
    shard: int
    opened: Seconds
    price: Wei
    reason: str


@dataclass(frozen=True)
class TrainSegment:
    job_id: JobId
    round: int
    shard: int
    segment: int
    reason: str


@dataclass(frozen=True)
class CommitTask:
    job_id: JobId
    round: int
    shard: int
    epoch: int
    since: Seconds
    """When we took the shard."""
    reason: str


@dataclass(frozen=True)
class CommitOuter:
    job_id: JobId
    round: int
    epoch: int
    since: Seconds
    """From when on the round could be closed."""
    reason: str


@dataclass(frozen=True)
class Expire:
    job_id: JobId
    shard: int
    since: Seconds
    reason: str


@dataclass(frozen=True)
class Release:
    job_id: JobId
    shard: int
    since: Seconds
    reason: str


@dataclass(frozen=True)
class Close:
    job_id: JobId
    reason: str


@dataclass(frozen=True)
class Supply:
    """Show the named pieces of a state of ours that somebody demands."""

    job_id: JobId
    demand_id: int
    reason: str


@dataclass(frozen=True)
class Wait:
    """Nothing can be done for this job now, and why."""

    job_id: JobId
    reason: str


Action = (
    Examine
    | TakeShard
    | TrainSegment
    | CommitTask
    | CommitOuter
    | Poke
    | Expire
    | Release
    | Close
    | Play
    | Supply
    | Wait
)


def decide(sight: Sight) -> list[Action]:
    """All actions that are due, most urgent first."""
    actions: list[Action] = []
    for job in sight.jobs:
        actions.extend(plays(sight.me, sight.now, job.view.job_id, job.claims, job.games))
        actions.extend(_supplies(sight, job))
    for job in sight.jobs:
        actions.extend(_pokes(sight, job))
    for job in sight.open_jobs:
        actions.extend(_outer(sight, job))
    for job in sight.open_jobs:
        actions.extend(_tasks(sight, job))
    for job in sight.open_jobs:
        actions.extend(_shards(sight, job))
    return actions


def holds(sight: Sight, job: JobSight) -> list[int]:
    """Shards of the job that this solver holds."""
    return [k for k, holder in enumerate(job.holders) if holder.solver == sight.me]


def round_open(job: JobSight, now: Seconds) -> bool:
    """Whether tasks of the job's present round may still be committed and accepted."""
    progress, terms = job.view.progress, job.view.terms
    if progress.closed or progress.round >= progress.final_round:
        return False
    room = progress.round - progress.settled_rounds < terms.max_unsettled
    return room and not closable(job.view, job.claims, now)


def why(sight: Sight, job: JobSight) -> str:
    """Why the solver takes no shard of this job now; empty if it would take one."""
    terms, progress = job.view.terms, job.view.progress
    if sight.limits.retire:
        return "this solver is retiring and takes nothing new"
    if progress.closed or progress.halted or progress.round >= progress.final_round:
        return "the job is over: it begins no further round"
    if job.refusal:
        return f"the job is refused: {job.refusal}"
    if not job.examined:
        return "its files are not fetched and validated yet"
    opened = [k for k, holder in enumerate(job.holders) if holder.solver == ZERO_ADDRESS]
    opened = [k for k in opened if (job.view.job_id, k) not in sight.limits.release]
    if not opened:
        return "every shard is taken"
    if sum(len(holds(sight, other)) for other in sight.open_jobs) >= sight.limits.max_shards:
        return f"this solver already holds its {sight.limits.max_shards} shard(s)"
    owed = sum(_stake_owed(sight, other) for other in sight.open_jobs)
    if sight.unlocked - owed < terms.solver_stake:
        spare = max(sight.unlocked - owed, 0)
        return f"a claim locks {terms.solver_stake} of stake, {spare} is to spare; deposit more solver stake"
    best = max(job.prices[k] for k in opened)
    if best < sight.limits.min_price:
        return f"the price {best} is below the operator's floor {sight.limits.min_price}; it rises with time"
    return ""


def _stake_owed(sight: Sight, job: JobSight) -> int:
    """Stake that the tasks held but not yet committed will lock."""
    round_ = job.view.progress.round
    owed = [k for k in holds(sight, job) if not job.standing(Kind.TASK, round_, k)]
    return len(owed) * job.view.terms.solver_stake if round_ < job.view.progress.final_round else 0


def _supplies(sight: Sight, job: JobSight) -> Iterator[Action]:
    standing = {view.claim_id: view for view in job.claims if not view.stale or view.left_out}
    for demand in job.demands:
        view = standing.get(demand.claim_id)
        if demand.outcome or view is None or view.claim.claimant != sight.me:
            continue
        live = view.status.phase in CHALLENGEABLE
        if live and sight.now <= demand.deadline:
            left = demand.deadline - sight.now
            reason = f"demand {demand.demand_id}: pieces of our state are asked for, {left} s left"
            yield Supply(job.view.job_id, demand.demand_id, reason)


def _involved(sight: Sight, job: JobSight) -> bool:
    return bool(holds(sight, job)) or any(view.claim.claimant == sight.me for view in job.claims)


def _pokes(sight: Sight, job: JobSight) -> Iterator[Action]:
    if not _involved(sight, job):
        return
    watcher = Watcher(sight.me, sight.now, sight.block, sight.limits.patience)
    for view in job.claims:
        if poke := poke_for(watcher, job.view, job.claims, view):
            yield poke
    progress, terms = job.view.progress, job.view.terms
    if round_open(job, sight.now):
        for shard, holder in enumerate(job.holders):
            if holder.solver in (ZERO_ADDRESS, sight.me) or job.standing(Kind.TASK, progress.round, shard):
                continue
            end = max(progress.round_start, holder.since) + terms.task_time
            if sight.now > end + sight.limits.patience:
                reason = f"shard {shard} missed its deadline and holds the round up"
                yield Expire(job.view.job_id, shard, holder.since, reason)
    if progress.settled_rounds >= progress.final_round and not progress.closed:
        yield Close(job.view.job_id, "every round is settled: refund the client")


def _outer(sight: Sight, job: JobSight) -> Iterator[Action]:
    progress, terms = job.view.progress, job.view.terms
    mine = holds(sight, job)
    if not mine or progress.round >= progress.final_round or job.refusal:
        return
    if not closable(job.view, job.claims, sight.now) or job.standing(Kind.OUTER, progress.round, 0):
        return
    since = closable_since(job.view, job.claims)
    first = progress.round % terms.shards
    place = min((k - first) % terms.shards for k in mine)
    if place and sight.now <= since + terms.outer_time + (place - 1) * sight.limits.patience:
        return
    if not job.examined:
        yield Examine(job.view.job_id, "its round waits for the outer claim")
        return
    if sight.unlocked < terms.solver_stake:
        yield Wait(
            job.view.job_id, f"the outer claim locks {terms.solver_stake}; only {sight.unlocked} is free"
        )
        return
    count = len(accepted(job.view, job.claims))
    reason = f"{count} of {terms.shards} tasks of round {progress.round} are accepted"
    reason += "" if count == terms.shards else ": the stragglers' time is over"
    yield CommitOuter(job.view.job_id, progress.round, progress.epoch, since, reason)


def _tasks(sight: Sight, job: JobSight) -> Iterator[Action]:
    progress, terms, job_id = job.view.progress, job.view.terms, job.view.job_id
    for shard in holds(sight, job):
        since = job.holders[shard].since
        done = job.standing(Kind.TASK, progress.round, shard)
        leaving = sight.limits.retire or (job_id, shard) in sight.limits.release
        over = progress.round >= progress.final_round
        if (leaving and done) or over:
            yield Release(job_id, shard, since, "asked to give it back" if leaving else "the job is over")
            continue
        if done or not round_open(job, sight.now):
            continue
        if job.refusal:
            yield Wait(job_id, f"shard {shard} cannot be trained: {job.refusal}")
            continue
        if not job.examined:
            yield Examine(job_id, "we hold a shard of it")
            continue
        segments = job.trained.get((progress.round, shard), 0)
        if segments < terms.segments:
            reason = f"segment {segments + 1} of {terms.segments}, round {progress.round}, shard {shard}"
            yield TrainSegment(job_id, progress.round, shard, segments, reason)
        elif sight.unlocked < terms.solver_stake:
            yield Wait(
                job_id, f"a claim locks {terms.solver_stake} of stake; only {sight.unlocked} is unlocked"
            )
        else:
            reason = f"all {terms.segments} segments are trained and published"
            yield CommitTask(job_id, progress.round, shard, progress.epoch, since, reason)


def _shards(sight: Sight, job: JobSight) -> Iterator[Action]:
    progress = job.view.progress
    over = progress.halted or progress.round >= progress.final_round
    if over or sight.limits.retire or job.refusal:
        return
    opened = [k for k, holder in enumerate(job.holders) if holder.solver == ZERO_ADDRESS]
    if not opened:
        return
    if not job.examined:
        yield Examine(job.view.job_id, "it has an open shard")
        return
    if why(sight, job):
        return
    keep = [k for k in opened if (job.view.job_id, k) not in sight.limits.release]
    start = turn(sight.me, job.view.job_id, len(keep))
    shard = keep[start]
    if job.prices[shard] < sight.limits.min_price:
        return
    reason = f"shard {shard} is open at {job.prices[shard]} a task"
    yield TakeShard(job.view.job_id, shard, job.holders[shard].since, job.prices[shard], reason)
