"""Seeds, draws and votes (docs/protocol.md, sections 4.5 to 4.7).

Contract: pure functions ``(market, event, by, now) -> market`` that refuse what Attestations refuses, for the
same reason. A claim that a rewind has overtaken may still get a seed and votes, but it is never accepted;
`void` unlocks everything that is locked for it.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

from assay.protocol import sampling, trees
from assay.protocol.encoding import encode
from assay.protocol.params import MAX_CALLS, MAX_SEATS
from assay.protocol.types import ZERO_DIGEST, Address, ClaimId, Phase, Role
from spec.claim_state import Ballot, ClaimState, Said
from spec.claims import fined, freed
from spec.events import Abstain, RecordSeed, Tally, Vote
from spec.market_state import MarketState, Moment
from spec.refusal import require
from spec.weights import line

TRIES = 4
"""Maximum number of accounts tried for each seat, besides those that are excluded."""
SEED_PATIENCE = 128
"""Number of blocks for which recording a seed requires its block's header."""


def record_seed(market: MarketState, event: RecordSeed, by: Address, now: Moment) -> MarketState:
    """Records the seed and draws the verifiers; names a later block if the hash is no longer available.

    Refused: WrongClaim, WrongPhase, SeedUnavailable, NotStanding, HeaderAwaited, WrongHeader, NoRandao.
    """
    claim = event.claim
    claim_id, state, job = market.in_phase(claim, Phase.COMMITTED)
    terms, status = job.terms, state.status
    require(now.block > status.seed_block, "SeedUnavailable")
    require(market.stands(state, now.time), "NotStanding")
    if event.block_hash == ZERO_DIGEST:
        again = state.with_status(seed_block=now.block + terms.seed_delay)
        return market.with_claim(claim_id, again)
    seed = sampling.claim_seed(_randomness(event, status.seed_block, now), claim_id)
    seeded = state.with_status(phase=Phase.SEEDED, since=now.time, seed=seed)
    return _seated(market, claim_id, seeded, seed, terms.verifiers, now)


def _randomness(event: RecordSeed, seed_block: int, now: Moment) -> bytes:
    """RANDAO's value, or the block's hash if nobody has brought the header for long enough."""
    if event.header is None:
        require(now.block > seed_block + SEED_PATIENCE, "HeaderAwaited")
        return event.block_hash
    require(event.header.hash == event.block_hash, "WrongHeader")
    require(event.header.randao != ZERO_DIGEST, "NoRandao")
    return event.header.randao


def vote(market: MarketState, event: Vote, by: Address, now: Moment) -> MarketState:
    """Casts a vote.

    Refused: WrongClaim, WrongPhase, TooLate, WrongSeed, NotDrawn, AlreadyVoted, WrongTraces.
    """
    state = market.claims.get(event.claim_id)
    require(state is not None, "WrongClaim")
    assert state is not None
    require(state.status.phase == Phase.SEEDED, "WrongPhase", state.status.phase.name)
    terms = market.jobs[state.claim.job_id].terms
    require(not market.passed(state.status.since + terms.vote_time, now), "TooLate")
    require(event.seed == state.status.seed, "WrongSeed")
    ballot = _empty_seat(state, by)
    require(len(event.traces) == (terms.samples if event.valid else 0), "WrongTraces")
    said = Said.VALID if event.valid else Said.INVALID
    traces_root = trees.root(event.traces) if event.valid else ZERO_DIGEST
    voted = replace(ballot, said=said, traces_root=traces_root)
    return market.with_claim(event.claim_id, state.with_ballot(voted))


def abstain(market: MarketState, event: Abstain, by: Address, now: Moment) -> MarketState:
    """Gives a seat up and unlocks its stake. Has a deadline, except for a claim that can no longer be
    accepted.

    Refused: WrongClaim, WrongPhase, TooLate, NotDrawn, AlreadyVoted.
    """
    claim_id, state, job = market.in_phase(event.claim, Phase.SEEDED)
    in_time = not market.passed(state.status.since + job.terms.vote_time, now)
    require(in_time or not market.stands(state, now.time), "TooLate")
    ballot = _empty_seat(state, by)
    market = market.with_funds(freed(market.funds, [ballot], job.terms))
    return market.with_claim(claim_id, state.without([ballot]))


def _empty_seat(state: ClaimState, by: Address) -> Ballot:
    """The verifier's seat, in which it has neither voted nor abstained."""
    ballot = ballot_of(state, by)
    require(ballot.silent, "AlreadyVoted")
    return ballot


def tally(market: MarketState, event: Tally, by: Address, now: Moment) -> MarketState:
    """Fines silent verifiers, fills the empty seats or accepts the claim (rule 4.7).

    Refused: WrongClaim, WrongPhase, NotDue, NotStanding.
    """
    claim_id, state, job = market.in_phase(event.claim, Phase.SEEDED)
    terms, silent = job.terms, state.silent()
    require(not silent or market.passed(state.status.since + terms.vote_time, now), "NotDue")
    require(market.stands(state, now.time), "NotStanding")
    state = state.without(silent)
    market = market.with_funds(fined(market.funds, silent, terms)).with_claim(claim_id, state)
    if (called := _called(market, claim_id, now)) is not None:
        return called
    market = market.with_job(state.claim.job_id, replace(job, accepted_at=now.time))
    return market.with_claim(claim_id, state.with_status(phase=Phase.ACCEPTED, since=now.time))


def _called(market: MarketState, claim_id: ClaimId, now: Moment) -> MarketState | None:
    """The claim with other verifiers in the empty seats; None if no seat is empty or nobody can fill one."""
    state = market.claims[claim_id]
    status, terms = state.status, market.jobs[state.claim.job_id].terms
    if status.shown >= terms.verifiers or status.calls == MAX_CALLS:
        return None
    calls, count = status.calls + 1, min(terms.verifiers - status.shown, MAX_SEATS - len(state.drawn))
    called = state.with_status(calls=calls, since=now.time)
    seed = market.deployment.keccak(encode(status.seed, calls))
    after = _seated(market, claim_id, called, seed, count, now)
    if len(after.claims[claim_id].drawn) > len(state.drawn):
        return after
    return None


def ballot_of(state: ClaimState, verifier: Address) -> Ballot:
    """The verifier's ballot. Raises Refused(NotDrawn)."""
    require(verifier in state.drawn, "NotDrawn")
    return state.ballots[verifier]


def _seated(
    market: MarketState, claim_id: ClaimId, state: ClaimState, seed: bytes, count: int, now: Moment
) -> MarketState:
    """The claim with `count` more verifiers drawn among the class's subscribers, the stake of each locked.

    Skips the claimant, everybody drawn before, and accounts that cannot lock the stake (rule 4.5.2).
    """
    terms = market.jobs[state.claim.job_id].terms
    others = {state.claim.claimant, *state.drawn}
    tries = TRIES * count + len(state.drawn) + 1
    funds, left = market.funds, count
    weights = market.draw_weights(terms.class_id, now)
    for account in islice(line(weights, seed, market.deployment.keccak), tries):
        if left == 0:
            break
        if account in others or funds.room(account, Role.VERIFIER, terms.client) < terms.verifier_stake:
            continue
        funds = funds.lock(account, Role.VERIFIER, terms.verifier_stake, terms.client)
        state = state.with_ballot(Ballot(account))
        left -= 1
    return market.with_funds(funds).with_claim(claim_id, state)
