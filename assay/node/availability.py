"""Answers availability demands, and chooses leaves to demand (docs/protocol.md 7.3).

Contract: an answer has exactly the demanded leaves, of a state with the demanded root; without that state
there is no answer. Only leaves that could not be fetched are demanded.
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
"""Maximum number of draws to find CHUNKS different leaves; there may be fewer."""


def pieces(state_provider: StateProvider, view: ClaimView, demand: DemandView) -> tuple[Chunk, ...]:
    """Collects the demanded leaves; the state is read from local blocks or recomputed.

    Raises Retry if it cannot be had.
    """
    found = state_provider.leaf(view, demand.segment_end)
    if not isinstance(found, Known):
        raise Retry(
            f"the state at segment end {demand.segment_end} is unavailable ({found}); unless it is supplied,"
            f" demand {demand.demand_id} convicts the claim",
            hint="restore this node's block store before the deadline",
            code="state-lost",
        )
    return tuple(chunks_of(state_provider.work.program(view.claim.kind), found.state, demand.places))


def leaves_to_demand(program: Program, gap: Gap, order: Random) -> WantedLeaves:
    """Chooses up to CHUNKS missing leaves at random.

    It draws a slot first, then a leaf, so that small slots are demanded as often as large ones.
    """
    lost = _lost(program, gap.spans)
    places: dict[StateLeaf, None] = {}
    for _ in range(TRIES):
        if len(places) < CHUNKS:
            slot = order.choice(list(lost))
            places[StateLeaf(slot, order.choice(order.choice(lost[slot])))] = None
    return WantedLeaves(gap.end, tuple(places))


def _lost(program: Program, spans: Sequence[range]) -> dict[int, list[range]]:
    """Leaves of each slot that these byte ranges of a state file touch."""
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
