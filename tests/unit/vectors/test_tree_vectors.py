"""Trees, proofs and draws from the shared vectors (attack 38); ``spec/vectors/trees.py`` describes the
format.

``contracts/test/market/TreeVectors.t.sol`` reads the same file.
"""

from __future__ import annotations

import struct
from pathlib import Path

from assay.protocol import sampling, trees
from assay.protocol.types import Address, Loop

FILE = Path(__file__).parents[2] / "vectors" / "trees.bin"


class Reader:
    """The file, read once from the front."""

    def __init__(self) -> None:
        self.data, self.at = FILE.read_bytes(), 0

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def take(self, size: int) -> bytes:
        self.at += size
        return self.data[self.at - size : self.at]

    def digests(self, count: int) -> list[bytes]:
        return [self.take(32) for _ in range(count)]


def check_tree(reader: Reader) -> None:
    digests = reader.digests(reader.number(2))
    tree, n, root = trees.build(digests), len(digests), reader.take(32)
    assert tree.root == root == trees.root(digests)
    index = reader.number(2)
    proof = reader.digests(reader.number(1))
    assert tree.proof(index) == proof
    assert trees.verify(root, n, index, digests[index], proof)
    start, stop = reader.number(2), reader.number(2)
    siblings = reader.digests(reader.number(1))
    assert tree.range_proof(start, stop) == siblings
    assert trees.verify_range(root, n, start, digests[start:stop], siblings)


def check_leaf(reader: Reader) -> None:
    data, plain, key, keyed = (reader.take(n) for n in (reader.number(2), 32, 32, 32))
    assert trees.leaf(data) == plain and trees.keyed_leaf(key, data) == keyed


def check_draw(reader: Reader) -> None:
    seed, verifier, key = reader.take(32), Address("0x" + reader.take(20).hex()), reader.take(32)
    counts = [(reader.number(2), reader.number(2)) for _ in range(reader.number(1))]
    loops = [Loop(bytes(32), 1, 3 * segments, 3, samples) for segments, samples in counts]
    samples = sum(loop.samples for loop in loops)
    drawn = list(struct.unpack(f">{samples}H", reader.take(2 * samples)))
    assert sampling.verifier_key(verifier, seed) == key
    assert sampling.sample_segments(seed, verifier, loops) == drawn


def test_every_tree_leaf_and_draw_is_what_the_file_says() -> None:
    reader = Reader()
    for check, fewest in ((check_tree, 60), (check_leaf, 10), (check_draw, 10)):
        count = reader.number(4)
        assert count >= fewest
        for _ in range(count):
            check(reader)
    assert reader.at == len(reader.data)
