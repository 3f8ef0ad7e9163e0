"""Trees, draws and samples: every proof proves one thing, and one changed bit proves nothing."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from assay.protocol import sampling, trees
from assay.protocol.encoding import encode, words
from assay.protocol.types import Address, ProgramRef
from tests.fakes.shapes import lone

DIGESTS = st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=40)
DIGEST = st.binary(min_size=32, max_size=32)
ADDRESSES = st.binary(min_size=20, max_size=20).map(lambda raw: Address("0x" + raw.hex()))


def flipped(data: bytes, bit: int) -> bytes:
    at = bit % (8 * len(data))
    return bytes(b ^ (1 << at % 8 if i == at // 8 else 0) for i, b in enumerate(data))


@given(DIGESTS, st.data())
def test_a_proof_shows_its_leaf_at_its_place_and_nothing_else(
    digests: list[bytes], data: st.DataObject
) -> None:
    """Attack 38: no changed bit, other index, other length or other count passes."""
    tree, n = trees.build(digests), len(digests)
    index, bit = data.draw(st.integers(0, n - 1)), data.draw(st.integers(0, 255))
    proof = tree.proof(index)
    assert trees.verify(tree.root, n, index, digests[index], proof)
    assert not trees.verify(tree.root, n, index, flipped(digests[index], bit), proof)
    assert not trees.verify(flipped(tree.root, bit), n, index, digests[index], proof)
    assert not trees.verify(tree.root, n, index, digests[index], [*proof, bytes(32)])
    assert not trees.verify(tree.root, n, n, digests[index], proof)
    assert not trees.verify(tree.root, n, -1, digests[index], proof)
    if proof:
        at = data.draw(st.integers(0, len(proof) - 1))
        changed = [*proof[:at], flipped(proof[at], bit), *proof[at + 1 :]]
        assert not trees.verify(tree.root, n, index, digests[index], changed)
        assert not trees.verify(tree.root, n, index, digests[index], proof[:-1])


@given(DIGESTS, st.data())
def test_a_range_proof_shows_its_leaves_and_nothing_else(digests: list[bytes], data: st.DataObject) -> None:
    tree, n = trees.build(digests), len(digests)
    start = data.draw(st.integers(0, n - 1))
    stop = data.draw(st.integers(start + 1, n))
    row, siblings = digests[start:stop], tree.range_proof(start, stop)
    assert trees.verify_range(tree.root, n, start, row, siblings)
    parts = [*row, *siblings]
    at, bit = data.draw(st.integers(0, len(parts) - 1)), data.draw(st.integers(0, 255))
    parts[at] = flipped(parts[at], bit)
    assert not trees.verify_range(tree.root, n, start, parts[: len(row)], parts[len(row) :])
    assert not trees.verify_range(tree.root, n, start, row, [*siblings, bytes(32)])
    assert not trees.verify_range(tree.root, n, start, row[:-1], siblings)
    if siblings:
        assert not trees.verify_range(tree.root, n, start, row, siblings[:-1])


@given(DIGESTS, st.data())
def test_descendants_fold_to_their_ancestor(digests: list[bytes], data: st.DataObject) -> None:
    tree = trees.build(digests)
    level = data.draw(st.integers(0, tree.depth))
    index = data.draw(st.integers(0, (1 << (tree.depth - level)) - 1))
    down = data.draw(st.integers(0, level))
    children = tree.descendants(level, index, down)
    assert len(children) == 1 << down
    assert trees.root(children) == tree.digest(level, index)


@given(st.binary(min_size=1, max_size=3 * trees.LEAF_BYTES), st.integers(0), DIGEST)
def test_one_bit_of_a_tensor_changes_its_root(data: bytes, bit: int, key: bytes) -> None:
    root, keyed = trees.tensor_root(data), trees.tensor_root(data, key)
    assert root != keyed
    changed = flipped(data, bit)
    assert trees.tensor_root(changed) != root and trees.tensor_root(changed, key) != keyed
    assert trees.tensor_root(data, flipped(key, bit)) != keyed


@given(DIGEST, ADDRESSES, st.integers(1, 40), st.data())
def test_samples_are_distinct_segments_and_a_prefix_of_longer_ones(
    seed: bytes, verifier: Address, segments: int, data: st.DataObject
) -> None:
    samples = data.draw(st.integers(1, segments))
    drawn = sampling.sample_segments(seed, verifier, lone(samples, segments))
    assert len(set(drawn)) == samples and all(0 <= s < segments for s in drawn)
    assert sampling.sample_segments(seed, verifier, lone(segments, segments))[:samples] == drawn
    assert sorted(sampling.sample_segments(seed, verifier, lone(segments, segments))) == list(range(segments))


@given(DIGEST, DIGEST, ADDRESSES, ADDRESSES)
def test_a_key_belongs_to_one_verifier_and_one_seed(
    seed: bytes, other: bytes, verifier: Address, another: Address
) -> None:
    key = sampling.verifier_key(verifier, seed)
    assert (sampling.verifier_key(verifier, other) == key) == (seed == other)
    assert (sampling.verifier_key(another, seed) == key) == (verifier == another)


@given(DIGEST, st.integers(0, 2**32 - 1), st.integers(0, 2**63), st.integers(0, 2**32 - 1))
def test_record_indices_depend_on_every_counter(seed: bytes, shard: int, step: int, row: int) -> None:
    many = 2**62
    index = sampling.record_index(seed, shard, step, row, many)
    assert 0 <= index < many
    assert index != sampling.record_index(flipped(seed, 0), shard, step, row, many)
    assert index != sampling.record_index(seed, shard ^ 1, step, row, many)
    assert index != sampling.record_index(seed, shard, step ^ 1, row, many)
    assert index != sampling.record_index(seed, shard, step, row ^ 1, many)
    assert sampling.record_index(seed, shard, step, row, 1) == 0


@given(DIGEST, st.integers(0, 2**32 - 1), st.data())
def test_words_of_different_values_differ(root: bytes, count: int, data: st.DataObject) -> None:
    ref = ProgramRef(root, count, count, count)
    name = data.draw(st.sampled_from([f.name for f in fields(ref)]))
    changed: dict[str, Any] = {name: flipped(root, 3) if name == "root" else count ^ 1}
    other = replace(ref, **changed)
    assert len(words(ref)) == 128 and words(ref) != words(other)
    assert encode(ref, count) == words(ref) + words(count)
