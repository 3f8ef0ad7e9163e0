"""What falls and what falls with it: convictions, rewinds, compensation (docs/protocol.md, section 5).

Contract: pure; every unit that a conviction takes is burnt, paid to the challenger, or set aside for those
whose work the rewind wastes, and what is set aside is paid out or burnt by the last `void`.
"""

from __future__ import annotations

from dataclasses import replace

from assay.protocol.game_state import INPUT_SEGMENT, WITHHELD_SEGMENT
from assay.protocol.refusal import require
from assay.protocol.sampling import sample_segments
from assay.protocol.twin.claims import unlock_votes, worth
from assay.protocol.twin.clock import Rewind
from assay.protocol.twin.events import Void
from assay.protocol.twin.jobs import reopened
from assay.protocol.twin.ledger import compensation, free
from assay.protocol.twin.market_state import Ballot, ClaimState, MarketState, Moment
from assay.protocol.twin.settlement import (
    Conviction,
    convicted_vote,
    conviction,
    position,
)
from assay.protocol.twin.stakes import SEIZED, Funds
from assay.protocol.types import Address, Claim, ClaimId, Kind, Phase, Role, Seconds, Terms, Wei


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
    funds, taken = _slash_all(market.funds, state, segment, job.terms)
    if claim.kind == Kind.TASK and job.shards[claim.shard].solver == claim.claimant:
        market = reopened(market.with_funds(funds), claim.job_id, claim.shard, now.time)
        funds = market.funds
    verdict = conviction(taken, wasted)
    fallen = state.with_status(phase=Phase.CONVICTED)
    funds = funds.burnt(SEIZED, verdict.burnt)
    if market.findings(claim_id):  # who was right is not known yet
        fallen = replace(fallen, reward=verdict.reward, winner=challenger)
    else:
        funds = funds.moved(SEIZED, free(challenger), verdict.reward)
    market = market.with_claim(claim_id, fallen)
    if left_out:  # nothing builds on it
        return market.with_funds(funds)
    market = _rewound(market, claim, verdict, now.time)
    pot = compensation(claim.job_id, job.rewinds_so_far + 1)
    return market.with_funds(funds.moved(SEIZED, pot, verdict.compensation))


def convicted_ballot(
    market: MarketState, claim_id: ClaimId, ballot: Ballot, challenger: Address
) -> MarketState:
    """A vote falls (rule 5.3): it no longer counts and is not paid; acceptance already given stands."""
    state = market.claims[claim_id]
    terms = market.jobs[state.claim.job_id].terms
    state = state.with_ballot(replace(ballot, gone=True))
    account, stake = ballot.verifier, terms.verifier_stake
    funds = market.funds.unlock(account, Role.VERIFIER, stake, terms.client)
    funds, taken = funds.slash(account, Role.VERIFIER, stake, terms.client)
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
    funds = market.funds.unlock(claim.claimant, Role.SOLVER, terms.solver_stake, terms.client)
    funds = unlock_votes(funds, state, terms)
    market = market.with_funds(funds).with_claim(claim_id, state.with_status(phase=Phase.VOID))
    overtaker = _overtaker(market, state)
    return market if overtaker is None else _compensated(market, state, overtaker)


def _slash_all(funds: Funds, state: ClaimState, segment: int, terms: Terms) -> tuple[Funds, list[Wei]]:
    """Free every lock that the claim and its votes hold, then take from claimant and guilty voters."""
    claimant = state.claim.claimant
    client, stake = terms.client, terms.verifier_stake
    funds = funds.unlock(claimant, Role.SOLVER, terms.solver_stake, client)
    funds = unlock_votes(funds, state, terms)
    funds, from_claimant = funds.slash(claimant, Role.SOLVER, terms.solver_stake, client)
    taken = [from_claimant]
    for ballot in state.seats():
        if ballot.valid and _guilty(state, ballot.verifier, segment, terms):
            funds, from_voter = funds.slash(ballot.verifier, Role.VERIFIER, stake, client)
            taken.append(from_voter)
    return funds, taken


def _guilty(state: ClaimState, verifier: Address, segment: int, terms: Terms) -> bool:
    """Whether a valid vote of this verifier vouched for the segment: it is one of its samples (rule 5.1)."""
    if segment in (INPUT_SEGMENT, WITHHELD_SEGMENT):
        return segment == INPUT_SEGMENT
    return segment in sample_segments(state.status.seed, verifier, terms.loops)


def _wasted(market: MarketState, fallen: Claim) -> Wei:
    """What the claims that the conviction of this claim makes stale are worth."""
    at, terms = position(fallen.kind, fallen.round), market.jobs[fallen.job_id].terms
    return Wei(
        sum(
            worth(state.claim, terms)
            for state in market.claims.values()
            if state.claim.job_id == fallen.job_id
            and position(state.claim.kind, state.claim.round) > at
            and market.stands(state)
        )
    )


def _rewound(market: MarketState, claim: Claim, verdict: Conviction, now: Seconds) -> MarketState:
    job = market.jobs[claim.job_id]
    rewind = Rewind(position(claim.kind, claim.round), claim.claimant, verdict.compensation)
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


def _compensated(market: MarketState, state: ClaimState, index: int) -> MarketState:
    """The claim's price and its valid votes' fees, of what that rewind set aside; the convict's own price,
    and the fees of votes that there were not, are burnt."""
    claim, job = state.claim, market.jobs[state.claim.job_id]
    rewind, terms = job.rewinds[index], job.terms
    source, due = compensation(claim.job_id, index + 1), worth(claim, terms)
    funds, left = market.funds, due
    payees = [(ballot.verifier, terms.verifier_fee) for ballot in state.seats() if ballot.valid]
    if claim.claimant != rewind.convict:
        payees.append((claim.claimant, claim.price))
    for account, amount in payees:
        funds, left = funds.moved(source, free(account), amount), Wei(left - amount)
    rewinds = (
        *job.rewinds[:index],
        replace(rewind, left=Wei(rewind.left - due)),
        *job.rewinds[index + 1 :],
    )
    market = market.with_funds(funds.burnt(source, left))
    return market.with_job(claim.job_id, replace(job, rewinds=rewinds))
