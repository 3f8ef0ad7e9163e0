"""Availability: named leaves of a committed state, shown on demand (docs/protocol.md 7.3).

The pure twin of the Availability contract. Contract: pure functions ``(market, event, by, now) -> market``
that refuse what Availability refuses, for the same reason. An open demand counts as a game on its claim.
"""

from __future__ import annotations

from dataclasses import replace

from assay.protocol import trees
from assay.protocol.demands import Asked
from assay.protocol.params import CHUNKS
from assay.protocol.types import Address, Seconds
from spec.challenges import challengeable
from spec.chunks import leaf_of
from spec.convictions import convicted
from spec.events import Demand, ExpireDemand, Supply
from spec.ledger import demand_bond, free
from spec.market_state import MarketState, Moment
from spec.refusal import require
from spec.settlement import lost_bond


def demand(market: MarketState, event: Demand, by: Address, now: Moment) -> MarketState:
    """Demands leaves of a state.

    Refused: WrongClaim, WrongPhase, NotStanding, WindowClosed, NoSuchSegment, WrongState, WrongPlaces,
    NoSuchSlot, InsufficientBalance.
    """
    claim = event.claim
    claim_id, state = challengeable(market, claim, now)
    terms = market.jobs[claim.job_id].terms
    ends = terms.segments_of(claim.kind) + 1
    require(event.segment_end < ends, "NoSuchSegment")
    shown = trees.verify(claim.segments_root, ends, event.segment_end, event.state_root, event.proof)
    require(shown, "WrongState")
    require(1 <= len(event.places) <= CHUNKS, "WrongPlaces")
    slots = terms.slots_of(claim.kind)
    require(all(place.slot < slots for place in event.places), "NoSuchSlot")
    demand_id = market.demands_made + 1
    deadline = Seconds(now.time + terms.move_time)
    made = Asked(claim_id, event.state_root, by, deadline, event.places)
    funds = market.funds.moved(free(by), demand_bond(demand_id), terms.challenge_bond)
    state = state.with_status(open_games=state.status.open_games + 1)
    market = market.with_funds(funds).with_claim(claim_id, state)
    return replace(market, demands={**market.demands, demand_id: made}, demands_made=demand_id)


def supply(market: MarketState, event: Supply, by: Address, now: Moment) -> MarketState:
    """Shows all demanded leaves; half of the bond is burnt, the claimant gets the rest.

    Refused: NoSuchDemand, WrongDemand, WrongClaim, TooLate, WrongCount, BadProof.
    """
    made = _open(market, event)
    require(not market.passed(made.deadline, now), "TooLate")
    require(len(event.chunks) == len(made.places), "WrongCount")
    program = market.jobs[event.claim.job_id].terms.program(event.claim.kind)
    for i, (place, chunk) in enumerate(zip(made.places, event.chunks, strict=True)):
        leaf = leaf_of(made.state_root, program, place, chunk, market.deployment.arithmetic)
        require(leaf is not None, "BadProof", f"chunk {i}")
    market, stood = _close(market, event.demand_id, made, False, now)
    bond = demand_bond(event.demand_id)
    amount = market.funds.ledger.balance(bond)
    if not stood:
        return market.with_funds(market.funds.moved(bond, free(made.demander), amount))
    split = lost_bond(amount)
    funds = market.funds.burnt(bond, split.burnt)
    return market.with_funds(funds.moved(bond, free(event.claim.claimant), split.paid))


def expire(market: MarketState, event: ExpireDemand, by: Address, now: Moment) -> MarketState:
    """Convicts the claim of an unanswered demand, unless the claim has ended.

    Refused: NoSuchDemand, WrongDemand, WrongClaim, NotDue.
    """
    made = _open(market, event)
    require(market.passed(made.deadline, now), "NotDue")
    market, _ = _close(market, event.demand_id, made, True, now)
    bond = demand_bond(event.demand_id)
    amount = market.funds.ledger.balance(bond)
    return market.with_funds(market.funds.moved(bond, free(made.demander), amount))


def _open(market: MarketState, event: Supply | ExpireDemand) -> Asked:
    made = market.demands.get(event.demand_id)
    require(made is not None, "NoSuchDemand")
    assert made is not None
    require(event.asked == made, "WrongDemand")
    require(market.claim_id(event.claim) == made.claim_id, "WrongClaim")
    return made


def _close(
    market: MarketState, demand_id: int, made: Asked, withheld: bool, now: Moment
) -> tuple[MarketState, bool]:
    """Removes a demand; also returns whether its claim had not ended."""
    market = replace(market, demands={i: d for i, d in market.demands.items() if i != demand_id})
    state = market.claims[made.claim_id]
    state = state.with_status(open_games=state.status.open_games - 1)
    market = market.with_claim(made.claim_id, state).quietened(state.claim.job_id, now.time)
    if state.live and withheld:
        market = convicted(market, made.claim_id, made.demander, now)
    return market, state.live
