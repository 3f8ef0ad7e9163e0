"""Trees by hand: domains of leaves and nodes, padding, and proofs of several leaves (rules 1.1 to 1.5)."""

from __future__ import annotations

from hashlib import sha256

import pytest

from assay.protocol import trees
from assay.protocol.trees import LEAF_BYTES, ZEROS, MultiProof

LEAVES = [trees.leaf(bytes([i])) for i in range(5)]
TREE = trees.build(LEAVES)


def test_leaves_keyed_leaves_and_nodes_are_of_three_domains() -> None:
    left, right, key = b"l" * 32, b"r" * 32, b"k" * 32
    assert trees.leaf(left + right) == sha256(b"\x00" + left + right).digest()
    assert trees.node(left, right) == sha256(b"\x01" + left + right).digest()
    assert trees.keyed_leaf(key, left) == sha256(b"\x02" + key + left).digest()


def test_a_tree_is_padded_with_zeros_to_a_power_of_two() -> None:
    a, b, c, d, e = LEAVES
    left = trees.node(trees.node(a, b), trees.node(c, d))
    right = trees.node(trees.node(e, bytes(32)), ZEROS[1])
    assert TREE.root == trees.node(left, right)
    assert trees.root([a]) == a, "one leaf is its own root"
    assert [ZEROS[h + 1] == trees.node(ZEROS[h], ZEROS[h]) for h in range(5)] == [True] * 5


@pytest.mark.parametrize(("leaves", "levels"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (65_536, 16)])
def test_depth(leaves: int, levels: int) -> None:
    assert trees.depth(leaves) == levels


def test_what_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one leaf"):
        trees.depth(0)
    with pytest.raises(ValueError, match="at least one element"):
        trees.split_leaves(b"")
    for call in (lambda: TREE.proof(5), lambda: TREE.range_proof(3, 3), lambda: TREE.digest(3, 1)):
        with pytest.raises(IndexError):
            call()


def test_the_number_of_leaves_is_never_taken_from_a_proof() -> None:
    proof = TREE.proof(1)
    assert trees.verify(TREE.root, 5, 1, LEAVES[1], proof)
    assert not trees.verify(TREE.root, 4, 1, LEAVES[1], proof)
    assert not trees.verify(TREE.root, 1, 1, LEAVES[1], proof)
    assert trees.verify_range(TREE.root, 5, 1, LEAVES[1:4], TREE.range_proof(1, 4))
    assert not trees.verify_range(TREE.root, 9, 1, LEAVES[1:4], TREE.range_proof(1, 4))


def test_several_leaves_bring_what_their_ways_do_not_share() -> None:
    order = [0, 1, 4, 4, 2]
    proof, before, brought = MultiProof(TREE.root, 5), None, 0
    for index in order:
        siblings = TREE.proof(index)
        own = siblings if before is None else list(trees.siblings_below_join(before, index, siblings))
        assert proof.proves(index, LEAVES[index], own)
        before, brought = index, brought + len(own)
    assert brought == 3 + 0 + 2 + 0 + 2


@pytest.mark.parametrize(
    ("index", "digest", "siblings"),
    [
        (1, LEAVES[2], ()),
        (4, LEAVES[4], TREE.proof(4)),
        (4, LEAVES[4], (b"x" * 32, *TREE.proof(4)[1:2])),
        (0, LEAVES[1], ()),
        (0, LEAVES[0], TREE.proof(0)),
    ],
)
def test_a_later_leaf_with_another_way_proves_nothing(
    index: int, digest: bytes, siblings: list[bytes]
) -> None:
    proof = MultiProof(TREE.root, 5)
    assert proof.proves(0, LEAVES[0], TREE.proof(0))
    assert not proof.proves(index, digest, siblings)


def test_a_tensor_is_cut_in_leaves_of_2048_bytes_and_keyed_by_its_verifier() -> None:
    data, key = bytes(range(256)) * 17, b"k" * 32
    parts = [data[i : i + LEAF_BYTES] for i in range(0, len(data), LEAF_BYTES)]
    assert [bytes(part) for part in trees.split_leaves(data)] == parts and len(parts) == 3
    assert trees.tensor_root(data) == trees.root([trees.leaf(part) for part in parts])
    assert trees.tensor_root(data, key) == trees.root([trees.keyed_leaf(key, part) for part in parts])


@pytest.mark.parametrize("count", [*range(1, 18), 100])
def test_a_packed_tree_is_the_same_tree(count: int) -> None:
    digests = [trees.leaf(bytes([i])) for i in range(count)]
    packed, plain = trees.build_packed(iter(digests)), trees.build(digests)
    assert [tuple(level) for level in packed.levels] == list(plain.levels)
    assert (packed.root, packed.count, packed.depth) == (plain.root, plain.count, plain.depth)
    for index in range(count):
        assert packed.proof(index) == plain.proof(index)
        assert packed.range_proof(index, count) == plain.range_proof(index, count)
    level = packed.levels[0]
    assert level[-1] == digests[-1] and level[:2] == digests[:2]
    with pytest.raises(IndexError):
        level[count]
    with pytest.raises(ValueError, match="at least one leaf"):
        trees.build_packed([])
