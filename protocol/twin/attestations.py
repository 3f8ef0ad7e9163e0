"""Seeds, draws and votes (docs/protocol.md, sections 4.5 to 4.7).

Contract: pure functions ``(market, event, by, now) -> market`` that refuse what Attestations refuses, for the
same reason. A claim that a rewind has overtaken may still be seeded and voted on, but never accepted; `void`
gives everything locked for it back.
"""

from __future__ import annotations

from dataclasses import replace

from assay.protocol import sampling, trees
from assay.protocol.refusal import require
from assay.protocol.twin.events import CommitVote, RecordSeed, RevealVote, Tally
from assay.protocol.twin.market_state import Ballot, BallotState, ClaimState, MarketState, Moment
from assay.protocol.twin.stakes import Funds
from assay.protocol.twin.weights import draw
from assay.protocol.types import ZERO_DIGEST, Address, Claim, Phase, Role, Seconds, Terms

SEED_PATIENCE = 128
"""Blocks for which a seed has to come with its block's header."""


def record_seed(market: MarketState, event: RecordSeed, by: Address, now: Moment) -> MarketState:
    """Record the seed and draw the verifiers, or wait for another block if the hash is gone.

    Refused: WrongClaim, WrongPhase, SeedUnavailable, HeaderAwaited, WrongHeader, NoRandao.
    """
    claim = event.claim
    claim_id, state, job = market.in_phase(claim, Phase.COMMITTED)
    terms, status = job.terms, state.status
    require(now.block > status.seed_block, "SeedUnavailable")
    draw = status.draws + 1
    if event.block_hash == ZERO_DIGEST:
        again = state.with_status(draws=draw, seed_block=now.block + terms.seed_delay)
        return market.with_claim(claim_id, again)
    seed = sampling.claim_seed(_randomness(event, status.seed_block, now), claim_id)
    drawn = _draw_others(market, seed, claim, terms, now)
    seeded = state.with_status(phase=Phase.SEEDED, since=now.time, draws=draw, seed=seed)
    for verifier in drawn:
        seeded = seeded.with_ballot(draw, Ballot(verifier, BallotState.DRAWN, ZERO_DIGEST, 0))
    return market.with_claim(claim_id, replace(seeded, drawn=tuple(drawn)))


def _randomness(event: RecordSeed, seed_block: int, now: Moment) -> bytes:
    """RANDAO's value, or the block's hash where nobody has brought a header for long enough."""
    if event.header is None:
        require(now.block > seed_block + SEED_PATIENCE, "HeaderAwaited")
        return event.block_hash
    require(event.header.hash == event.block_hash, "WrongHeader")
    require(event.header.randao != ZERO_DIGEST, "NoRandao")
    return event.header.randao


def commit_vote(market: MarketState, event: CommitVote, by: Address, now: Moment) -> MarketState:
    """Refused: WrongClaim, WrongPhase, TooLate, WrongReveal, NotDrawn, AlreadyVoted, InsufficientStake."""
    claim_id, state, job = market.in_phase(event.claim, Phase.SEEDED)
    require(now.time <= state.status.since + job.terms.vote_time, "TooLate")
    require(event.commitment != ZERO_DIGEST, "WrongReveal", "a commitment is never zero")
    ballot = ballot_of(state, by)
    require(ballot.state == BallotState.DRAWN, "AlreadyVoted")
    sealed = replace(ballot, state=BallotState.COMMITTED, word=event.commitment)
    market = market.with_funds(market.funds.lock(by, Role.VERIFIER, job.terms.verifier_stake))
    return market.with_claim(claim_id, state.with_ballot(state.status.draws, sealed))


def reveal_vote(market: MarketState, event: RevealVote, by: Address, now: Moment) -> MarketState:
    """Refused: WrongClaim, WrongPhase, NotDue, TooLate, NotDrawn, AlreadyVoted, WrongReveal."""
    claim_id, state, job = market.in_phase(event.claim, Phase.SEEDED)
    status, terms = state.status, job.terms
    voting = status.since + terms.vote_time
    early = any(ballot.state == BallotState.DRAWN for ballot in state.present())
    require(now.time > voting or not early, "NotDue")
    require(now.time <= voting + terms.reveal_time, "TooLate")
    ballot = ballot_of(state, by)
    require(ballot.state != BallotState.DRAWN, "WrongReveal", "nothing was committed")
    require(ballot.state == BallotState.COMMITTED, "AlreadyVoted")
    require(not event.valid or len(event.traces) == terms.samples, "WrongReveal", "a leaf for each sample")
    traces_root = trees.root(event.traces) if event.traces else ZERO_DIGEST
    opened = market.vote_commitment(claim_id, by, event.valid, traces_root, event.salt)
    require(opened == ballot.word, "WrongReveal")
    kind = BallotState.VALID if event.valid else BallotState.INVALID
    state = state.with_ballot(status.draws, replace(ballot, state=kind, word=traces_root))
    counted = state.with_status(revealed=status.revealed + 1, valid=status.valid + int(event.valid))
    return market.with_claim(claim_id, counted)


def tally(market: MarketState, event: Tally, by: Address, now: Moment) -> MarketState:
    """Accept, or end the draw that did not. Refused: WrongClaim, WrongPhase, NotDue, NotStanding, TooLate."""
    claim_id, state, job = market.in_phase(event.claim, Phase.SEEDED)
    status, terms = state.status, job.terms
    if status.valid >= terms.quorum:
        require(market.stands(state), "NotStanding")
        require(not market.closable(state.claim.job_id, now.time), "TooLate")
        accepted = state.with_status(phase=Phase.ACCEPTED, since=now.time)
        market = market.with_job(state.claim.job_id, replace(job, accepted_at=now.time))
        return market.with_claim(claim_id, accepted)
    over = now.time > status.since + terms.vote_time + terms.reveal_time
    require(over or status.revealed >= len(state.drawn), "NotDue")
    require(market.stands(state), "NotStanding")
    funds, dismissed = _dismiss(market.funds, state, terms)
    return market.with_funds(funds).with_claim(claim_id, _await_seed(dismissed, terms, now))


def _await_seed(state: ClaimState, terms: Terms, now: Moment) -> ClaimState:
    """Back to COMMITTED, with a new seed block and nobody drawn."""
    waiting = state.with_status(
        phase=Phase.COMMITTED,
        since=Seconds(now.time),
        seed_block=now.block + terms.seed_delay,
        revealed=0,
        valid=0,
    )
    return replace(waiting, drawn=())


def _dismiss(funds: Funds, state: ClaimState, terms: Terms) -> tuple[Funds, ClaimState]:
    """Who did not reveal pays, and who called the claim invalid while no game on it is open; the others are
    free, but for votes with an open game."""
    after, unbacked = state, state.status.open_games == 0
    for ballot in state.present():
        if ballot.state == BallotState.DONE:
            continue
        if ballot.games:
            after = after.with_ballot(state.status.draws, replace(ballot, state=BallotState.HELD))
            continue
        if ballot.state.locks:
            funds = funds.unlock(ballot.verifier, Role.VERIFIER, terms.verifier_stake)
        missed = ballot.state in (BallotState.DRAWN, BallotState.COMMITTED)
        if missed or (unbacked and ballot.state == BallotState.INVALID):
            funds = funds.fined(ballot.verifier, Role.VERIFIER, terms.miss_penalty)
    return funds, after


def ballot_of(state: ClaimState, verifier: Address) -> Ballot:
    """The verifier's ballot in the present draw. Raises Refused(NotDrawn)."""
    require(verifier in state.drawn, "NotDrawn")
    return state.ballots[state.status.draws, verifier]


def _draw_others(market: MarketState, seed: bytes, claim: Claim, terms: Terms, now: Moment) -> list[Address]:
    """A claimant that the seed draws is passed over for the next in line."""
    drawn = draw(market.draw_weights(now), seed, terms.verifiers + 1, market.deployment.keccak)
    return [verifier for verifier in drawn if verifier != claim.claimant][: terms.verifiers]
