"""Implements the `Blocks` port without storing anything, to compute files' CIDs.

Contract: CIDs are those of a store; nothing can be read back.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from random import Random
from typing import BinaryIO

from assay.blocks import unixfs
from assay.blocks.blockstore import check_size
from assay.protocol.cid import RAW, Cid
from assay.protocol.errors import BlockNotFound


class CidOnlyBlocks:
    """Computes CIDs of blocks and files; implements `protocol.ports.Blocks`."""

    def put(self, data: bytes, codec: int = RAW) -> str:
        """CID of one block. Raises BlockTooLarge."""
        check_size(data)
        return str(Cid.of(data, codec))

    def get(self, cid: str) -> bytes:
        """Raises BlockNotFound, BadCid."""
        raise BlockNotFound(
            f"block {Cid.parse(cid)} was only named, not stored", hint="publish the file first"
        )

    def has(self, cid: str) -> bool:
        """Always False. Raises BadCid."""
        return not Cid.parse(cid)

    def add_file(self, data: bytes | BinaryIO) -> str:
        """CID of a file's root."""
        return str(unixfs.add_file(data, lambda _data, _cid: None))

    def together(self) -> AbstractContextManager[None]:
        """Does nothing."""
        return nullcontext()

    def read_file(self, cid: str, max_bytes: int) -> bytes:
        """Raises BlockNotFound, BadCid."""
        return self.get(cid)

    def holes(self, cid: str, max_bytes: int, order: Random, most: int) -> list[range]:
        """The whole range."""
        return [range(max_bytes)]

    def pin(self, cid: str) -> None:
        """Does nothing."""
