"""Files as UnixFS DAGs: the same CIDs as Kubo's `ipfs add --cid-version=1`, and reading that survives
hostile DAGs.

Contract of `add_file`: raw leaves of 256 KiB, a balanced tree of dag-pb nodes with at most 174 links,
sha2-256. A file of one chunk is that raw leaf, the empty file is the empty raw leaf. Memory use does
not grow with the file.

Contract of `plan_file` / `iter_file` / `read_file`: a file is either refused with `BadDag` or returned
whole, with every leaf's length as declared by all of its ancestors. The shape is checked before any
leaf is fetched.
INVARIANT bounded-walk: visits <= max_visits, depth <= max_depth, links per node <= max_links and
declared size <= max_bytes hold before the next block is asked for, so a small DAG cannot demand
unbounded work.

Does not guarantee: that the block source is honest; it must return only bytes that match the CID asked
for (as `BlockStore.get` does). Chunk size and arity of a read file may differ from this module's own;
inline data, dag-pb leaves, metadata, directories and empty children are refused.

Source: https://specs.ipfs.tech/unixfs/; layout: github.com/ipfs/boxo
ipld/unixfs/importer/balanced/builder.go
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import BinaryIO

from assay.blocks.dagpb import BadDag, Link, Node, decode_file, decode_node, encode_file, encode_node
from assay.protocol.cid import DAG_PB, RAW, Cid
from assay.protocol.errors import BlockNotFound, BlockTooLarge, CorruptBlock, PeerUnreachable

CHUNK_BYTES = 256 * 1024
MAX_LINKS = 174

Get = Callable[[Cid], bytes]
Put = Callable[[bytes, Cid], None]
LOST = (BlockNotFound, CorruptBlock, PeerUnreachable, BlockTooLarge, BadDag)
"""Errors of a block that is unavailable or unusable."""


class FileTooLarge(BadDag, BlockTooLarge):
    """The file declares or has more bytes than the caller allows."""

    code = "file-too-large"


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on the walk of one file. `max_visits` counts every link followed, repeated blocks
    included."""

    max_bytes: int
    max_depth: int = 6
    max_links: int = 1024
    max_visits: int = 0

    def visits(self) -> int:
        """The effective visit bound: when not given, one per 4 KiB of `max_bytes`, and at least
        1024."""
        return self.max_visits or 1024 + self.max_bytes // 4096


@dataclass(frozen=True, slots=True)
class Leaf:
    """One raw block of a file; `size_bytes` is None only for a file of a single raw block.

    In a torn file also an unavailable inner node.
    """

    cid: Cid
    size_bytes: int | None


@dataclass(frozen=True, slots=True)
class FilePlan:
    """A checked file shape: its declared size (None: one raw block), its inner nodes and its leaves in
    file order."""

    root: Cid
    size_bytes: int | None
    nodes: tuple[Cid, ...]
    leaves: tuple[Leaf, ...]


@dataclass(frozen=True, slots=True)
class _Built:
    cid: Cid
    size_bytes: int
    tsize_bytes: int


def add_file(
    data: bytes | BinaryIO, put: Put, *, chunk_bytes: int = CHUNK_BYTES, max_links: int = MAX_LINKS
) -> Cid:
    """Splits a file into blocks, passes each to `put` (children first) and returns the root's CID."""
    source = io.BytesIO(data) if isinstance(data, bytes | bytearray | memoryview) else data
    levels: list[list[_Built]] = [[]]
    while chunk := _read_chunk(source, chunk_bytes):
        _push(levels, 0, _put_leaf(chunk, put), put, max_links)
    if not any(levels):
        return _put_leaf(b"", put).cid
    depth = 0
    while depth < len(levels):
        level, above = levels[depth], any(levels[depth + 1 :])
        if not above and len(level) == 1:
            return level[0].cid
        if level:
            levels[depth] = []
            _push(levels, depth + 1, _put_node(level, put), put, max_links)
        depth += 1
    raise AssertionError("a non-empty tree has a root")


def plan_file(root: Cid, get: Get, limits: Limits, *, torn: bool = False) -> FilePlan:
    """Fetches and checks all inner nodes of a file. Raises `BadDag`, `FileTooLarge`, and whatever `get`
    raises.

    `torn`: an unavailable or invalid inner node below the root counts as a leaf.
    """
    if root.codec == RAW:
        return FilePlan(root, None, (), (Leaf(root, None),))
    walk = _Walk(get, limits, LOST if torn else ())
    size = walk.visit_root(root)
    return FilePlan(root, size, tuple(walk.nodes), tuple(walk.leaves))


def iter_file(plan: FilePlan, get: Get, limits: Limits) -> Iterator[bytes]:
    """The file's bytes in order, one chunk per leaf. Raises `BadDag` when a leaf is not as long as
    declared."""
    for leaf in plan.leaves:
        chunk = get(leaf.cid)
        if leaf.size_bytes is None and len(chunk) > limits.max_bytes:
            raise FileTooLarge(_too_large(plan.root, len(chunk), limits), hint=_HINT)
        if leaf.size_bytes is not None and len(chunk) != leaf.size_bytes:
            raise BadDag(
                f"leaf {leaf.cid} has {len(chunk)} bytes where file {plan.root} declares {leaf.size_bytes}",
                hint=_HINT,
            )
        yield chunk


def join_file(plan: FilePlan, get: Get, limits: Limits) -> bytes:
    """The bytes of `iter_file` in one piece, without holding all chunks beside the result."""
    buffer = io.BytesIO()
    for chunk in iter_file(plan, get, limits):
        buffer.write(chunk)
    return buffer.getvalue()


def read_file(root: Cid, get: Get, limits: Limits) -> bytes:
    """The whole file. Raises `BadDag`, `FileTooLarge`, and whatever `get` raises."""
    return join_file(plan_file(root, get, limits), get, limits)


def holes(root: Cid, get: Get, limits: Limits, order: Random, most: int) -> list[range]:
    """Byte ranges of a file's unavailable blocks: the first `most` in a random order.

    [0, max_bytes) if its root is unavailable or it is not a file of max_bytes. Fetches what it can of the
    rest.
    """
    whole = [range(limits.max_bytes)]
    try:
        plan = plan_file(root, get, limits, torn=True)
    except LOST:
        return whole
    if plan.size_bytes not in (None, limits.max_bytes):
        return whole
    spans, at = [], 0
    for leaf in plan.leaves:
        end = at + (limits.max_bytes if leaf.size_bytes is None else leaf.size_bytes)
        spans.append((leaf, range(at, end)))
        at = end
    order.shuffle(spans)
    missing = (span for leaf, span in spans if not _there(leaf, len(span), get))
    return list(islice(missing, most))


def _there(leaf: Leaf, size_bytes: int, get: Get) -> bool:
    try:
        return leaf.cid.codec == RAW and len(get(leaf.cid)) == size_bytes
    except LOST:
        return False


class _Walk:
    """Depth-first walk over inner nodes, checking every declared size against its parent's."""

    def __init__(self, get: Get, limits: Limits, lost: tuple[type[Exception], ...] = ()) -> None:
        self.nodes: list[Cid] = []
        self.leaves: list[Leaf] = []
        self._get = get
        self._limits = limits
        self._lost = lost
        self._budget = limits.visits()

    def visit_root(self, root: Cid) -> int:
        node, sizes, _ = self._load(root)
        size = sum(sizes)
        if size > self._limits.max_bytes:
            raise FileTooLarge(_too_large(root, size, self._limits), hint=_HINT)
        self._visit_children(root, node, sizes, (root,))
        return size

    def _visit_children(self, cid: Cid, node: Node, sizes: tuple[int, ...], path: tuple[Cid, ...]) -> None:
        if len(path) > self._limits.max_depth:
            raise BadDag(f"file {path[0]} is nested deeper than {self._limits.max_depth} levels", hint=_HINT)
        for link, size in zip(node.links, sizes, strict=True):
            self._spend(path[0])
            if link.cid.codec == RAW:
                if link.tsize_bytes != size:
                    raise BadDag(f"node {cid} gives two sizes for leaf {link.cid}", hint=_HINT)
                self.leaves.append(Leaf(link.cid, size))
                continue
            if link.cid in path:
                raise BadDag(f"file {path[0]} contains itself through {link.cid}", hint=_HINT)
            try:
                child, child_sizes, tsize = self._load(link.cid)
            except self._lost:
                self.leaves.append(Leaf(link.cid, size))
                continue
            if sum(child_sizes) != size or tsize != link.tsize_bytes:
                raise BadDag(f"node {link.cid} is not as large as its parent {cid} declares", hint=_HINT)
            self._visit_children(link.cid, child, child_sizes, (*path, link.cid))

    def _load(self, cid: Cid) -> tuple[Node, tuple[int, ...], int]:
        data = self._get(cid)
        node = decode_node(data, self._limits.max_links)
        sizes = decode_file(node.data or b"")
        if not sizes or len(sizes) != len(node.links):
            raise BadDag(f"node {cid} has {len(node.links)} links and {len(sizes)} sizes", hint=_HINT)
        if 0 in sizes or any(link.name for link in node.links):
            raise BadDag(f"node {cid} has an empty or a named child, which a file never has", hint=_HINT)
        self.nodes.append(cid)
        return node, sizes, len(data) + sum(link.tsize_bytes for link in node.links)

    def _spend(self, root: Cid) -> None:
        if self._budget == 0:
            raise BadDag(f"file {root} has more than {self._limits.visits()} blocks", hint=_HINT)
        self._budget -= 1


def _read_chunk(source: BinaryIO, size: int) -> bytes:
    parts: list[bytes] = []
    while size > 0 and (part := source.read(size)):
        parts.append(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _put_leaf(chunk: bytes, put: Put) -> _Built:
    cid = Cid.of(chunk, RAW)
    put(chunk, cid)
    return _Built(cid, len(chunk), len(chunk))


def _put_node(level: list[_Built], put: Put) -> _Built:
    links = tuple(Link(child.cid, "", child.tsize_bytes) for child in level)
    sizes = tuple(child.size_bytes for child in level)
    block = encode_node(Node(links, encode_file(sizes)))
    cid = Cid.of(block, DAG_PB)
    put(block, cid)
    return _Built(cid, sum(sizes), len(block) + sum(child.tsize_bytes for child in level))


def _push(levels: list[list[_Built]], depth: int, item: _Built, put: Put, max_links: int) -> None:
    while True:
        if depth == len(levels):
            levels.append([])
        levels[depth].append(item)
        if len(levels[depth]) < max_links:
            return
        full, levels[depth] = levels[depth], []
        item = _put_node(full, put)
        depth += 1


def _too_large(root: Cid, size_bytes: int, limits: Limits) -> str:
    return f"file {root} has {size_bytes} bytes, more than the {limits.max_bytes} allowed here"


_HINT = "refuse this CID; its author must publish a file within the limits"
