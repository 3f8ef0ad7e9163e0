"""Builds and verifies SHA-256 Merkle trees with a declared number of leaves (docs/protocol.md, section 1).

Contract: ``root``, ``proof`` and ``range_proof`` agree bit for bit with
``contracts/src/libraries/Merkle.sol``. The number of leaves is always an argument, never read from a proof.
The meaning of a digest is the caller's.

Source: RFC 6962 section 2.1 for the domain separation of leaves and nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import overload

LEAF_BYTES = 2048
PACKED_BYTES = 64
"""Bytes of memory for each leaf of a `build_packed` tree, with all digests above it."""
ZERO = bytes(32)


def leaf(data: bytes | memoryview) -> bytes:
    """Digest of a leaf's bytes."""
    return sha256(b"\x00" + data).digest()


def prefix(key: bytes = b"") -> bytes:
    """Bytes that are hashed before a leaf's bytes."""
    return b"\x02" + key if key else b"\x00"


def keyed_leaf(key: bytes, data: bytes | memoryview) -> bytes:
    """Digest of a leaf's bytes under a verifier's 32-byte `key`, so that nobody can copy another's digest."""
    return sha256(b"\x02" + key + data).digest()


def node(left: bytes, right: bytes) -> bytes:
    """Digest of an inner node."""
    return sha256(b"\x01" + left + right).digest()


def depth(leaves: int) -> int:
    """Levels above the leaves of a tree with `leaves` leaves, at least 1."""
    if leaves < 1:
        raise ValueError(f"a tree has at least one leaf, not {leaves}")
    return (leaves - 1).bit_length()


def _zero_digests(count: int) -> tuple[bytes, ...]:
    digests = [ZERO]
    for _ in range(count - 1):
        digests.append(node(digests[-1], digests[-1]))
    return tuple(digests)


ZEROS = _zero_digests(64)
"""``ZEROS[h]``: root of a subtree of height h that is all padding."""


class Digests(Sequence[bytes]):
    """Sequence of digests packed in 32 bytes each; a bytes object takes 73."""

    def __init__(self, joined: bytes | bytearray) -> None:
        self._joined = joined

    def __len__(self) -> int:
        return len(self._joined) // 32

    @overload
    def __getitem__(self, place: int) -> bytes: ...
    @overload
    def __getitem__(self, place: slice) -> list[bytes]: ...
    def __getitem__(self, place: int | slice) -> bytes | list[bytes]:
        if isinstance(place, slice):
            return [self[i] for i in range(len(self))[place]]
        at = 32 * range(len(self))[place]
        return bytes(self._joined[at : at + 32])


@dataclass(frozen=True)
class Tree:
    """All digests of a tree by level; level 0 is the leaves, without padding.

    Memory: about 150 bytes a leaf, or `PACKED_BYTES` if `build_packed` made it.
    """

    levels: tuple[Sequence[bytes], ...]

    @property
    def count(self) -> int:
        return len(self.levels[0])

    @property
    def depth(self) -> int:
        return len(self.levels) - 1

    @property
    def root(self) -> bytes:
        return self.levels[-1][0]

    def digest(self, level: int, index: int) -> bytes:
        """Digest at `index` of `level` (0 = leaves), padding included. Raises IndexError outside the padded
        tree."""
        if not 0 <= level <= self.depth or not 0 <= index < 1 << (self.depth - level):
            raise IndexError(f"no digest at level {level}, index {index} of a tree of depth {self.depth}")
        row = self.levels[level]
        return row[index] if index < len(row) else ZEROS[level]

    def descendants(self, level: int, index: int, down: int) -> list[bytes]:
        """The 2^down digests `down` levels below the one at (`level`, `index`), left to right."""
        return [self.digest(level - down, (index << down) + i) for i in range(1 << down)]

    def proof(self, index: int) -> list[bytes]:
        """Siblings of leaf `index`, bottom-up. Raises IndexError."""
        if not 0 <= index < self.count:
            raise IndexError(f"no leaf {index} in a tree of {self.count}")
        return [self.digest(level, (index >> level) ^ 1) for level in range(self.depth)]

    def range_proof(self, start: int, stop: int) -> list[bytes]:
        """Siblings that lead from leaves [start, stop) to the root (rule 1.3). Raises IndexError."""
        if not 0 <= start < stop <= self.count:
            raise IndexError(f"no leaves [{start}, {stop}) in a tree of {self.count}")
        siblings = []
        for level in range(self.depth):
            if start & 1:
                siblings.append(self.digest(level, start - 1))
            if stop & 1:
                siblings.append(self.digest(level, stop))
            start, stop = start >> 1, (stop + 1) >> 1
        return siblings


def _parents(row: Sequence[bytes], level: int) -> list[bytes]:
    """Digests of the level above; an odd row is padded."""
    below = b"".join(row) + (ZEROS[level] if len(row) % 2 else b"")
    return [sha256(b"\x01" + below[i : i + 64]).digest() for i in range(0, len(below), 64)]


def build(digests: Sequence[bytes]) -> Tree:
    """Builds a tree over leaf digests. Raises ValueError if there are none."""
    levels = [tuple(digests)]
    for level in range(depth(len(digests))):
        levels.append(tuple(_parents(levels[-1], level)))
    return Tree(tuple(levels))


def build_packed(digests: Iterable[bytes]) -> Tree:
    """As `build`, in packed memory, for large trees. Raises ValueError if there are no leaves."""
    row = bytearray()
    for digest in digests:
        row += digest
    levels = [Digests(row)]
    for level in range(depth(len(levels[0]))):
        if len(levels[-1]) % 2:
            row = row + ZEROS[level]
        above = bytearray()
        for at in range(0, len(row), 64):
            above += sha256(b"\x01" + row[at : at + 64]).digest()
        levels.append(Digests(above))
        row = above
    return Tree(tuple(levels))


def root(digests: Sequence[bytes]) -> bytes:
    """Root of the tree over leaf digests."""
    return build(digests).root


def fold(digest: bytes, index: int, siblings: Sequence[bytes]) -> bytes:
    """Computes the root from a leaf digest and its membership proof."""
    return _climb(digest, index, siblings)[-1]


def _climb(digest: bytes, index: int, siblings: Sequence[bytes]) -> list[bytes]:
    """Digests on the path from a leaf up, one for each sibling."""
    nodes = [digest]
    for level, sibling in enumerate(siblings):
        right = index >> level & 1
        nodes.append(node(sibling, nodes[-1]) if right else node(nodes[-1], sibling))
    return nodes


def verify(root_: bytes, leaves: int, index: int, digest: bytes, siblings: Sequence[bytes]) -> bool:
    """True if `digest` is leaf `index` of the tree of `leaves` leaves with root `root_`."""
    if not 0 <= index < leaves or len(siblings) != depth(leaves):
        return False
    return fold(digest, index, siblings) == root_


def siblings_below_join(before: int, leaf: int, siblings: Sequence[bytes]) -> tuple[bytes, ...]:
    """The siblings of `leaf` below the node where its path joins that of leaf `before`."""
    return tuple(siblings[: max((before ^ leaf).bit_length() - 1, 0)])


class MultiProof:
    """Verifies leaves of one tree in turn; each proof omits what it shares with the previous leaf's.

    Rule 1.3 of docs/protocol.md. Do not use the object after it has refused a leaf.
    """

    def __init__(self, root_: bytes, leaves: int) -> None:
        self._root, self._leaves = root_, leaves
        self._leaf: int | None = None
        self._nodes: list[bytes] = []
        self._siblings: list[bytes] = []

    def proves(self, leaf_: int, digest: bytes, siblings: Sequence[bytes]) -> bool:
        """True if `digest` is leaf `leaf_`. The first leaf brings all its siblings, the others
        `siblings_below_join`."""
        before, self._leaf = self._leaf, leaf_
        nodes = _climb(digest, leaf_, siblings)
        if before is None:
            self._nodes, self._siblings = nodes, list(siblings)
            whole = 0 <= leaf_ < self._leaves and len(siblings) == depth(self._leaves)
            return whole and nodes[-1] == self._root
        if leaf_ == before:
            return not siblings and digest == self._nodes[0]
        level = (before ^ leaf_).bit_length() - 1
        if len(siblings) != level or nodes[level] != self._siblings[level]:
            return False
        self._siblings[: level + 1] = [*siblings, self._nodes[level]]
        self._nodes[: level + 1] = nodes
        return True


def fold_range(leaves: int, start: int, digests: Sequence[bytes], siblings: Sequence[bytes]) -> bytes | None:
    """Computes the root from a range proof; None if the range or the number of siblings is wrong."""
    stop = start + len(digests)
    if not digests or not 0 <= start < stop <= leaves:
        return None
    row, rest = list(digests), list(siblings)
    for _ in range(depth(leaves)):
        if start & 1:
            if not rest:
                return None
            row.insert(0, rest.pop(0))
        if stop & 1:
            if not rest:
                return None
            row.append(rest.pop(0))
        start, stop = start >> 1, (stop + 1) >> 1
        row = [node(row[i], row[i + 1]) for i in range(0, len(row), 2)]
    return None if rest else row[0]


def verify_range(
    root_: bytes, leaves: int, start: int, digests: Sequence[bytes], siblings: Sequence[bytes]
) -> bool:
    """True if `digests` are consecutive leaves from `start` of the tree of `leaves` leaves with root
    `root_`."""
    return fold_range(leaves, start, digests, siblings) == root_


def split_leaves(data: bytes | memoryview) -> list[memoryview]:
    """Splits a tensor's bytes into leaves of LEAF_BYTES; the last may be shorter."""
    view = memoryview(data).cast("B")
    if not len(view):
        raise ValueError("a tensor has at least one element")
    return [view[i : i + LEAF_BYTES] for i in range(0, len(view), LEAF_BYTES)]


def tensor_tree(data: bytes | memoryview, key: bytes = b"") -> Tree:
    """Builds the tree over a tensor's canonical bytes, keyed if `key` is given (rule 1.4)."""
    begun = sha256(prefix(key))
    digests = []
    for part in split_leaves(data):
        digest = begun.copy()
        digest.update(part)
        digests.append(digest.digest())
    return build(digests)


def tensor_root(data: bytes | memoryview, key: bytes = b"") -> bytes:
    """Root of `tensor_tree`."""
    return tensor_tree(data, key).root
