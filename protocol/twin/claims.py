"""The life of a claim from commit to settlement (docs/protocol.md, sections 4.3 to 4.8).

Contract: pure functions ``(world, event, by, now) -> world`` that refuse what Tasks refuses, for the same
reason. Votes are in ``protocol.twin.attestations``, convictions in ``protocol.twin.convictions``.
"""

from __future__ import annotations

from dataclasses import replace

from assay.protocol import trees
from assay.protocol.refusal import require
from assay.protocol.twin.clock import Closing, Job
from assay.protocol.twin.events import Commit, Settle
from assay.protocol.twin.ledger import escrow, free
from assay.protocol.twin.market_state import BallotState, ClaimState, Moment, World
from assay.protocol.twin.stakes import Funds
from assay.protocol.types import (
    ZERO_ADDRESS,
    ZERO_DIGEST,
    Address,
    Claim,
    ClaimStatus,
    Kind,
    Phase,
    Role,
    Terms,
    Wei,
)


def segments_of(claim: Claim, terms: Terms) -> int:
    """Segments of a claim; its segments tree has one leaf more."""
    return terms.segments if claim.kind == Kind.TASK else 1


def commit(world: World, event: Commit, by: Address, now: Moment) -> World:
    """Commit a task or an outer claim.

    Refused: NoSuchJob, BadSegments, PlaceTaken, NotHolder, WrongInput, NoSuchShard, JobEnded, WrongRound,
    PipelineFull, TooLate, RoundIncomplete, NotDue, OuterReserved, InsufficientStake.
    """
    given = event.claim
    job = world.job(given.job_id)
    terms = job.terms
    segments_root = _segments_root(event, segments_of(given, terms))
    place = (given.job_id, given.kind, given.round, given.shard)
    require(world.current(*place) is None, "PlaceTaken")
    if given.kind == Kind.TASK:
        price = _task_price(job, given, by, now)
    else:
        _check_outer(world, job, given, by, now)
        price = terms.outer_fee
    before = world.places.get(place)
    claim = replace(
        given,
        claimant=by,
        segments_root=segments_root,
        price=price,
        committed_at=now.time,
        epoch=job.epoch,
        attempt=0 if before is None else world.claims[before].claim.attempt + 1,
    )
    claim_id = world.claim_id(claim)
    task = claim.kind == Kind.TASK
    status = ClaimStatus(
        phase=Phase.COMMITTED if task else Phase.ACCEPTED,
        seed_block=now.block + terms.seed_delay if task else 0,
        since=now.time,
        draws=0,
        open_games=0,
        revealed=0,
        valid=0,
        seed=ZERO_DIGEST,
    )
    world = world.with_funds(world.funds.lock(by, Role.SOLVER, terms.solver_stake))
    world = world.with_claim(claim_id, ClaimState(claim, status))
    world = replace(world, places={**world.places, place: claim_id})
    if task:
        return world
    closings = (*job.closings, Closing(job.round, job.epoch))
    begun = replace(job, round=job.round + 1, round_start=now.time, closings=closings)
    return world.with_job(given.job_id, begun)


def settle(world: World, event: Settle, by: Address, now: Moment) -> World:
    """Pay a claim whose window is over.

    Refused: WrongClaim, WrongPhase, GamesOpen, NotDue, NotStanding, EarlierUnsettled.
    """
    claim = event.claim
    claim_id, state, job = world.in_phase(claim, Phase.ACCEPTED)
    terms = job.terms
    require(state.status.open_games == 0, "GamesOpen")
    require(now.time > state.status.since + terms.challenge_window, "NotDue")
    require(world.stands(state), "NotStanding")
    _check_order(world, job, claim)
    funds = world.funds.unlock(claim.claimant, Role.SOLVER, terms.solver_stake)
    funds = unlock_votes(funds, state, terms)
    funds = funds.moved(escrow(claim.job_id), free(claim.claimant), claim.price)
    for ballot in state.present():
        if ballot.state == BallotState.VALID:
            funds = funds.moved(escrow(claim.job_id), free(ballot.verifier), terms.verifier_fee)
    world = world.with_funds(funds).with_claim(claim_id, state.with_status(phase=Phase.SETTLED))
    if claim.kind == Kind.TASK:
        return world
    # A pipeline that was full starts again now, and with it the clock of the tasks that it held up.
    round_start = now.time if job.pipeline_full else job.round_start
    done = replace(job, settled_rounds=claim.round + 1, round_start=round_start)
    return world.with_job(claim.job_id, done)


def unlock_votes(funds: Funds, state: ClaimState, terms: Terms) -> Funds:
    """Free the stakes behind the votes of the present draw."""
    for ballot in state.present():
        if ballot.state.locks:
            funds = funds.unlock(ballot.verifier, Role.VERIFIER, terms.verifier_stake)
    return funds


def _segments_root(event: Commit, segments: int) -> bytes:
    """The root over the states at segment ends, which lead from the claim's input to its output."""
    claim, roots = event.claim, event.roots
    require(len(roots) == segments + 1, "BadSegments")
    require(roots[0] == claim.input_root and roots[-1] == claim.output_root, "BadSegments")
    return trees.root(roots)


def _task_price(job: Job, claim: Claim, by: Address, now: Moment) -> Wei:
    terms = job.terms
    holder = job.shards[claim.shard].solver if claim.shard < terms.shards else ZERO_ADDRESS
    require(holder == by, "NotHolder")
    require(claim.round > 0 or claim.input_root == terms.genesis_root, "WrongInput")
    require(job.begun, "JobEnded")
    require(claim.round == job.round, "WrongRound")
    require(not job.pipeline_full, "PipelineFull")
    require(now.time <= job.deadline(claim.shard), "TooLate")
    return job.shards[claim.shard].price


def _check_outer(world: World, job: Job, claim: Claim, by: Address, now: Moment) -> None:
    require(claim.shard == 0, "NoSuchShard")
    require(job.begun, "JobEnded")
    require(claim.round == job.round, "WrongRound")
    terms, accepted = job.terms, world.accepted(claim.job_id)
    require(accepted >= terms.min_shards, "RoundIncomplete", f"{accepted} accepted")
    require(world.closable(claim.job_id, now.time), "NotDue")
    ready = max(job.accepted_at, job.round_start)
    if accepted < terms.shards:
        ready = max(ready, job.stragglers_end)
    in_turn = job.shards[claim.round % terms.shards].solver == by
    require(in_turn or now.time > ready + terms.outer_time, "OuterReserved")


def _check_order(world: World, job: Job, claim: Claim) -> None:
    """Tasks of r, outer of r, tasks of r + 1, and so on (rule 4.8)."""
    require(claim.round == job.settled_rounds, "EarlierUnsettled")
    if claim.kind == Kind.OUTER:
        tasks = world.tasks(claim.job_id, claim.round)
        require(all(task.status.phase == Phase.SETTLED for task in tasks), "EarlierUnsettled")
