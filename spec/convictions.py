"""Convictions, rewinds and compensation (docs/protocol.md, section 5).

Contract: pure. Every unit that a conviction takes is burnt, paid to the challenger, set aside for those whose
work the rewind wastes, or kept for votes. The last `void` or `free_seats` pays out or burns what was set
aside or kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from assay.protocol.types import Address, Claim, ClaimId, Kind, Phase, Role, Seconds, Terms, Wei
from spec.claim_state import Ballot, ClaimState
from spec.claims import freed, worth
from spec.clock import Rewind
from spec.events import FreeSeats, Void
from spec.jobs import reopened
from spec.ledger import compensation, free
from spec.market_state import MarketState, Moment
from spec.refusal import require
from spec.settlement import (
    Conviction,
    convict,
    convicted_vote,
    position,
)
from spec.stakes import SEIZED, Funds


def convicted(
    market: MarketState,
    claim_id: ClaimId,
    challenger: Address,
    now: Moment,
    guilty: Sequence[Ballot] = (),
) -> MarketState:
    """The market after a claim falls, with the `guilty` votes that the proof shows to be false (5.1, 5.2,
    5.4).

    If a rewind has overtaken the claim, or it was left out, the job is not rewound, and no claim of its place
    will show which finding is true. The winner's own game has already left `market.games`.
    """
    state = market.claims[claim_id]
    claim, job = state.claim, market.jobs[state.claim.job_id]
    overtaken = market.is_stale(state)
    goes_back = not overtaken and not market.left_out(state, now.time)
    wasted = _wasted(market, claim) if goes_back else Wei(0)
    fallen = state.without([*state.silent(), *guilty])
    funds, verdict = _seized(market.funds, state, fallen, guilty, wasted, job.terms)
    market = market.with_funds(funds)
    if claim.kind == Kind.TASK and job.shards[claim.shard].solver == claim.claimant:
        market = reopened(market, claim.job_id, claim.shard, now.time)
        funds = market.funds
    fallen = fallen.with_status(phase=Phase.CONVICTED, since=now.time)
    fallen = replace(fallen, overtaken=overtaken, overtaker=_overtaker(market, state) if overtaken else None)
    if market.findings(claim_id):  # other findings may have been true, too
        fallen = replace(fallen, reward=verdict.reward, winner=challenger, gone=not goes_back)
    else:
        funds = funds.moved(SEIZED, free(challenger), verdict.reward)
    market = market.with_claim(claim_id, fallen)
    if not goes_back:
        return market.with_funds(funds)
    market = _rewound(market, claim, verdict, now.time)
    pot = compensation(claim.job_id, job.rewinds_so_far + 1)
    return market.with_funds(funds.moved(SEIZED, pot, verdict.compensation))


def convicted_ballot(
    market: MarketState, claim_id: ClaimId, ballot: Ballot, challenger: Address
) -> MarketState:
    """The market after a vote falls (rule 5.5): it is no longer counted or paid; acceptance already given
    stands.

    If its claim has fallen, the fee that was kept for the vote is burnt.
    """
    state = market.claims[claim_id]
    terms = market.jobs[state.claim.job_id].terms
    account, stake = ballot.verifier, terms.verifier_stake
    funds = freed(market.funds, [ballot], terms)
    funds, taken = funds.slash(account, Role.VERIFIER, stake, terms.client)
    split = convicted_vote(taken)
    fee = terms.verifier_fee if state.status.phase == Phase.CONVICTED else Wei(0)
    funds = funds.burnt(SEIZED, Wei(split.burnt + fee)).moved(SEIZED, free(challenger), split.paid)
    return market.with_funds(funds).with_claim(claim_id, state.without([ballot]))


def void(market: MarketState, event: Void, by: Address, now: Moment) -> MarketState:
    """Ends a claim that a rewind has overtaken, or one that was left out and whose window is over.

    Refused: WrongClaim, WrongPhase, GamesOpen, NotStale, NotDue.
    """
    claim = event.claim
    claim_id, state = market.known(claim)
    require(state.live, "WrongPhase", state.status.phase.name)
    require(state.status.open_games == 0, "GamesOpen")
    terms, overtaken = market.jobs[claim.job_id].terms, market.is_stale(state)
    require(overtaken or market.left_out(state, now.time), "NotStale")
    require(overtaken or now.time > state.status.since + terms.challenge_window, "NotDue")
    funds = market.funds.unlock(claim.claimant, Role.SOLVER, terms.solver_stake, terms.client)
    funds = freed(funds, state.held(), terms)
    market = market.with_funds(funds).with_claim(claim_id, state.with_status(phase=Phase.VOID))
    overtaker = _overtaker(market, state)
    return market if overtaker is None else _compensated(market, state, overtaker)


def free_seats(market: MarketState, event: FreeSeats, by: Address, now: Moment) -> MarketState:
    """Pays and frees the votes that stand on a fallen claim; burns what was set aside for it (rule 5.5).

    Refused: WrongClaim, WrongPhase, GamesOpen, NotDue, NoSeats.
    """
    claim_id, state, job = market.in_phase(event.claim, Phase.CONVICTED)
    terms, voted = job.terms, state.voted()
    require(state.status.open_games == 0, "GamesOpen")
    require(now.time > state.status.since + terms.challenge_window, "NotDue")
    require(bool(voted) or state.overtaken, "NoSeats")
    funds = freed(market.funds, voted, terms)
    for ballot in voted:
        funds = funds.moved(SEIZED, free(ballot.verifier), terms.verifier_fee)
    ended = replace(state.without(voted), overtaken=False, overtaker=None)
    market = market.with_funds(funds).with_claim(claim_id, ended)
    return market if state.overtaker is None else _compensated(market, state, state.overtaker)


def _seized(
    funds: Funds,
    state: ClaimState,
    fallen: ClaimState,
    guilty: Sequence[Ballot],
    wasted: Wei,
    terms: Terms,
) -> tuple[Funds, Conviction]:
    """Seizes stakes of the claimant and of guilty voters, frees the silent seats, and burns half."""
    claimant, client = state.claim.claimant, terms.client
    funds = funds.unlock(claimant, Role.SOLVER, terms.solver_stake, client)
    funds = freed(funds, [*state.silent(), *guilty], terms)
    funds, from_claimant = funds.slash(claimant, Role.SOLVER, terms.solver_stake, client)
    from_votes = []
    for ballot in guilty:
        funds, taken = funds.slash(ballot.verifier, Role.VERIFIER, terms.verifier_stake, client)
        from_votes.append(taken)
    verdict = convict(from_claimant, from_votes, fallen.status.shown, terms.verifier_fee, wasted)
    return funds.burnt(SEIZED, verdict.burnt), verdict


def _wasted(market: MarketState, fallen: Claim) -> Wei:
    """Worth of the claims that this conviction makes stale."""
    at, terms = position(fallen.kind, fallen.round), market.jobs[fallen.job_id].terms
    return Wei(
        sum(
            worth(state.claim, terms)
            for state in market.claims.values()
            if state.claim.job_id == fallen.job_id
            and position(state.claim.kind, state.claim.round) > at
            and market.counted(state)
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
    """Number of the rewind that overtook the claim; None if its round was closed without it before."""
    claim, job = state.claim, market.jobs[state.claim.job_id]
    at = position(claim.kind, claim.round)
    overtaking = (i for i in range(claim.rewinds, job.rewinds_so_far) if at > job.rewinds[i].position)
    first = next(overtaking, None)
    return None if first is None or market.fixed_without(state, before=first) else first


def _compensated(market: MarketState, state: ClaimState, index: int) -> MarketState:
    """Pays the claim's price and its valid votes' fees out of what that rewind set aside.

    Burns the convict's own price and the fees of missing votes; of a fallen claim, everything.
    """
    claim, job = state.claim, market.jobs[state.claim.job_id]
    rewind, terms = job.rewinds[index], job.terms
    source, due = compensation(claim.job_id, index + 1), worth(claim, terms)
    funds, left = market.funds, due
    payees = []
    if state.live:
        payees = [(ballot.verifier, terms.verifier_fee) for ballot in state.seats() if ballot.valid]
        payees += [(claim.claimant, claim.price)] if claim.claimant != rewind.convict else []
    for account, amount in payees:
        funds, left = funds.moved(source, free(account), amount), Wei(left - amount)
    rewinds = (
        *job.rewinds[:index],
        replace(rewind, left=Wei(rewind.left - due)),
        *job.rewinds[index + 1 :],
    )
    market = market.with_funds(funds.burnt(source, left))
    return market.with_job(claim.job_id, replace(job, rewinds=rewinds))
