"""Jobs and their shards: posting, ending, holding (docs/protocol.md, sections 3, 4.2 and 4.3).

Contract: pure functions ``(market, event, by, now) -> market`` that refuse what Jobs and Shards refuse, for
the same reason.
"""

from __future__ import annotations

from dataclasses import replace

from assay.protocol.params import (
    BadConditions,
    BadTerms,
    check_conditions,
    check_shape,
    check_terms,
    shard_price,
    worst_case,
)
from assay.protocol.types import (
    ZERO_ADDRESS,
    Address,
    Business,
    JobId,
    Kind,
    Phase,
    Role,
    Seconds,
    Terms,
    Wei,
)
from spec.clock import Job, Shard
from spec.events import Close, Expire, Halt, Post, Register, Release, TakeShard, TopUp
from spec.ledger import escrow, free
from spec.market_state import MarketState, Moment
from spec.refusal import Refused, require


def post(market: MarketState, event: Post, by: Address, now: Moment) -> MarketState:
    """Posts a job: puts the budget into escrow and opens every shard.

    Refused: BusinessPaused, NotClient, BadTerms, NoSuchClass, BudgetTooSmall, JobExists, BeyondAllowance.
    """
    terms = event.terms
    market.guardian.require_open(Business.JOBS)
    require(by == terms.client, "NotClient")
    try:
        check_shape(terms, market.deployment.bounds)
        require(terms.class_id in market.classes, "NoSuchClass")
        check_terms(terms, market.classes[terms.class_id], market.deployment.bounds)
    except BadTerms as error:
        raise Refused("BadTerms", error.field) from error
    require(event.budget >= worst_case(terms), "BudgetTooSmall")
    job_id = market.job_id(terms)
    require(job_id not in market.jobs, "JobExists")
    shards = (Shard(now.time),) * terms.shards
    job = Job(terms, terms.rounds - 1, now.time, shards)
    return _escrowed(market, by, job_id, event.budget, now).with_job(job_id, job)


def register(market: MarketState, event: Register, by: Address, now: Moment) -> MarketState:
    """Registers a class of conditions. Refused: BadConditions."""
    try:
        check_conditions(event.conditions, market.deployment.bounds)
    except BadConditions as error:
        raise Refused("BadConditions", error.field) from error
    class_id = market.class_id(event.conditions)
    return replace(market, classes={**market.classes, class_id: event.conditions})


def top_up(market: MarketState, event: TopUp, by: Address, now: Moment) -> MarketState:
    """Adds to a job's budget. Refused: NoSuchJob, JobEnded, BeyondAllowance."""
    require(not market.job(event.job_id).closed, "JobEnded")
    return _escrowed(market, by, event.job_id, event.amount, now)


def _escrowed(market: MarketState, by: Address, job_id: JobId, amount: Wei, now: Moment) -> MarketState:
    keys = market.keys.spent(by, amount, now.time)
    return replace(market, keys=keys, funds=market.funds.moved(free(by), escrow(job_id), amount))


def halt(market: MarketState, event: Halt, by: Address, now: Moment) -> MarketState:
    """Ends a job with its present round. Refused: NoSuchJob, NotClient, JobEnded."""
    job = market.job(event.job_id)
    require(by == job.terms.client, "NotClient")
    require(not job.halted and job.round <= job.last_round, "JobEnded")
    return market.with_job(event.job_id, replace(job, halted=True, last_round=job.round))


def close(market: MarketState, event: Close, by: Address, now: Moment) -> MarketState:
    """Closes a job and refunds the rest of its budget. Refused: NoSuchJob, JobEnded, NotFinished.

    The present round of a halted job may be unfinished. The job then ends once nobody can commit to it any
    more and all committed claims are settled.
    """
    job = market.job(event.job_id)
    require(not job.closed, "JobEnded")
    tasks = market.tasks(event.job_id, job.round)
    settled = all(task.status.phase == Phase.SETTLED for task in tasks)
    slices = market.slices(event.job_id, job.round)
    settled = settled and all(each.status.phase == Phase.SETTLED for each in slices)
    require(job.settled_rounds == job.round and settled, "NotFinished")
    if job.round <= job.last_round:
        late = max(market.due_since(event.job_id, now.time), job.last_shard_claim) + job.terms.task_time
        require(job.halted and now.time > late, "NotFinished")
    rest = market.funds.ledger.balance(escrow(event.job_id))
    funds = market.funds.moved(escrow(event.job_id), free(job.terms.client), rest)
    return market.with_funds(funds).with_job(event.job_id, replace(job, closed=True))


def take_shard(market: MarketState, event: TakeShard, by: Address, now: Moment) -> MarketState:
    """Takes an open shard.

    Refused: NoSuchJob, NoSuchShard, ShardTaken, InsufficientStake, PriceBelow, BusinessPaused, JobEnded.
    """
    job = market.job(event.job_id)
    require(event.shard < job.terms.shards, "NoSuchShard")
    shard = job.shards[event.shard]
    require(shard.solver == ZERO_ADDRESS, "ShardTaken")
    needed = job.terms.solver_stake + job.terms.miss_penalty
    require(market.funds.room(by, Role.SOLVER, job.terms.client) >= needed, "InsufficientStake")
    price = shard_price(job.terms, shard.opened_at, now.time)
    require(price >= event.least_price, "PriceBelow")
    market.guardian.require_open(Business.SHARDS)
    require(not job.halted and job.begun, "JobEnded")
    taken = replace(shard, solver=by, price=price, since=now.time)
    changed = replace(job.with_shard(event.shard, taken), last_shard_claim=now.time)
    funds = market.funds.lock(by, Role.SOLVER, job.terms.miss_penalty, job.terms.client)
    return market.with_funds(funds).with_job(event.job_id, changed)


def release(market: MarketState, event: Release, by: Address, now: Moment) -> MarketState:
    """Gives a shard back, by its holder or the holder's owner; costs missPenalty if a task is owed.

    Refused: NoSuchJob, NotHolder.
    """
    job = market.job(event.job_id)
    solver = _solver(job, event.shard)
    require(by in (solver, market.keys.owner_of(solver, now.time)), "NotHolder")
    owed = _owed(market, event.job_id, event.shard, now)
    market = reopened(market, event.job_id, event.shard, now.time)
    return _penalised(market, solver, job.terms) if owed else market


def expire(market: MarketState, event: Expire, by: Address, now: Moment) -> MarketState:
    """Takes a shard from a solver that missed its deadline. Refused: NoSuchJob, NotHolder, NotDue."""
    job = market.job(event.job_id)
    solver = _solver(job, event.shard)
    require(solver != ZERO_ADDRESS, "NotHolder")
    late = market.passed(market.deadline(event.job_id, event.shard, now.time), now)
    require(_owed(market, event.job_id, event.shard, now) and late, "NotDue")
    market = reopened(market, event.job_id, event.shard, now.time)
    return _penalised(market, solver, job.terms)


def reopened(market: MarketState, job_id: JobId, shard: int, now: Seconds) -> MarketState:
    """The market with the shard open again, and the holder's stake for it unlocked."""
    job = market.jobs[job_id]
    solver, terms = job.shards[shard].solver, job.terms
    market = market.with_funds(market.funds.unlock(solver, Role.SOLVER, terms.miss_penalty, terms.client))
    return market.with_job(job_id, market.jobs[job_id].with_shard(shard, Shard(now)))


def _solver(job: Job, shard: int) -> Address:
    return job.shards[shard].solver if shard < job.terms.shards else ZERO_ADDRESS


def _owed(market: MarketState, job_id: JobId, shard: int, now: Moment) -> bool:
    """True if the shard owes the present round a task now."""
    job = market.jobs[job_id]
    running = job.begun and not job.pipeline_full and not market.closable(job_id, now.time)
    waits = market.disputed(job_id) and now.time <= job.grace_end
    missing = market.current((job_id, Kind.TASK, job.round, shard), now.time) is None
    return running and not waits and missing


def _penalised(market: MarketState, solver: Address, terms: Terms) -> MarketState:
    return market.with_funds(market.funds.fined(solver, Role.SOLVER, terms.miss_penalty, terms.client))
