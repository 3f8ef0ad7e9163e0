"""Showing named pieces of a committed state, and asking others to (docs/protocol.md 7.3).

Contract: what is shown is exactly what the demand names, of a state with the demanded root; without such a
state nothing is shown. What is asked for is what could not be fetched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from assay.dispute.chunks import chunks_of
from assay.node.checkpoints import Gap
from assay.node.service import intent
from assay.node.states import Known, StateProvider
from assay.program.isa import Program
from assay.protocol import trees
from assay.protocol.demands import DemandView, StateLeaf
from assay.protocol.errors import Retry
from assay.protocol.params import CHUNKS
from assay.protocol.ports import Market
from assay.protocol.types import ClaimView, TxResult

TRIES = 64
"""Draws for CHUNKS different leaves; there may be fewer."""


def answer(market: Market, state_provider: StateProvider, demand: DemandView) -> TxResult:
    """Supply what a demand names; the state comes from our own blocks, or is computed again.

    Raises Retry when the state cannot be had.
    """
    view = market.claim(demand.claim_id)
    found = state_provider.leaf(view, demand.segment_end)
    if not isinstance(found, Known):
        raise Retry(
            f"the state at segment end {demand.segment_end} cannot be had ({found}); without it demand"
            f" {demand.demand_id} convicts the claim",
            hint="restore this node's block store before the deadline",
            code="state-lost",
        )
    chunks = chunks_of(state_provider.work.program(view.claim.kind), found.state, demand.places)
    key = intent("supply", demand.demand_id, demand.claim_id, demand.deadline)
    return market.supply(key, demand.demand_id, demand.asked, view.claim, chunks)


@dataclass(frozen=True)
class WantedLeaves:
    """What to demand of a claim: leaves of its state at a segment's end."""

    end: int
    places: tuple[StateLeaf, ...]


def wanted_leaves(program: Program, gap: Gap, order: Random) -> WantedLeaves:
    """Up to CHUNKS leaves of what is missing, at random: a slot first, then a leaf, so that small slots are
    asked for as often as large ones."""
    lost = _lost(program, gap.spans)
    places: dict[StateLeaf, None] = {}
    for _ in range(TRIES):
        if len(places) < CHUNKS:
            slot = order.choice(list(lost))
            places[StateLeaf(slot, order.choice(order.choice(lost[slot])))] = None
    return WantedLeaves(gap.end, tuple(places))


def _lost(program: Program, spans: Sequence[range]) -> dict[int, list[range]]:
    """Leaves of each slot that these bytes of a state file touch."""
    found: dict[int, list[range]] = {}
    at = 0
    for slot, node in enumerate(program.state):
        for span in spans:
            first, end = max(span.start - at, 0), min(span.stop - at, node.bytes)
            if first < end:
                leaves = range(first // trees.LEAF_BYTES, -(-end // trees.LEAF_BYTES))
                found.setdefault(slot, []).append(leaves)
        at += node.bytes
    return found


def ask(market: Market, view: ClaimView, wanted: WantedLeaves) -> int:
    """Demand leaves of a claim's state; the demand's id. For one claim always with the same demand."""
    ends = trees.build(view.roots)
    key = intent("demand", view.claim_id, wanted.end)
    root, proof = view.roots[wanted.end], tuple(ends.proof(wanted.end))
    return market.demand(key, view.claim, wanted.end, root, proof, wanted.places)
