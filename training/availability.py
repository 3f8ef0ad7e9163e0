"""Showing drawn pieces of a committed state, and asking others to (docs/protocol.md 7.3).

Contract: the chunks are exactly those that the demand's seed block draws, from a state with the demanded
root; without such a state nothing is made.
"""

from __future__ import annotations

from hashlib import sha256

from numerics.encoding import to_bytes
from program.evidence import node_proof
from program.isa import Program
from program.state import state_tree
from protocol import sampling, trees
from protocol.availability import CHUNKS
from protocol.errors import Retry
from protocol.ports import Market
from protocol.types import Chunk, ClaimView, DemandView, TxResult
from training.artifacts import State
from training.lineage import Known, Lineage
from training.service import intent


def chunks_of(program: Program, state: State, block_hash: bytes, demand_id: int) -> tuple[Chunk, ...]:
    """The drawn leaves of a state, with their proofs."""
    slots = state_tree(state)
    found = []
    for chunk in range(CHUNKS):
        slot, draw = sampling.drawn_chunk(block_hash, demand_id, chunk, program.slots)
        leaves = trees.split_leaves(to_bytes(state[slot]))
        leaf = draw % len(leaves)
        way = tuple(trees.tensor_tree(to_bytes(state[slot])).proof(leaf))
        node, proof = program.nodes[slot].encode(), node_proof(program, slot)
        found.append(Chunk(node, proof, bytes(leaves[leaf]), way, tuple(slots.proof(slot))))
    return tuple(found)


def answer(market: Market, lineage: Lineage, demand: DemandView) -> TxResult:
    """Supply what a demand draws; the state comes from our own blocks, or is computed again.

    Raises Retry while the seed block is not mined, or when the state cannot be had.
    """
    block_hash = market.block_hash(demand.seed_block)
    if block_hash is None:
        raise Retry(f"block {demand.seed_block} is not mined yet", hint="wait", code="no-seed")
    view = market.claim(demand.claim_id)
    found = lineage.leaf(view, demand.segment_end)
    if not isinstance(found, Known):
        raise Retry(
            f"the state at segment end {demand.segment_end} cannot be had ({found}); without it demand"
            f" {demand.demand_id} convicts the claim",
            hint="restore this node's block store before the deadline",
            code="state-lost",
        )
    program = lineage.work.program(view.claim.kind)
    chunks = chunks_of(program, found.state, block_hash, demand.demand_id)
    return market.supply(intent("supply", demand.demand_id), demand.demand_id, view.claim, chunks)


def ask(market: Market, view: ClaimView) -> int:
    """Demand pieces of a claim's state at a segment's end that nobody could foresee; the demand's id."""
    ends = trees.build(view.roots)
    at = int.from_bytes(sha256(market.me.encode() + view.claim_id).digest()[:8], "big") % ends.count
    key = intent("demand", view.claim_id, at)
    return market.demand(key, view.claim, at, view.roots[at], tuple(ends.proof(at)))
