"""Implements the `Blocks` port of a running node: the local store first, then its peers.

Contract: everything returned is verified; everything fetched is stored. `read_file` checks a file's shape
from its inner nodes before it requests any leaf. Missing leaves are fetched as one CAR stream or, if few,
singly and concurrently. A corrupt local block is moved aside and fetched again.

Not guaranteed: that fetched blocks survive a power failure (they are not synced one by one; a damaged one is
detected on reading and fetched again) or that they outlive `gc` unless pinned.

Source: docs/decisions/0002-storage.md
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from io import BytesIO
from random import Random
from types import TracebackType
from typing import BinaryIO

from assay.blocks import unixfs
from assay.blocks.blockstore import MAX_BLOCK_BYTES, MAX_DAG_LINKS, BlockStore
from assay.blocks.dagpb import children
from assay.blocks.exchange import Exchange
from assay.blocks.hedged_requests import FileDeadline, Hold
from assay.protocol.cid import DAG_PB, RAW, Cid
from assay.protocol.errors import BlockNotFound, CorruptBlock

CAR_FROM_LEAVES = 8
HELD_BYTES = 64 << 20
"""Maximum bytes of a file's leaves held in memory while it is fetched."""


class NodeBlocks:
    """A local store backed by peers; implements `protocol.ports.Blocks`. Thread-safe."""

    def __init__(self, store: BlockStore, exchange: Exchange) -> None:
        self.store = store
        self.exchange = exchange

    def put(self, data: bytes, codec: int = RAW) -> str:
        """Store one block and return its CID. Raises `BlockTooLarge`."""
        return self.store.put(data, codec)

    def get(self, cid: str) -> bytes:
        """Reads a block from the local store or a peer. Raises `BadCid`, `BlockNotFound`."""
        block = Cid.parse(cid)
        if self.exchange.hold is None:
            return self._get(block)
        with self.exchange.times.of(block, held=True) as time:
            return self._get(block, time)

    def has(self, cid: str) -> bool:
        """True if the block is stored locally."""
        return self.store.has(cid)

    def holds(self, cid: str) -> bool:
        """True if the block and all below it are stored locally."""
        return self.store.holds(cid)

    def add_file(self, data: bytes | BinaryIO) -> str:
        """Store a file and return its root CID."""
        return self.store.add_file(data)

    def together(self) -> AbstractContextManager[None]:
        """Makes what is stored within durable at the end of the `with` block."""
        return self.store.together()

    def read_file(self, cid: str, max_bytes: int) -> bytes:
        """Reads a whole file, fetching what is missing within one `FileDeadline`.

        Raises `BadDag`, `FileTooLarge`, `BlockNotFound`, and `Deferred` within `within`.
        """
        whole = BytesIO()
        for chunk in self._chunks(cid, max_bytes):
            whole.write(chunk)
        return whole.getvalue()

    def fetch(self, cid: str, max_bytes: int) -> None:
        """Fetches a whole file to the local store without holding it in memory. Raises as `read_file`."""
        for _ in self._chunks(cid, max_bytes):
            pass

    def _chunks(self, cid: str, max_bytes: int) -> Iterator[bytes]:
        root, limits = Cid.parse(cid), unixfs.Limits(max_bytes)
        with self.exchange.times.of(root, self.exchange.hold is not None) as time:
            plan = unixfs.plan_file(root, lambda cid: self._get(cid, time), limits)
            fetched = self._prefetch(plan, time)
            yield from unixfs.iter_file(
                plan, lambda cid: fetched.pop(cid, None) or self._get(cid, time), limits
            )

    def holes(self, cid: str, max_bytes: int, order: Random, most: int) -> list[range]:
        """Byte ranges of a file's blocks that are unavailable within one `FileDeadline` (`unixfs.holes`).

        Raises `BadCid`, and `Deferred` within `within`.
        """
        root, limits = Cid.parse(cid), unixfs.Limits(max_bytes)
        with self.exchange.times.of(root, self.exchange.hold is not None) as time:
            return unixfs.holes(root, lambda cid: self._get(cid, time), limits, order, most)

    def within(self, seconds: float) -> AbstractContextManager[None]:
        """Limits the total time of all fetches within its `with` blocks, of any threads.

        Beyond it `Deferred` is raised; blocks received so far are kept.
        """
        return _Within(self.exchange, Hold(seconds))

    def pin(self, cid: str) -> None:
        """Fetches missing blocks of the DAG and protects it from `gc`. Raises `BlockNotFound`, `BadDag`."""
        stack, seen = [Cid.parse(cid)], set[Cid]()
        missing: list[Cid] = []
        while stack:
            block = stack.pop()
            if block in seen:
                continue
            seen.add(block)
            if block.codec == DAG_PB:
                stack.extend(children(block, self._get(block), MAX_DAG_LINKS))
            elif not self.store.has_block(block):
                missing.append(block)
        self.exchange.fetch_many(missing)
        self.store.pin(cid)

    def _get(self, cid: Cid, within: FileDeadline | None = None) -> bytes:
        try:
            return self.store.get_block(cid)
        except (BlockNotFound, CorruptBlock):
            return self.exchange.fetch_block(cid, within)

    def _prefetch(self, plan: unixfs.FilePlan, time: FileDeadline) -> dict[Cid, bytes]:
        """Fetches missing leaves of a file; returns those of the CAR stream, up to HELD_BYTES.

        They are verified, and need not be read from disk and hashed again.
        """
        leaves = {leaf.cid: leaf.size_bytes for leaf in plan.leaves}
        missing = {cid for cid in leaves if not self.store.has_block(cid)}
        held: dict[Cid, bytes] = {}
        worth_it = len(missing) >= CAR_FROM_LEAVES and 2 * len(missing) >= len(leaves)
        if worth_it and not time.resumed:  # a stream begins anew, and would bring what is here already
            leaf_bytes = sum(size or MAX_BLOCK_BYTES for size in leaves.values())
            max_bytes = leaf_bytes + MAX_BLOCK_BYTES * len(set(plan.nodes))
            allowed = {*plan.nodes, *leaves}
            room = HELD_BYTES

            def take(cid: Cid, data: bytes) -> None:
                nonlocal room
                if len(data) <= room:
                    held[cid] = data
                    room -= len(data)

            missing = self.exchange.fetch_car(plan.root, missing, allowed, max_bytes, take)
        self.exchange.fetch_many(missing, time)
        return held


class _Within(AbstractContextManager[None]):
    """A reusable context manager of an exchange's hold."""

    def __init__(self, exchange: Exchange, hold: Hold) -> None:
        self._exchange, self._hold = exchange, hold

    def __enter__(self) -> None:
        self._exchange.hold = self._hold

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exchange.hold = None
