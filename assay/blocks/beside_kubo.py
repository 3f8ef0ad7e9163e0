"""The `Blocks` port of a node that has a Kubo daemon beside its own block store.

Contract: what this node adds is in both when the call returns, inner nodes after what they name, the root
pinned; so a gateway of the daemon serves whatever the node has committed to, though nobody can reach the node
itself. What neither the store nor the peers have is asked of the daemon, and verified. A daemon that does not
answer costs `PeerUnreachable`: nothing counts as published until it has it.
Not guaranteed: that the daemon forgets what the node has deleted; its operator unpins.
Source: docs/decisions/0040-beyond-one-machine.md
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import BinaryIO

from assay.blocks import unixfs
from assay.blocks.blockstore import MAX_DAG_LINKS, BlockStore
from assay.blocks.cid import DAG_PB, RAW, Cid
from assay.blocks.dagpb import children
from assay.blocks.exchange import Exchange
from assay.blocks.kubo import KuboBlocks
from assay.blocks.node import NodeBlocks
from assay.blocks.race import FileTime
from assay.protocol.errors import BlockNotFound


class BesideKubo(NodeBlocks):
    """A node's blocks, and the daemon's. Thread-safe."""

    def __init__(self, store: BlockStore, exchange: Exchange, kubo: KuboBlocks) -> None:
        super().__init__(store, exchange)
        self.kubo = kubo

    def put(self, data: bytes, codec: int = RAW) -> str:
        """Store one block in both and return its CID. Raises `BlockTooLarge`, `PeerUnreachable`."""
        cid = super().put(data, codec)
        if not self.kubo.has(cid):
            self.kubo.put(data, codec)
        return cid

    def add_file(self, data: bytes | BinaryIO) -> str:
        """Store a file in both and return its root CID. Raises `PeerUnreachable`."""
        root = super().add_file(data)
        if not self.kubo.has(root):  # its root comes last, so that whoever has it has all below
            for block in self._below(Cid.parse(root)):
                self.kubo.put(self.store.get_block(block), block.codec)
        self.kubo.pin(root)
        return root

    def pin(self, cid: str) -> None:
        """Fetch what is missing of the DAG, from wherever it is, and keep it here. Raises `BlockNotFound`,
        `BadDag`."""
        try:
            super().pin(cid)
        except BlockNotFound:
            self._fetch(Cid.parse(cid))
            self.store.pin(cid)

    def _fetch(self, root: Cid) -> None:
        stack, seen = [root], set[Cid]()
        while stack:
            block = stack.pop()
            if block not in seen:
                seen.add(block)
                data = self._get(block)
                stack.extend(children(block, data, MAX_DAG_LINKS) if block.codec == DAG_PB else [])

    def _prefetch(self, plan: unixfs.FilePlan, time: FileTime) -> dict[Cid, bytes]:
        with suppress(BlockNotFound):  # those are asked of the daemon, one by one
            return super()._prefetch(plan, time)
        return {}

    def _below(self, root: Cid) -> Iterator[Cid]:
        """Every block of a DAG once, each after those that it names."""
        stack, seen = [(root, False)], set[Cid]()
        while stack:
            block, opened = stack.pop()
            if opened or block.codec != DAG_PB:
                if block not in seen:
                    seen.add(block)
                    yield block
            elif block not in seen:
                stack.append((block, True))
                named = children(block, self.store.get_block(block), MAX_DAG_LINKS)
                stack.extend((child, False) for child in reversed(named))

    def _get(self, cid: Cid, within: FileTime | None = None) -> bytes:
        try:
            return super()._get(cid, within)
        except BlockNotFound:
            data = self.kubo.get(str(cid))
            self.store.put_verified(data, cid, durable=False)
            return data
