"""What falls and what falls with it: convictions, rewinds, compensation (docs/protocol.md, section 5).

Contract: pure; every unit that a conviction takes is burnt, paid to the challenger, or set aside for those
whose work the rewind wastes, and what is set aside is paid out or burnt by the last `void`.
"""

from __future__ import annotations

from dataclasses import replace

from assay.protocol.refusal import require
from assay.protocol.sampling import sample_segments
from assay.protocol.twin.claims import unlock_votes
from assay.protocol.twin.clock import Rewind
from assay.protocol.twin.events import Void
from assay.protocol.twin.jobs import reopened
from assay.protocol.twin.ledger import compensation, free
from assay.protocol.twin.market_state import Ballot, ClaimState, MarketState, Moment
from assay.protocol.twin.settlement import (
    CompensationPot,
    Conviction,
    convicted_vote,
    conviction,
    forced_conviction,
    position,
    shared,
)
from assay.protocol.twin.stakes import SEIZED, Funds
from assay.protocol.types import (
    INPUT_SEGMENT,
    WITHHELD_SEGMENT,
    Address,
    Claim,
    ClaimId,
    Kind,
    Phase,
    Role,
    Seconds,
    Terms,
    Wei,
)


def convicted(
    market: MarketState, claim_id: ClaimId, challenger: Address, segment: int, now: Moment
) -> MarketState:
    """The claim falls for what is wrong in `segment`, or INPUT_SEGMENT (rules 5.1, 5.2 and 5.4).

    The winner's own game is no longer in `market.games`.
    """
    state = market.claims[claim_id]
    claim, job = state.claim, market.jobs[state.claim.job_id]
    left_out = market.left_out(state)
    wasted = Wei(0) if left_out else _wasted(market, claim)
    forcer = market.forcers.get(claim_id)
    if claim.kind == Kind.TASK and job.shards[claim.shard].solver == claim.claimant:
        market = reopened(market, claim.job_id, claim.shard, now.time)
    funds, own, votes = _slash_all(market.funds, state, segment, job.terms, forced=forcer is not None)
    verdict = conviction([own, *votes], wasted) if forcer is None else forced_conviction(own, votes, wasted)
    others = sum(c.game.early and c.game.claim_id == claim_id for c in market.games.values())
    won = shared(verdict.reward, others)
    fallen = replace(state.with_status(phase=Phase.CONVICTED), share=won.share)
    market = market.with_claim(claim_id, fallen)
    funds = funds.burnt(SEIZED, verdict.burnt)
    funds = funds.moved(SEIZED, free(challenger), won.winner)
    funds = funds.moved(SEIZED, free(forcer), verdict.indemnity) if forcer is not None else funds
    if left_out:  # nothing builds on it
        return market.with_funds(funds)
    market = _rewound(market, claim, verdict, wasted, now.time)
    pot = compensation(claim.job_id, job.rewinds_so_far + 1)
    return market.with_funds(funds.moved(SEIZED, pot, verdict.compensation))


def convicted_ballot(
    market: MarketState, claim_id: ClaimId, ballot: Ballot, challenger: Address
) -> MarketState:
    """A vote falls (rule 5.3): it no longer counts and is not paid; acceptance already given stands."""
    state = market.claims[claim_id]
    terms = market.jobs[state.claim.job_id].terms
    state = state.with_ballot(replace(ballot, gone=True))
    funds = market.funds.unlock(ballot.verifier, Role.VERIFIER, terms.verifier_stake)
    funds, taken = funds.slash(ballot.verifier, Role.VERIFIER, terms.verifier_stake)
    split = convicted_vote(taken)
    funds = funds.burnt(SEIZED, split.burnt).moved(SEIZED, free(challenger), split.paid)
    return market.with_funds(funds).with_claim(claim_id, state)


def void(market: MarketState, event: Void, by: Address, now: Moment) -> MarketState:
    """End a claim that a rewind has overtaken, or that its round was closed without.

    Refused: WrongClaim, WrongPhase, NotStale, GamesOpen.
    """
    claim = event.claim
    claim_id, state = market.known(claim)
    require(state.live, "WrongPhase", state.status.phase.name)
    require(not market.stands(state), "NotStale")
    require(not market.liable(state) or state.status.open_games == 0, "GamesOpen")
    terms = market.jobs[claim.job_id].terms
    funds = market.funds.unlock(claim.claimant, Role.SOLVER, terms.solver_stake)
    funds = unlock_votes(funds, state, terms)
    market = market.with_funds(funds).with_claim(claim_id, state.with_status(phase=Phase.VOID))
    overtaker = _overtaker(market, state)
    wasted = claim.kind == Kind.TASK and overtaker is not None
    return _compensated(market, claim, overtaker) if wasted and overtaker is not None else market


def _slash_all(
    funds: Funds, state: ClaimState, segment: int, terms: Terms, *, forced: bool
) -> tuple[Funds, Wei, list[Wei]]:
    """Free every lock that the claim and its votes hold, then take from claimant and guilty voters.

    The claimant of a `forced` error pays half (rule 7.4).
    """
    claimant = state.claim.claimant
    funds = funds.unlock(claimant, Role.SOLVER, terms.solver_stake)
    funds = unlock_votes(funds, state, terms)
    asked = Wei(terms.solver_stake // 2) if forced else terms.solver_stake
    funds, from_claimant = funds.slash(claimant, Role.SOLVER, asked)
    taken = []
    for ballot in state.seats():
        if ballot.valid and _guilty(state, ballot.verifier, segment, terms):
            funds, from_voter = funds.slash(ballot.verifier, Role.VERIFIER, terms.verifier_stake)
            taken.append(from_voter)
    return funds, from_claimant, taken


def _guilty(state: ClaimState, verifier: Address, segment: int, terms: Terms) -> bool:
    """Whether a valid vote of this verifier vouched for the segment: it is one of its samples (rule 5.1)."""
    if segment in (INPUT_SEGMENT, WITHHELD_SEGMENT):
        return segment == INPUT_SEGMENT
    return segment in sample_segments(state.status.seed, verifier, terms.samples, terms.segments)


def _wasted(market: MarketState, fallen: Claim) -> Wei:
    """Sum of the prices of the task claims that the conviction of this claim makes stale."""
    at = position(fallen.kind, fallen.round)
    return Wei(
        sum(
            state.claim.price
            for state in market.claims.values()
            if state.claim.job_id == fallen.job_id
            and state.claim.kind == Kind.TASK
            and position(state.claim.kind, state.claim.round) > at
            and market.stands(state)
        )
    )


def _rewound(
    market: MarketState, claim: Claim, verdict: Conviction, wasted: Wei, now: Seconds
) -> MarketState:
    job = market.jobs[claim.job_id]
    pot = CompensationPot(verdict.compensation, wasted)
    rewind = Rewind(position(claim.kind, claim.round), claim.claimant, pot)
    last_round = min(job.last_round, claim.round) if job.halted else job.last_round
    back = replace(
        job,
        round=claim.round,
        last_round=last_round,
        round_start=now,
        rewinds=(*job.rewinds, rewind),
    )
    return market.with_job(claim.job_id, back)


def _overtaker(market: MarketState, state: ClaimState) -> int | None:
    """Which rewind overtook the claim; None if its round was closed without it before any did."""
    claim, job = state.claim, market.jobs[state.claim.job_id]
    at = position(claim.kind, claim.round)
    overtaking = (i for i in range(claim.rewinds, job.rewinds_so_far) if at > job.rewinds[i].position)
    first = next(overtaking, None)
    return None if first is None or market.left_out(state, before=first) else first


def _compensated(market: MarketState, claim: Claim, index: int) -> MarketState:
    """The claim's share of what that rewind set aside; the convict's own share is burnt."""
    job = market.jobs[claim.job_id]
    rewind = job.rewinds[index]
    share, pot = rewind.pot.take(claim.price)
    rewinds = (*job.rewinds[:index], replace(rewind, pot=pot), *job.rewinds[index + 1 :])
    source = compensation(claim.job_id, index + 1)
    if claim.claimant == rewind.convict:
        funds = market.funds.burnt(source, share)
    else:
        funds = market.funds.moved(source, free(claim.claimant), share)
    return market.with_funds(funds).with_job(claim.job_id, replace(job, rewinds=rewinds))
