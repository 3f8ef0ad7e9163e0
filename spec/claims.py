"""The life of a claim from commit to settlement (docs/protocol.md, sections 4.3 to 4.8).

Contract: pure functions ``(market, event, by, now) -> market`` that refuse what Tasks refuses, for the same
reason. Votes are in ``spec.attestations``, convictions in ``spec.convictions``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from assay.protocol import trees
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
from spec.claim_state import Ballot, ClaimState
from spec.clock import Closing, Job
from spec.events import Commit, Settle
from spec.ledger import escrow, free
from spec.market_state import MarketState, Moment
from spec.refusal import require
from spec.stakes import Funds


def worth(claim: Claim, terms: Terms) -> Wei:
    """Most that a claim can cost the client: its price, and a fee for each seat of its draw."""
    fees = terms.verifiers * terms.verifier_fee if claim.kind == Kind.TASK else 0
    return Wei(claim.price + fees)


def commit(market: MarketState, event: Commit, by: Address, now: Moment) -> MarketState:
    """Commits a task or an outer claim.

    Refused: NoSuchJob, BadSegments, PlaceTaken, NotHolder, WrongInput, NoSuchShard, JobEnded, WrongRound,
    PipelineFull, TooLate, RoundIncomplete, NotDue, OuterReserved, RewoundSince, InsufficientStake, BeyondCap.
    """
    given = event.claim
    job = market.job(given.job_id)
    terms = job.terms
    segments_root = _segments_root(event, terms.segments_of(given.kind))
    place = (given.job_id, given.kind, given.round, given.shard)
    slices = len(list(market.slices(given.job_id, job.round)))
    require(market.current(place, now.time) is None, "PlaceTaken")
    if given.kind == Kind.TASK:
        price = _task_price(market, job, given, by, now)
    else:
        _check_outer(market, job, given, by, now)
        price = terms.outer_fee
    require(given.rewinds == job.rewinds_so_far, "RewoundSince")
    before = market.places.get(place)
    claim = replace(
        given,
        claimant=by,
        segments_root=segments_root,
        price=price,
        committed_at=now.time,
        attempt=0 if before is None else market.claims[before].claim.attempt + 1,
    )
    claim_id = market.claim_id(claim)
    task = claim.kind == Kind.TASK
    status = ClaimStatus(
        phase=Phase.COMMITTED if task else Phase.ACCEPTED,
        seed_block=now.block + terms.seed_delay if task else 0,
        since=now.time,
        calls=0,
        open_games=0,
        shown=0,
        valid=0,
        seed=ZERO_DIGEST,
    )
    market = market.with_funds(market.funds.lock(by, Role.SOLVER, terms.solver_stake, terms.client))
    market = market.with_claim(claim_id, ClaimState(claim, status))
    market = replace(market, places={**market.places, place: claim_id})
    return market if task else market.with_job(given.job_id, _with_slice(job, slices, now))


def _with_slice(job: Job, before: int, now: Moment) -> Job:
    """The job with one more slice; the first fixes its round's tasks, the last closes the round."""
    if before == 0:
        closings = (*job.closings, Closing(job.round, job.rewinds_so_far))
        job = replace(job, closings=closings, accepted_at=now.time)
    if before + 1 < job.terms.slices:
        return job
    return replace(job, round=job.round + 1, round_start=now.time)


def settle(market: MarketState, event: Settle, by: Address, now: Moment) -> MarketState:
    """Pays a claim whose window is over, and its valid votes; fines the invalid ones.

    Refused: WrongClaim, WrongPhase, GamesOpen, NotDue, NotStanding, EarlierUnsettled.
    """
    claim = event.claim
    claim_id, state, job = market.in_phase(claim, Phase.ACCEPTED)
    terms = job.terms
    require(state.status.open_games == 0, "GamesOpen")
    require(now.time > state.window_end(terms), "NotDue")
    require(market.stands(state, now.time), "NotStanding")
    _check_order(market, job, claim)
    funds = market.funds.unlock(claim.claimant, Role.SOLVER, terms.solver_stake, terms.client)
    funds = funds.moved(escrow(claim.job_id), free(claim.claimant), claim.price)
    valid = [ballot for ballot in state.seats() if ballot.valid]
    funds = freed(funds, valid, terms)
    for ballot in valid:
        funds = funds.moved(escrow(claim.job_id), free(ballot.verifier), terms.verifier_fee)
    # The claim stands, so its invalid votes are wrong.
    funds = fined(funds, [ballot for ballot in state.held() if not ballot.valid], terms)
    market = market.with_funds(funds).with_claim(claim_id, state.with_status(phase=Phase.SETTLED))
    if claim.kind == Kind.TASK:
        return market
    slices = market.slices(claim.job_id, claim.round)
    if sum(each.status.phase == Phase.SETTLED for each in slices) < terms.slices:
        return market
    # A full pipeline is free again, and the deadlines of the tasks that it blocked start now.
    round_start = now.time if job.pipeline_full else job.round_start
    done = replace(job, settled_rounds=claim.round + 1, round_start=round_start)
    return market.with_job(claim.job_id, done)


def freed(funds: Funds, ballots: Iterable[Ballot], terms: Terms) -> Funds:
    """The funds with the stakes of these seats unlocked."""
    for ballot in ballots:
        funds = funds.unlock(ballot.verifier, Role.VERIFIER, terms.verifier_stake, terms.client)
    return funds


def fined(funds: Funds, ballots: Sequence[Ballot], terms: Terms) -> Funds:
    """The funds with missPenalty of each of these seats' stakes burnt, and the rest unlocked."""
    funds = freed(funds, ballots, terms)
    for ballot in ballots:
        funds = funds.fined(ballot.verifier, Role.VERIFIER, terms.miss_penalty, terms.client)
    return funds


def _segments_root(event: Commit, segments: int) -> bytes:
    """Root over the states at segment ends, which lead from the claim's input to its output."""
    claim, roots = event.claim, event.roots
    require(len(roots) == segments + 1, "BadSegments")
    require(roots[0] == claim.input_root and roots[-1] == claim.output_root, "BadSegments")
    return trees.root(roots)


def _task_price(market: MarketState, job: Job, claim: Claim, by: Address, now: Moment) -> Wei:
    terms = job.terms
    holder = job.shards[claim.shard].solver if claim.shard < terms.shards else ZERO_ADDRESS
    require(holder == by, "NotHolder")
    require(claim.round > 0 or claim.input_root == terms.genesis_root, "WrongInput")
    require(job.begun, "JobEnded")
    require(claim.round == job.round, "WrongRound")
    require(not job.pipeline_full, "PipelineFull")
    require(not any(market.slices(claim.job_id, job.round)), "TooLate")
    # After taskTime only where a dispute was open or the holder took the shard since then, and the round
    # cannot be closed.
    due = market.deadline(claim.job_id, claim.shard, now.time)
    in_time = now.time <= job.round_start + terms.task_time
    late = market.passed(due, now) or market.closable(claim.job_id, now.time)
    require(in_time or not late, "TooLate")
    return job.shards[claim.shard].price


def _check_outer(market: MarketState, job: Job, claim: Claim, by: Address, now: Moment) -> None:
    require(claim.shard < job.terms.slices, "NoSuchShard")
    require(job.begun, "JobEnded")
    require(claim.round == job.round, "WrongRound")
    terms, accepted = job.terms, market.accepted(claim.job_id)
    require(accepted >= terms.min_shards, "RoundIncomplete", f"{accepted} accepted")
    require(market.closable(claim.job_id, now.time), "NotDue")
    ready = max(job.accepted_at, job.round_start)
    if accepted < terms.shards and not any(market.slices(claim.job_id, job.round)):
        ready = job.waits_until
    in_turn = job.shards[(claim.round + claim.shard) % terms.shards].solver == by
    require(in_turn or now.time > ready + terms.outer_time, "OuterReserved")


def _check_order(market: MarketState, job: Job, claim: Claim) -> None:
    """Checks the order of settlement: tasks of round r, its slices, tasks of r + 1 (rule 4.8)."""
    require(claim.round == job.settled_rounds, "EarlierUnsettled")
    if claim.kind == Kind.OUTER:
        tasks = market.tasks(claim.job_id, claim.round)
        require(all(task.status.phase == Phase.SETTLED for task in tasks), "EarlierUnsettled")
