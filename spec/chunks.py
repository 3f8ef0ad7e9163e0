"""Leaves of a state, proven up to its root (the pure twin of the Chunks library).

Contract: pure. The program's ``state(slot)`` node gives the number and size of a slot's leaves, never the
proof.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from assay.protocol import trees
from assay.protocol.demands import Chunk, StateLeaf
from assay.protocol.types import ProgramRef
from spec.game import Arithmetic


@dataclass(frozen=True)
class Leaf:
    """Leaf `index` of the `leaves` of a slot."""

    index: int
    leaves: int

    def tensor_root(self, data: bytes, proof: Sequence[bytes], key: bytes = b"") -> bytes | None:
        """Root of the tensor that the leaf's bytes and siblings give; None if their number is wrong."""
        if len(proof) != trees.depth(self.leaves):
            return None
        return trees.fold(trees.keyed_leaf(key, data) if key else trees.leaf(data), self.index, proof)


def leaf_of(
    root: bytes, program: ProgramRef, place: StateLeaf, chunk: Chunk, arithmetic: Arithmetic
) -> Leaf | None:
    """Which leaf of its slot the chunk is; None if the state's root does not contain it."""
    encodings = 1 + program.nodes + program.slots
    node = trees.leaf(chunk.node)
    if not trees.verify(program.root, encodings, 1 + place.slot, node, chunk.node_proof):
        return None
    size = arithmetic.facts(chunk.node).bytes
    leaves = -(-size // trees.LEAF_BYTES)
    leaf = Leaf(place.leaf % leaves, leaves)
    if len(chunk.data) != min(trees.LEAF_BYTES, size - leaf.index * trees.LEAF_BYTES):
        return None
    tensor = leaf.tensor_root(chunk.data, chunk.leaf_proof)
    if tensor is None or not trees.verify(root, program.slots, place.slot, tensor, chunk.slot_proof):
        return None
    return leaf
