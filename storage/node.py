"""The `Blocks` port of a running node: the local store first, then its peers.

Contract: everything returned is verified; everything fetched is stored. `read_file` checks a file's
shape from its inner nodes alone, before it asks for any leaf, then fetches missing leaves as one CAR
stream or, for a few, singly and concurrently. A local block that turns out corrupt is set aside and
fetched again.

Does not guarantee: that fetched blocks survive a power cut (they are not synced to disk one by one; a
damaged one is noticed on reading and fetched again) or that they outlive `gc` unless pinned.

Source: docs/decisions/0002-storage.md
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from random import Random
from typing import BinaryIO

from assay.protocol.errors import BlockNotFound, CorruptBlock
from assay.storage import unixfs
from assay.storage.blockstore import MAX_BLOCK_BYTES, MAX_DAG_LINKS, BlockStore
from assay.storage.cid import DAG_PB, RAW, Cid
from assay.storage.dagpb import children
from assay.storage.exchange import Exchange
from assay.storage.race import FileTime

CAR_FROM_LEAVES = 8
HELD_BYTES = 64 << 20
"""Of a file that is being fetched, beside the file itself."""


class NodeBlocks:
    """A local store backed by peers; implements `protocol.ports.Blocks`. Thread-safe."""

    def __init__(self, store: BlockStore, exchange: Exchange) -> None:
        self.store = store
        self.exchange = exchange

    def put(self, data: bytes, codec: int = RAW) -> str:
        """Store one block and return its CID. Raises `BlockTooLarge`."""
        return self.store.put(data, codec)

    def get(self, cid: str) -> bytes:
        """The block, from here or from a peer. Raises `BadCid`, `BlockNotFound`."""
        return self._get(Cid.parse(cid))

    def has(self, cid: str) -> bool:
        """True when the block is stored here."""
        return self.store.has(cid)

    def add_file(self, data: bytes | BinaryIO) -> str:
        """Store a file and return its root CID."""
        return self.store.add_file(data)

    def together(self) -> AbstractContextManager[None]:
        """What is stored within is durable at the end of the `with` block."""
        return self.store.together()

    def read_file(self, cid: str, max_bytes: int) -> bytes:
        """The whole file, fetching what is missing, all of it within one `file_time`. Raises `BadDag`,
        `FileTooLarge`, `BlockNotFound`."""
        root, limits = Cid.parse(cid), unixfs.Limits(max_bytes)
        time = self.exchange.file_time()
        plan = unixfs.plan_file(root, lambda cid: self._get(cid, time), limits)
        fetched = self._prefetch(plan, time)
        return unixfs.join_file(plan, lambda leaf: fetched.pop(leaf, None) or self._get(leaf, time), limits)

    def holes(self, cid: str, max_bytes: int, order: Random, most: int) -> list[range]:
        """Byte ranges of a file's blocks that cannot be had (`unixfs.holes`). Raises `BadCid`."""
        return unixfs.holes(Cid.parse(cid), self._get, unixfs.Limits(max_bytes), order, most)

    def pin(self, cid: str) -> None:
        """Fetch what is missing of the DAG and protect it from `gc`. Raises `BlockNotFound`,
        `BadDag`."""
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

    def _get(self, cid: Cid, within: FileTime | None = None) -> bytes:
        try:
            return self.store.get_block(cid)
        except (BlockNotFound, CorruptBlock):
            return self.exchange.fetch_block(cid, within)

    def _prefetch(self, plan: unixfs.FilePlan, time: FileTime) -> dict[Cid, bytes]:
        """Fetch what is missing of a file's leaves. Returns those that came as one stream, as far as they fit
        HELD_BYTES: they are verified, and need not be read from disk and hashed again.
        """
        leaves = {leaf.cid: leaf.size_bytes for leaf in plan.leaves}
        missing = {cid for cid in leaves if not self.store.has_block(cid)}
        held: dict[Cid, bytes] = {}
        if len(missing) >= CAR_FROM_LEAVES and 2 * len(missing) >= len(leaves):
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
