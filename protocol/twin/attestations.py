"""Seeds, draws and votes (docs/protocol.md, sections 4.5 to 4.7).

Contract: pure functions ``(market, event, by, now) -> market`` that refuse what Attestations refuses, for the
same reason. A claim that a rewind has overtaken may still be seeded and voted on, but never accepted; `void`
gives everything locked for it back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from assay.protocol import sampling, trees
from assay.protocol.encoding import encode
from assay.protocol.params import ABSTAIN, MAX_CALLS, MAX_SEATS
from assay.protocol.refusal import require
from assay.protocol.twin.events import CommitVote, RecordSeed, RevealVote, Tally
from assay.protocol.twin.market_state import Ballot, BallotState, ClaimState, MarketState, Moment
from assay.protocol.twin.stakes import Funds
from assay.protocol.twin.weights import line
from assay.protocol.types import ZERO_DIGEST, Address, ClaimId, Phase, Role, Terms

TRIES = 4
"""Accounts looked at for each seat, beside those that may not have it."""
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
    seeded = state.with_status(phase=Phase.SEEDED, since=now.time, draws=draw, seed=seed)
    return _seated(market, claim_id, seeded, seed, terms.verifiers, now)


def _randomness(event: RecordSeed, seed_block: int, now: Moment) -> bytes:
    """RANDAO's value, or the block's hash where nobody has brought a header for long enough."""
    if event.header is None:
        require(now.block > seed_block + SEED_PATIENCE, "HeaderAwaited")
        return event.block_hash
    require(event.header.hash == event.block_hash, "WrongHeader")
    require(event.header.randao != ZERO_DIGEST, "NoRandao")
    return event.header.randao


def commit_vote(market: MarketState, event: CommitVote, by: Address, now: Moment) -> MarketState:
    """Commit to a vote, or abstain. Refused: WrongClaim, WrongPhase, TooLate, WrongReveal, NotDrawn,
    AlreadyVoted."""
    claim_id, state, job = market.in_phase(event.claim, Phase.SEEDED)
    require(now.time <= state.status.since + job.terms.vote_time, "TooLate")
    require(event.commitment != ZERO_DIGEST, "WrongReveal", "a commitment is never zero")
    ballot = ballot_of(state, by)
    require(ballot.state == BallotState.DRAWN and not ballot.gone, "AlreadyVoted")
    if event.commitment == ABSTAIN:
        stake, client = job.terms.verifier_stake, job.terms.client
        market = market.with_funds(market.funds.unlock(by, Role.VERIFIER, stake, client))
        return market.with_claim(claim_id, state.with_ballot(replace(ballot, gone=True)))
    sealed = replace(ballot, state=BallotState.COMMITTED, word=event.commitment)
    return market.with_claim(claim_id, state.with_ballot(sealed))


def reveal_vote(market: MarketState, event: RevealVote, by: Address, now: Moment) -> MarketState:
    """Refused: WrongClaim, WrongPhase, NotDue, TooLate, NotDrawn, AlreadyVoted, WrongReveal."""
    claim_id, state, job = market.in_phase(event.claim, Phase.SEEDED)
    status, terms = state.status, job.terms
    voting = status.since + terms.vote_time
    early = any(ballot.awaited and ballot.state == BallotState.DRAWN for ballot in state.seats())
    require(now.time > voting or not early, "NotDue")
    require(now.time <= voting + terms.reveal_time, "TooLate")
    ballot = ballot_of(state, by)
    require(ballot.state != BallotState.DRAWN, "WrongReveal", "nothing was committed")
    require(ballot.state == BallotState.COMMITTED and not ballot.gone, "AlreadyVoted")
    require(not event.valid or len(event.traces) == terms.samples, "WrongReveal", "a leaf for each sample")
    traces_root = trees.root(event.traces) if event.traces else ZERO_DIGEST
    opened = market.vote_commitment(claim_id, by, event.valid, traces_root, event.salt)
    require(opened == ballot.word, "WrongReveal")
    kind = BallotState.VALID if event.valid else BallotState.INVALID
    return market.with_claim(claim_id, state.with_ballot(replace(ballot, state=kind, word=traces_root)))


def tally(market: MarketState, event: Tally, by: Address, now: Moment) -> MarketState:
    """Fine the silent, call others to the empty seats, or accept (rule 4.7).

    Refused: WrongClaim, WrongPhase, NotDue, NotStanding, TooLate.
    """
    claim_id, state, job = market.in_phase(event.claim, Phase.SEEDED)
    status, terms = state.status, job.terms
    over = now.time > status.since + terms.vote_time + terms.reveal_time
    silent = [ballot for ballot in state.seats() if ballot.awaited]
    require(over or not silent, "NotDue")
    require(market.stands(state), "NotStanding")
    funds, state = _fined(market.funds, state, silent, terms)
    market = market.with_funds(funds).with_claim(claim_id, state)
    if (called := _called(market, claim_id, now)) is not None:
        return called
    if not status.open_games:
        unfounded = [each for each in state.seats() if each.shown and not each.valid]
        funds, state = _fined(market.funds, state, unfounded, terms)
        market = market.with_funds(funds)
    require(not market.closable(state.claim.job_id, now.time), "TooLate")
    market = market.with_job(state.claim.job_id, replace(job, accepted_at=now.time))
    return market.with_claim(claim_id, state.with_status(phase=Phase.ACCEPTED, since=now.time))


def _called(market: MarketState, claim_id: ClaimId, now: Moment) -> MarketState | None:
    """With others called to the empty seats; None if there are none, or nobody may be or can be called."""
    state = market.claims[claim_id]
    status, terms = state.status, market.jobs[state.claim.job_id].terms
    if status.revealed >= terms.verifiers or status.calls == MAX_CALLS:
        return None
    calls, count = status.calls + 1, min(terms.verifiers - status.revealed, MAX_SEATS - len(state.drawn))
    called = state.with_status(calls=calls, since=now.time)
    seed = market.deployment.keccak(encode(status.seed, calls))
    after = _seated(market, claim_id, called, seed, count, now)
    if len(after.claims[claim_id].drawn) > len(state.drawn):
        return after
    return None


def _fined(
    funds: Funds, state: ClaimState, ballots: Sequence[Ballot], terms: Terms
) -> tuple[Funds, ClaimState]:
    """missPenalty of each of these seats' stakes is burnt, the rest free."""
    for ballot in ballots:
        account, client = ballot.verifier, terms.client
        funds = funds.unlock(account, Role.VERIFIER, terms.verifier_stake, client)
        funds = funds.fined(account, Role.VERIFIER, terms.miss_penalty, client)
        state = state.with_ballot(replace(ballot, gone=True))
    return funds, state


def ballot_of(state: ClaimState, verifier: Address) -> Ballot:
    """The verifier's ballot. Raises Refused(NotDrawn)."""
    require(verifier in state.drawn, "NotDrawn")
    return state.ballots[verifier]


def _seated(
    market: MarketState, claim_id: ClaimId, state: ClaimState, seed: bytes, count: int, now: Moment
) -> MarketState:
    """With `count` more verifiers drawn among the class's subscribers, the stake of each locked; who cannot
    lock it, the claimant and who was drawn before are passed over (rule 4.5.2)."""
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
        state = state.with_ballot(Ballot(account, BallotState.DRAWN, ZERO_DIGEST))
        left -= 1
    return market.with_funds(funds).with_claim(claim_id, state)
