"""Availability: named pieces of a committed state, shown on demand (docs/protocol.md 7.3; the pure twin).

Contract: pure functions ``(market, event, by, now) -> market`` that refuse what Availability refuses, for
the same reason. An open demand counts as a game on its claim.
"""

from __future__ import annotations

from dataclasses import replace

from assay.protocol import trees
from assay.protocol.demands import Asked, Chunk, StateLeaf
from assay.protocol.game import Arithmetic
from assay.protocol.game_state import WITHHELD_SEGMENT
from assay.protocol.params import CHUNKS
from assay.protocol.refusal import require
from assay.protocol.twin.challenges import challengeable
from assay.protocol.twin.convictions import convicted
from assay.protocol.twin.events import Demand, ExpireDemand, Supply
from assay.protocol.twin.ledger import demand_bond, free
from assay.protocol.twin.market_state import MarketState, Moment
from assay.protocol.twin.settlement import lost_bond
from assay.protocol.types import Address, ProgramRef, Seconds


def demand(market: MarketState, event: Demand, by: Address, now: Moment) -> MarketState:
    """Ask for pieces of a state.

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
    """Show all named pieces: half of the bond is burnt, the rest is the claimant's.

    Refused: NoSuchDemand, WrongDemand, WrongClaim, TooLate, WrongCount, BadProof.
    """
    made = _open(market, event)
    require(now.time <= made.deadline, "TooLate")
    require(len(event.chunks) == len(made.places), "WrongCount")
    program = market.jobs[event.claim.job_id].terms.program(event.claim.kind)
    for i, (place, chunk) in enumerate(zip(made.places, event.chunks, strict=True)):
        sound = _shown(made.state_root, program, place, chunk, market.deployment.arithmetic)
        require(sound, "BadProof", f"chunk {i}")
    market, stood = _close(market, event.demand_id, made, False, now)
    bond = demand_bond(event.demand_id)
    amount = market.funds.ledger.balance(bond)
    if not stood:
        return market.with_funds(market.funds.moved(bond, free(made.demander), amount))
    split = lost_bond(amount)
    funds = market.funds.burnt(bond, split.burnt)
    return market.with_funds(funds.moved(bond, free(event.claim.claimant), split.paid))


def expire(market: MarketState, event: ExpireDemand, by: Address, now: Moment) -> MarketState:
    """Time is up: the claim falls, if it still stands. Refused: NoSuchDemand, WrongDemand,
    WrongClaim, NotDue."""
    made = _open(market, event)
    require(now.time > made.deadline, "NotDue")
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
    """Off the books; also whether the claim still stood."""
    market = replace(market, demands={i: d for i, d in market.demands.items() if i != demand_id})
    state = market.claims[made.claim_id]
    state = state.with_status(open_games=state.status.open_games - 1)
    market = market.with_claim(made.claim_id, state).quietened(state.claim.job_id, now.time)
    stood = market.liable(state)
    if stood and withheld:
        market = convicted(market, made.claim_id, made.demander, WITHHELD_SEGMENT, now)
    return market, stood


def _shown(root: bytes, program: ProgramRef, place: StateLeaf, chunk: Chunk, arithmetic: Arithmetic) -> bool:
    """Whether the chunk is the leaf of this place below the state's root."""
    encodings = 1 + program.nodes + program.slots
    node = trees.leaf(chunk.node)
    if not trees.verify(program.root, encodings, 1 + place.slot, node, chunk.node_proof):
        return False
    size = arithmetic.facts(chunk.node).bytes
    leaves = -(-size // trees.LEAF_BYTES)
    leaf = place.leaf % leaves
    length = min(trees.LEAF_BYTES, size - leaf * trees.LEAF_BYTES)
    if len(chunk.data) != length or len(chunk.leaf_proof) != trees.depth(leaves):
        return False
    tensor = trees.fold(trees.leaf(chunk.data), leaf, chunk.leaf_proof)
    return trees.verify(root, program.slots, place.slot, tensor, chunk.slot_proof)
