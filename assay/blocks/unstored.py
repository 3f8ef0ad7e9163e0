"""The `Blocks` port of somebody who wants to know what files will be called, and stores none.

Contract: CIDs are those of a store; nothing is kept, so nothing can be read again.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from random import Random
from typing import BinaryIO

from assay.blocks import unixfs
from assay.blocks.blockstore import check_size
from assay.blocks.cid import RAW, Cid
from assay.protocol.errors import BlockNotFound


class UnstoredBlocks:
    """Names blocks and files; implements `protocol.ports.Blocks`."""

    def put(self, data: bytes, codec: int = RAW) -> str:
        """The CID of one block. Raises BlockTooLarge."""
        check_size(data)
        return str(Cid.of(data, codec))

    def get(self, cid: str) -> bytes:
        """Raises BlockNotFound, BadCid."""
        raise BlockNotFound(f"{Cid.parse(cid)} was named and not stored", hint="publish the file first")

    def has(self, cid: str) -> bool:
        """Never. Raises BadCid."""
        return not Cid.parse(cid)

    def add_file(self, data: bytes | BinaryIO) -> str:
        """The CID of a file's root."""
        return str(unixfs.add_file(data, lambda _data, _cid: None))

    def together(self) -> AbstractContextManager[None]:
        """Nothing has to be made durable."""
        return nullcontext()

    def read_file(self, cid: str, max_bytes: int) -> bytes:
        """Raises BlockNotFound, BadCid."""
        return self.get(cid)

    def holes(self, cid: str, max_bytes: int, order: Random, most: int) -> list[range]:
        """All of it."""
        return [range(max_bytes)]

    def pin(self, cid: str) -> None:
        """Nothing is there to be kept."""
