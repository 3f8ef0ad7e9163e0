"""Explains in one line why a solver takes no shard, or has nothing to do.

Contract: pure, as the decisions are; a reason stays the same until what it names changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from assay.node.idle_reasons import NO_JOB, first_wait, no_stake
from assay.node.obligations import JobParts, Obligations, owed, resting
from assay.node.rounds import moving
from assay.protocol.types import ZERO_ADDRESS, Kind, Wei
from assay.protocol.words import round_amount, show_amount, show_rate
from assay.solver.acceptance import unacceptable, unpaid_outer
from assay.solver.observation import JobObservation, Limits, Observation, Takes, at_risk, holds, with_outer


def why(observation: Observation, job: JobObservation) -> str:
    """Reason why the solver takes no shard of this job now; empty if it would take one."""
    if reason := why_no_shard(observation, job):
        return reason
    if not job.examined:
        return "its files are not fetched and validated yet"
    takable = affordable(observation, job)
    if not takable:
        return _too_cheap(job, observation.limits, _suitable(observation, job))
    if observation.limits.takes == Takes.TASKS:
        return ""
    best = max(job.prices[k] for k in takable)
    return unpaid_outer(job.view.terms, best, job.outer_share, observation.limits.terms)


def why_no_shard(observation: Observation, job: JobObservation) -> str:
    """As `why`, without the job's files; empty if only they can decide."""
    terms, limits = job.view.terms, observation.limits
    if limits.takes == Takes.OUTER:
        return "this solver takes outer claims alone"
    if reason := _no_work(observation, job):
        return reason
    if held_in_all(observation) >= limits.max_shards:
        return f"this solver already holds its {limits.max_shards} shard(s)"
    opened = [k for k, holder in enumerate(job.holders) if holder.solver == ZERO_ADDRESS]
    if not opened:
        return "every shard is taken"
    if not any(limits.suits(terms, k) for k in opened):
        return f"its open shards are {'fast' if limits.slow else 'slow'} ones"
    opened = _suitable(observation, job)
    if not opened:
        return (
            "its open shards were given back, or lost by being too slow; `assay solver release --again"
            f" {job.view.job_id.hex()[:16]}` takes that back"
        )
    owed = sum(_stake_owed(observation, other) for other in observation.open_jobs)
    needed = terms.solver_stake + terms.miss_penalty
    unlocked = observation.unlocked_for(job)
    if unlocked - owed < needed:
        spare = max(unlocked - owed, 0)
        return (
            f"shard and claim lock {show_amount(needed)} of stake, {show_amount(spare)} is to spare;"
            " deposit more solver stake"
        )
    return too_much(observation, at_risk(observation, terms))


def too_much(observation: Observation, then: Wei) -> str:
    """Reason why work is not taken with which `then` would be at risk; empty if it may be."""
    most = observation.limits.max_loss
    if most is None or then <= most:
        return ""
    now, more = show_amount(at_risk(observation)), show_amount(then)
    return f"with it {more} would be at risk, now {now}, and the operator's most is {show_amount(most)}"


def _rests(limits: Limits) -> str:
    """Reason why no new work is taken of any job; empty if there is none."""
    if limits.retire:
        return "this solver is retiring and takes nothing new"
    reason = limits.leave or limits.pause
    return f"{reason}: nothing new is taken" if reason else ""


def _too_cheap(job: JobObservation, limits: Limits, opened: Sequence[int]) -> str:
    """Says that every open shard is below the operator's price now."""
    lightest = opened[-1]  # shards with fewer steps come last
    price, least = job.prices[lightest], job.least_price(limits, lightest)
    rises = f"it rises to {round_amount(job.view.terms.price_cap)}"
    return (
        f"the price {round_amount(price)} is below the operator's floor, {round_amount(least, up=True)} for a"
        f" task at {show_rate(limits.min_price)}; {rises}"
    )


def held_in_all(observation: Observation) -> int:
    """Number of shards of open jobs that this solver holds."""
    return sum(len(holds(observation, job)) for job in observation.open_jobs)


def _suitable(observation: Observation, job: JobObservation) -> list[int]:
    """Open shards of the job that the operator takes."""
    limits, job_id = observation.limits, job.view.job_id
    opened = [k for k, holder in enumerate(job.holders) if holder.solver == ZERO_ADDRESS]
    return [k for k in opened if (job_id, k) not in limits.release and limits.suits(job.view.terms, k)]


def affordable(observation: Observation, job: JobObservation) -> list[int]:
    """Open shards that the operator takes at their price now, of a job that is examined."""
    limits = observation.limits
    return [k for k in _suitable(observation, job) if job.prices[k] >= job.least_price(limits, k)]


def _no_work(observation: Observation, job: JobObservation) -> str:
    """Reason why the solver starts no work in this job; empty if it would."""
    progress = job.view.progress
    if reason := _rests(observation.limits):
        return reason
    if progress.closed or progress.halted or progress.round >= progress.final_round:
        return "the job is over: it begins no further round"
    if job.refusal:
        return f"the job is refused: {job.refusal}"
    if beyond := unacceptable(job.view.terms, observation.limits.terms):
        return f"its terms are not the operator's: {beyond}"
    return ""


def why_no_outer(observation: Observation, job: JobObservation) -> str:
    """Reason why a solver that takes outer claims only makes none in this job; empty if it would.

    Its minimum fee is the operator's minimum price of a task, scaled by operations once the job's files show
    them.
    """
    if reason := _no_work(observation, job):
        return reason
    if reason := too_much(observation, with_outer(observation, job)):
        return reason
    terms = job.view.terms
    fee, least = terms.outer_fee, 0
    if job.examined:
        least = ceil(job.least_price(observation.limits, terms.shards - 1) * job.outer_share)
    if fee >= least:
        return ""
    return (
        f"an outer claim pays {show_amount(fee)}; with {float(job.outer_share):.3g} times a task's operations"
        f" the operator's floor is {show_amount(Wei(least))}"
    )


def idle(observation: Observation) -> str:
    """Reason why there is nothing to do, in one line that stays the same until something changes."""
    if observation.limits.leave:
        return resting(observation.limits.leave, _owed(observation), _waits(observation))
    if not observation.staked:
        return no_stake("solver")
    if not observation.open_jobs:
        return NO_JOB
    if waits := _waits(observation):
        return waits
    job = observation.open_jobs[0]
    if observation.limits.takes == Takes.OUTER:
        reason = why_no_outer(observation, job) or "its round wants tasks, or its outer step is reserved"
        return f"makes no outer claim of job {job.view.job_id.hex()[:16]}: {reason}"
    reason = why(observation, job) or "it waits for its turn"
    return f"takes no shard of job {job.view.job_id.hex()[:16]}: {reason}"


def _owed(observation: Observation) -> Obligations:
    jobs = [JobParts(job.claims, job.games, job.holders, job.demands) for job in observation.jobs]
    return owed(observation.me, jobs, Wei(max(observation.staked - observation.unlocked, 0)))


def _waits(observation: Observation) -> str:
    """Describes what our claims and shards wait for; empty if there are none."""
    mine = [
        (job.view, view)
        for job in observation.open_jobs
        for view in moving(job.claims)
        if view.claim.claimant == observation.me
    ]
    if waits := first_wait(mine, observation.now):
        return waits
    for job in observation.open_jobs:
        if held := holds(observation, job):
            return _held_up(job, held)
    return ""


def _held_up(job: JobObservation, held: Sequence[int]) -> str:
    """Describes what a job in which we hold shards waits for, if none of our claims does."""
    progress, terms = job.view.progress, job.view.terms
    at = f"job {job.view.job_id.hex()[:16]}, round {progress.round}"
    if progress.round - progress.settled_rounds >= terms.max_unsettled:
        return f"{at}: waits for round {progress.settled_rounds} to be settled before it may go on"
    missing = [
        k for k in range(terms.shards) if k not in held and not job.standing(Kind.TASK, progress.round, k)
    ]
    if missing:
        return f"{at}: waits for shard {', '.join(map(str, missing))} of somebody else"
    if job.pending:
        return f"{at}: waits for a claim of ours to be committed"
    return f"{at}: waits for its outer step"


def _stake_owed(observation: Observation, job: JobObservation) -> int:
    """Stake that tasks held but not yet committed will lock."""
    round_ = job.view.progress.round
    owed = [k for k in holds(observation, job) if not job.standing(Kind.TASK, round_, k)]
    return len(owed) * job.view.terms.solver_stake if round_ < job.view.progress.final_round else 0
