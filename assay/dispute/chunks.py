"""Proves single leaves of committed states and of votes' traces.

Contract: pure. `chunks_of` proves leaves of a state up to its root, `vote_proof` a leaf of a keyed trace's
output up to the vote's root over its samples (docs/protocol.md, 5.5 and 7.3). Not guaranteed: that two
differ.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from assay.dispute.evidence import node_proof, output_proof
from assay.dispute.trace import StepTrace
from assay.numerics.encoding import to_bytes
from assay.program.isa import Program
from assay.program.state import state_tree
from assay.protocol import trees
from assay.protocol.demands import Chunk, StateLeaf, VoteProof


def chunks_of(program: Program, state: Sequence[Tensor], places: Sequence[StateLeaf]) -> tuple[Chunk, ...]:
    """Leaves of the state at these places, with their proofs."""
    slots = state_tree(state)
    found = []
    for place in places:
        slot = place.slot
        leaves = trees.split_leaves(to_bytes(state[slot]))
        leaf = place.leaf % len(leaves)
        way = tuple(trees.tensor_tree(to_bytes(state[slot])).proof(leaf))
        node, proof = program.nodes[slot].encode(), node_proof(program, slot)
        found.append(Chunk(node, proof, bytes(leaves[leaf]), way, tuple(slots.proof(slot))))
    return tuple(found)


def first_difference(one: Sequence[Tensor], other: Sequence[Tensor]) -> StateLeaf | None:
    """First leaf in which two states of a program differ; None if they are equal."""
    for slot, (x, y) in enumerate(zip(one, other, strict=True)):
        leaves = zip(trees.split_leaves(to_bytes(x)), trees.split_leaves(to_bytes(y)), strict=True)
        for leaf, (a, b) in enumerate(leaves):
            if a != b:
                return StateLeaf(slot, leaf)
    return None


def vote_proof(
    trace: StepTrace,
    place: StateLeaf,
    roots: Sequence[bytes],
    segment: int,
    traces: Sequence[bytes],
    sample: int,
) -> VoteProof:
    """Proof of the state leaf after a sample's last step in a vote's keyed trace.

    `roots`: the claim's state roots at segment ends; `segment`: the sample's; `traces`: the vote's, one per
    sample.
    """
    program = trace.program
    ref = program.outputs[place.slot]
    leaves = trees.split_leaves(trace.output(ref))
    leaf = place.leaf % len(leaves)
    return VoteProof(
        state_root=roots[segment + 1],
        state_proof=tuple(trees.build(roots).proof(segment + 1)),
        ref=ref,
        ref_proof=output_proof(program, place.slot),
        trace_root=trace.root,
        trace_proof=tuple(trees.build(traces).proof(sample)),
        data=bytes(leaves[leaf]),
        leaf_proof=tuple(trace.tensor_tree(ref).proof(leaf)),
        node_proof=tuple(trace.tree.proof(ref)),
    )
