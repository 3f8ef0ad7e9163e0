"""The Blocks port over one dictionary that all nodes of a test share.

Every node may read every block, except those in `withheld`, which only their holder reads.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from random import Random
from typing import BinaryIO

from assay.blocks.blockstore import BlockStore, check_size
from assay.blocks.dagpb import BadDag
from assay.blocks.unixfs import FileTooLarge
from assay.protocol.cid import DAG_PB, RAW, Cid
from assay.protocol.errors import BlockNotFound


def cid_of(data: bytes, codec: int = RAW) -> str:
    """CIDv1, base32, of a block of these bytes."""
    return str(Cid.of(data, codec))


def path_of(store: BlockStore, cid: str) -> Path:
    """The file of a stored block, for a test that damages or loses it."""
    return next((store.root / "blocks").glob(f"*/{cid}"))


class Network:
    """All blocks of a test."""

    def __init__(self) -> None:
        self.blocks: dict[str, bytes] = {}
        self.withheld: set[str] = set()
        self.torn: dict[str, list[range]] = {}
        """Ranges of a file's bytes that only its holder can read; the other bytes are available."""
        self.malformed: set[str] = set()
        """Available blocks that form no file."""


class FakeBlocks:
    """One node's view of the network. A file is one block here."""

    def __init__(self, network: Network, *, withholds: bool = False) -> None:
        self.network = network
        self.own: set[str] = set()
        self.pinned: set[str] = set()
        self.withholds = withholds

    def put(self, data: bytes, codec: int = RAW) -> str:
        check_size(data)
        return self._store(data, codec)

    def _store(self, data: bytes, codec: int) -> str:
        cid = cid_of(data, codec)
        if self.withholds and cid not in self.network.blocks:
            self.network.withheld.add(cid)
        self.network.blocks[cid] = bytes(data)
        self.own.add(cid)
        return cid

    def get(self, cid: str) -> bytes:
        Cid.parse(cid)
        if cid not in self.network.blocks or (cid in self.network.withheld and cid not in self.own):
            raise BlockNotFound(f"nobody serves {cid}", hint="try again when its publisher is online")
        return self.network.blocks[cid]

    def has(self, cid: str) -> bool:
        return str(Cid.parse(cid)) in self.own

    def add_file(self, data: bytes | BinaryIO) -> str:
        return self._store(data if isinstance(data, bytes | bytearray | memoryview) else data.read(), DAG_PB)

    def together(self) -> AbstractContextManager[None]:
        return nullcontext()

    def read_file(self, cid: str, max_bytes: int) -> bytes:
        data = self.get(cid)
        if cid in self.network.malformed:
            raise BadDag(f"{cid} is no file", hint="refuse it")
        if cid in self.network.torn and cid not in self.own:
            raise BlockNotFound(f"nobody serves all of {cid}", hint="try again")
        if len(data) > max_bytes:
            raise FileTooLarge(f"{cid} has {len(data)} bytes, over {max_bytes}", hint="refuse it")
        return data

    def holes(self, cid: str, max_bytes: int, order: Random, most: int) -> list[range]:
        try:
            self.get(cid)
        except BlockNotFound:
            return [range(max_bytes)]
        missing = list(self.network.torn.get(cid, [])) if cid not in self.own else []
        order.shuffle(missing)
        return missing[:most]

    def pin(self, cid: str) -> None:
        self.get(cid)
        self.pinned.add(cid)
