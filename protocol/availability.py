"""Availability: drawn pieces of a committed state, shown on demand (docs/protocol.md 7.3; the pure twin).

Contract: pure functions ``(world, event, by, now) -> world`` that refuse what Availability refuses, for
the same reason. An open demand counts as a game on its claim.
"""

from __future__ import annotations

from dataclasses import replace

from protocol import sampling, trees
from protocol.challenges import challengeable
from protocol.claims import segments_of
from protocol.convictions import convicted
from protocol.events import Demand, ExpireDemand, Supply
from protocol.game import Arithmetic
from protocol.ledger import demand_bond, free
from protocol.refusal import require
from protocol.settlement import lost_bond
from protocol.types import WITHHELD_SEGMENT, ZERO_DIGEST, Address, Chunk, Kind, ProgramRef, Seconds
from protocol.world import Demanded, Moment, World

CHUNKS = 4
"""Leaves that each demand draws."""


def demand(world: World, event: Demand, by: Address, now: Moment) -> World:
    """Ask for pieces of a state.

    Refused: WrongClaim, WrongPhase, NotStanding, WindowClosed, NoSuchSegment, WrongState,
    InsufficientBalance.
    """
    claim = event.claim
    claim_id, state = challengeable(world, claim, now)
    terms = world.jobs[claim.job_id].terms
    ends = segments_of(claim, terms) + 1
    require(event.segment_end < ends, "NoSuchSegment")
    shown = trees.verify(claim.segments_root, ends, event.segment_end, event.state_root, event.proof)
    require(shown, "WrongState")
    demand_id = world.demands_made + 1
    deadline = Seconds(now.time + terms.move_time)
    made = Demanded(claim_id, by, event.state_root, now.block + 1, deadline)
    funds = world.funds.moved(free(by), demand_bond(demand_id), terms.challenge_bond)
    state = state.with_status(open_games=state.status.open_games + 1)
    state = replace(state, opened=state.opened or now.block)
    world = world.with_funds(funds).with_claim(claim_id, state)
    return replace(world, demands={**world.demands, demand_id: made}, demands_made=demand_id)


def supply(world: World, event: Supply, by: Address, now: Moment) -> World:
    """Show all drawn pieces: half of the bond is burnt, the rest is the claimant's.

    Refused: NoSuchDemand, WrongClaim, TooLate, NotDrawnYet, SeedGone, WrongCount, BadProof.
    """
    made = _open(world, event)
    require(now.time <= made.deadline, "TooLate")
    require(now.block > made.seed_block, "NotDrawnYet")
    require(event.block_hash != ZERO_DIGEST, "SeedGone")
    require(len(event.chunks) == CHUNKS, "WrongCount")
    terms = world.jobs[event.claim.job_id].terms
    program = terms.inner if event.claim.kind == Kind.TASK else terms.outer
    for i, chunk in enumerate(event.chunks):
        slot, draw = sampling.drawn_chunk(event.block_hash, event.demand_id, i, program.slots)
        sound = _shown(made.state_root, program, slot, draw, chunk, world.market.arithmetic)
        require(sound, "BadProof", f"chunk {i}")
    world, stood = _close(world, event.demand_id, made, False, now)
    bond = demand_bond(event.demand_id)
    amount = world.funds.ledger.balance(bond)
    if not stood:
        return world.with_funds(world.funds.moved(bond, free(made.demander), amount))
    split = lost_bond(amount)
    funds = world.funds.burnt(bond, split.burned)
    return world.with_funds(funds.moved(bond, free(event.claim.claimant), split.paid))


def expire(world: World, event: ExpireDemand, by: Address, now: Moment) -> World:
    """Time is up: the claim falls, if it still stands. Refused: NoSuchDemand, WrongClaim, NotDue."""
    made = _open(world, event)
    require(now.time > made.deadline, "NotDue")
    world, _ = _close(world, event.demand_id, made, True, now)
    bond = demand_bond(event.demand_id)
    amount = world.funds.ledger.balance(bond)
    return world.with_funds(world.funds.moved(bond, free(made.demander), amount))


def _open(world: World, event: Supply | ExpireDemand) -> Demanded:
    made = world.demands.get(event.demand_id)
    require(made is not None, "NoSuchDemand")
    assert made is not None
    require(world.claim_id(event.claim) == made.claim_id, "WrongClaim")
    return made


def _close(world: World, demand_id: int, made: Demanded, withheld: bool, now: Moment) -> tuple[World, bool]:
    """Off the books; also whether the claim still stood."""
    world = replace(world, demands={i: d for i, d in world.demands.items() if i != demand_id})
    state = world.claims[made.claim_id]
    state = state.with_status(open_games=state.status.open_games - 1)
    world = world.with_claim(made.claim_id, state)
    stood = world.liable(state)
    if stood and withheld:
        world = convicted(world, made.claim_id, made.demander, WITHHELD_SEGMENT, now)
    return world, stood


def _shown(
    root: bytes, program: ProgramRef, slot: int, draw: int, chunk: Chunk, arithmetic: Arithmetic
) -> bool:
    """Whether the chunk is the drawn leaf of the slot below the state's root."""
    encodings = 1 + program.nodes + program.slots
    node = trees.leaf(chunk.node)
    if not trees.verify(program.root, encodings, 1 + slot, node, chunk.node_proof):
        return False
    size = arithmetic.facts(chunk.node).bytes
    leaves = -(-size // trees.LEAF_BYTES)
    leaf = draw % leaves
    length = min(trees.LEAF_BYTES, size - leaf * trees.LEAF_BYTES)
    if len(chunk.data) != length or len(chunk.leaf_proof) != trees.depth(leaves):
        return False
    tensor = trees.fold(trees.leaf(chunk.data), leaf, chunk.leaf_proof)
    return trees.verify(root, program.slots, slot, tensor, chunk.slot_proof)
