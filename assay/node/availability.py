"""Named pieces of a committed state: those that a demand names, and those to demand (docs/protocol.md 7.3).

Contract: what is shown is exactly what the demand names, of a state with the demanded root; without such a
state nothing is shown. What is asked for is what could not be fetched.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from assay.dispute.chunks import chunks_of
from assay.node.checkpoints import Gap
from assay.node.orders import WantedLeaves
from assay.node.states import Known, StateProvider
from assay.program.isa import Program
from assay.protocol import trees
from assay.protocol.demands import Chunk, DemandView, StateLeaf
from assay.protocol.errors import Retry
from assay.protocol.params import CHUNKS
from assay.protocol.types import ClaimView

TRIES = 64
"""Draws for CHUNKS different leaves; there may be fewer."""


def pieces(state_provider: StateProvider, view: ClaimView, demand: DemandView) -> tuple[Chunk, ...]:
    """What a demand names; the state comes from our own blocks, or is computed again. Raises Retry when it
    cannot be had."""
    found = state_provider.leaf(view, demand.segment_end)
    if not isinstance(found, Known):
        raise Retry(
            f"the state at segment end {demand.segment_end} cannot be had ({found}); without it demand"
            f" {demand.demand_id} convicts the claim",
            hint="restore this node's block store before the deadline",
            code="state-lost",
        )
    return tuple(chunks_of(state_provider.work.program(view.claim.kind), found.state, demand.places))


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
