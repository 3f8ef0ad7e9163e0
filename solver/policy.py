"""Decides a solver's next actions: a pure function from an observation to a list of actions with reasons.

Contract: `decide` is deterministic and never acts. Equal observations give equal actions, most urgent first:
own deadlines, calls that move claims on, commits and training, new shards. A shard is only taken of a job
whose programs were examined and found sound. Files are only fetched of a job if nothing else prevents taking
a shard. Not guaranteed: that an action succeeds when it is sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from assay.node.intents import turn
from assay.node.rounds import accepted, closable, closable_since, moving
from assay.node.upkeep import CHALLENGEABLE, Play, Poke, Tick, Wait, Watcher, plays, poke_for, tick_for
from assay.protocol.types import ZERO_ADDRESS, JobId, Kind, Seconds, Wei
from assay.protocol.words import show_amount
from assay.solver.observation import JobObservation, Observation, Takes, due, holds, round_open, with_outer
from assay.solver.reasons import affordable, too_much, why, why_no_outer, why_no_shard

MOST_GUESSED = Fraction(1, 4)
"""Maximum operations of an outer claim over those of a task with which every solver speculates."""


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
class TrainAhead:
    """Train the next round's task while this round's tasks are voted on."""

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
    rewinds: int
    since: Seconds
    """Time at which we took the shard."""
    reason: str


@dataclass(frozen=True)
class CommitOuter:
    job_id: JobId
    round: int
    number: int
    """Number of the slice."""
    rewinds: int
    since: Seconds
    """Time since which the round could be closed."""
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
    """Answer a demand for pieces of an own claim's state."""

    job_id: JobId
    demand_id: int
    reason: str


Action = (
    Examine
    | TakeShard
    | TrainSegment
    | TrainAhead
    | CommitTask
    | CommitOuter
    | Poke
    | Expire
    | Release
    | Close
    | Play
    | Tick
    | Supply
    | Wait
)


def decide(observation: Observation) -> list[Action]:
    """Actions that are due, most urgent first."""
    actions: list[Action] = []
    for job in observation.jobs:
        actions.extend(
            plays(observation.me, observation.now, observation.clock, job.view.job_id, job.claims, job.games)
        )
        actions.extend(_supplies(observation, job))
    for job in observation.jobs:
        actions.extend(_pokes(observation, job))
    for job in observation.open_jobs:
        actions.extend(_outer(observation, job))
    for job in observation.open_jobs:
        actions.extend(_tasks(observation, job))
    for job in observation.open_jobs:
        actions.extend(_shards(observation, job))
    for job in observation.jobs:
        actions.extend(_left_behind(observation, job))
    for job in observation.open_jobs:
        actions.extend(_ahead(observation, job))
    return actions


def _supplies(observation: Observation, job: JobObservation) -> Iterator[Action]:
    live_claims = {view.claim_id: view for view in moving(job.claims)}
    for demand in job.demands:
        view = live_claims.get(demand.claim_id)
        if demand.outcome or view is None or view.claim.claimant != observation.me:
            continue
        live = view.status.phase in CHALLENGEABLE
        if live and not observation.clock.passed(demand.deadline):
            left = demand.deadline - observation.now
            reason = f"demand {demand.demand_id}: pieces of our state are asked for, {left} s left"
            yield Supply(job.view.job_id, demand.demand_id, reason)


def _involved(observation: Observation, job: JobObservation) -> bool:
    return bool(holds(observation, job)) or any(view.claim.claimant == observation.me for view in job.claims)


def _pokes(observation: Observation, job: JobObservation) -> Iterator[Action]:
    if not _involved(observation, job):
        return
    watcher = Watcher(observation.me, observation.now, observation.clock, observation.limits.patience)
    for view in moving(job.claims):
        if poke := poke_for(watcher, job.view, job.claims, view):
            yield poke
    progress = job.view.progress
    if round_open(job, observation.now):
        for shard, holder in enumerate(job.holders):
            if holder.solver == ZERO_ADDRESS or job.claimed(Kind.TASK, progress.round, shard):
                continue
            patience = 0 if holder.solver == observation.me else observation.limits.patience
            end = due(job, shard)
            if observation.now > end + patience:
                reason = f"shard {shard} missed its deadline and holds the round up"
                if observation.clock.passed(end):
                    yield Expire(job.view.job_id, shard, holder.since, reason)
                elif holder.solver != observation.me:  # our own task may still be committed
                    tick = tick_for(observation.clock, observation.now, job.view.job_id, end, reason)
                    yield from [] if tick is None else [tick]
    if progress.settled_rounds >= progress.final_round and not progress.closed:
        yield Close(job.view.job_id, "every round is settled: refund the client")


def _outer(observation: Observation, job: JobObservation) -> Iterator[Action]:
    """Outer claims reserved to this solver's shards, and after `outer_time` unclaimed ones.

    The order is that of the shards' turns; a solver that takes outer claims only goes first. While it takes
    no new work, only reserved ones count.
    """
    progress, terms, limits = job.view.progress, job.view.terms, observation.limits
    mine = holds(observation, job)
    alone = not mine and limits.takes == Takes.OUTER and not why_no_outer(observation, job)
    if limits.takes == Takes.TASKS or not (mine or alone):
        return
    if progress.round >= progress.final_round or job.refusal:
        return
    if alone and not job.examined:
        if observation.unlocked_for(job) >= terms.solver_stake:
            yield Examine(job.view.job_id, "its outer claims may be made")
        return
    if not closable(job.view, job.claims, observation.now):
        return
    if any(place[:2] == (Kind.OUTER, progress.round) for place in job.pending):
        return  # one after the other: whose turn the next is follows from when the first came
    since = closable_since(job.view, job.claims)
    for number in range(terms.slices):
        if job.claimed(Kind.OUTER, progress.round, number):
            continue
        first = (progress.round + number) % terms.shards
        place = min(((k - first) % terms.shards for k in mine), default=1)
        late = since + terms.outer_time + (place - 1) * limits.patience
        spare = observation.now > late and not limits.resting
        if place == 0 or (spare and not too_much(observation, with_outer(observation, job))):
            yield _commit_outer(observation, job, number, since)
            return


def _commit_outer(observation: Observation, job: JobObservation, number: int, since: Seconds) -> Action:
    """The next action for a slice of the outer step that is ours to claim."""
    progress, terms = job.view.progress, job.view.terms
    if not job.examined:
        return Examine(job.view.job_id, "its round waits for the outer claim")
    if (unlocked := observation.unlocked_for(job)) < terms.solver_stake:
        return Wait(
            job.view.job_id,
            f"the outer claim locks {show_amount(terms.solver_stake)}; only {show_amount(unlocked)} is free",
        )
    count = len(accepted(job.view, job.claims))
    reason = f"{count} of {terms.shards} tasks of round {progress.round} are accepted"
    reason += "" if count == terms.shards else ": the stragglers' time is over"
    reason += f"; slice {number} of {terms.slices}" if terms.slices > 1 else ""
    return CommitOuter(job.view.job_id, progress.round, number, progress.rewinds, since, reason)


def _tasks(observation: Observation, job: JobObservation) -> Iterator[Action]:
    progress, terms, job_id = job.view.progress, job.view.terms, job.view.job_id
    for shard in holds(observation, job):
        since = job.holders[shard].since
        done = job.standing(Kind.TASK, progress.round, shard)
        leaving = observation.limits.leaving or (job_id, shard) in observation.limits.release
        over = progress.round >= progress.final_round
        if (leaving and done) or over:
            yield Release(job_id, shard, since, "asked to give it back" if leaving else "the job is over")
            continue
        if job.claimed(Kind.TASK, progress.round, shard) or not round_open(job, observation.now):
            continue
        if observation.clock.passed(due(job, shard)):
            continue  # it is too late for a claim: `_pokes` ends it
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
        elif (unlocked := observation.unlocked_for(job)) < terms.solver_stake:
            yield Wait(
                job_id,
                f"a claim locks {show_amount(terms.solver_stake)} of stake;"
                f" only {show_amount(unlocked)} is unlocked",
            )
        else:
            reason = f"all {terms.segments} segments are trained and published"
            yield CommitTask(job_id, progress.round, shard, progress.rewinds, since, reason)


def _ahead(observation: Observation, job: JobObservation) -> Iterator[Action]:
    """Speculative training of the next round, once every task of this one is committed.

    Its input follows if they are all accepted. It is skipped if the outer step, which may be another's to be
    paid for, is much work; if any of the job's work is disputed or an outer claim is ours; if the round is
    closed without some tasks; and while no new work is taken. It goes one round ahead at most, and not beyond
    what may be unsettled.
    """
    progress, terms, job_id = job.view.progress, job.view.terms, job.view.job_id
    following = progress.round + 1
    if following >= progress.final_round or following - progress.settled_rounds >= terms.max_unsettled:
        return
    if job.refusal or not job.examined or job.outer_share > MOST_GUESSED or observation.limits.resting:
        return
    if not all(job.claimed(Kind.TASK, progress.round, shard) for shard in range(terms.shards)):
        return
    if any(not view.decided for view in job.games) or any(not demand.outcome for demand in job.demands):
        return
    stragglers = len(accepted(job.view, job.claims)) < terms.shards
    if any(_outer(observation, job)) or (stragglers and closable(job.view, job.claims, observation.now)):
        return
    for shard in holds(observation, job):
        leaving = (job_id, shard) in observation.limits.release
        segments = job.trained.get((following, shard), 0)
        if segments < terms.segments and not leaving:
            place = f"segment {segments + 1} of {terms.segments}, round {following}, shard {shard}"
            reason = f"{place}, while round {progress.round} is voted on"
            yield TrainAhead(job_id, following, shard, segments, reason)


def _left_behind(observation: Observation, job: JobObservation) -> Iterator[Action]:
    """Releases shards still held in a closed job: each has its penalty locked."""
    if job.view.progress.closed:
        for shard in holds(observation, job):
            since = job.holders[shard].since
            yield Release(job.view.job_id, shard, since, "the job is closed: free what is locked for it")


def _shards(observation: Observation, job: JobObservation) -> Iterator[Action]:
    if why_no_shard(observation, job):
        return
    if not job.examined:
        yield Examine(job.view.job_id, "it has an open shard")
        return
    if why(observation, job):
        return
    takable = affordable(observation, job)
    shard = takable[turn(observation.me, job.view.job_id, len(takable))]
    if holds(observation, job) and observation.now < job.holders[shard].since + observation.limits.patience:
        return  # others, who hold none of it, come first
    reason = f"shard {shard} is open at {show_amount(job.prices[shard])} a task"
    yield TakeShard(job.view.job_id, shard, job.holders[shard].since, job.prices[shard], reason)
