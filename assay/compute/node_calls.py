"""Calls from a worker to its node while an order runs: market reads, blocks, and the role's books.

Contract: a worker reaches the chain and other nodes only through these calls, each named in `ALLOWED`, so it
needs no key, endpoint or network. A call runs in a thread of the node's process; its exception is raised in
the worker. The fetches of an order within `held` may take `HOLD_S` in total; then Deferred is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from random import Random
from typing import Any, BinaryIO, Protocol

from assay.protocol.cid import RAW
from assay.protocol.errors import BlockNotFound, CorruptBlock
from assay.protocol.ports import Blocks, LocalBlocks, MarketView, TimeLimited
from assay.protocol.types import Address

HOLD_S = 20.0
"""Maximum seconds for which fetches delay an order: a block at the minimum accepted rate
(``blocks.exchange``) arrives in less."""

ALLOWED: Mapping[str, frozenset[str]] = {
    "market": frozenset({"job", "claim", "claims", "current", "game"}),
    "blocks": frozenset({"get", "read_file", "fetch", "holes", "has", "holds", "put", "add_file", "pin"}),
    "books": frozenset({"told", "left", "opened", "stored", "trained", "drafted", "lost", "used_bytes"})
    | {"wanted", "signed", "signs"},  # of a crew's member
}


class NodeCalls(Protocol):
    """The node as an order sees it, in whatever process the order runs."""

    @property
    def market(self) -> Any: ...  # of a `MarketView`, what is `ALLOWED`
    @property
    def blocks(self) -> Blocks: ...
    @property
    def books(self) -> Any: ...


class Home:
    """The node's side: market reads, blocks, and the role's books."""

    def __init__(self, market: MarketView, blocks: Blocks, books: Any = None) -> None:
        self.market: Any = market
        self.blocks, self.books = blocks, books

    def held(self) -> AbstractContextManager[None]:
        """Limits the total time of fetches within the `with` blocks of one order to `HOLD_S`."""
        return self.blocks.within(HOLD_S) if isinstance(self.blocks, TimeLimited) else nullcontext()

    def call(self, whose: str, name: str, arguments: tuple[Any, ...]) -> Any:
        """Performs an `ALLOWED` call. Raises ValueError for any other."""
        if name not in ALLOWED.get(whose, ()):
            raise ValueError(f"a worker may not call {whose}.{name}")
        if (whose, name) == ("blocks", "fetch") and not hasattr(self.blocks, "fetch"):
            self.blocks.read_file(*arguments)
            return None
        if (whose, name) == ("blocks", "holds") and not isinstance(self.blocks, LocalBlocks):
            return False
        return getattr(getattr(self, whose), name)(*arguments)


Call = Callable[[str, str, tuple[Any, ...]], Any]
"""`Home.call` from another process."""


class _Remote:
    """Proxy of one of the node's objects."""

    def __init__(self, call: Call, whose: str) -> None:
        self._call, self._whose = call, whose

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in ALLOWED[self._whose]:
            raise AttributeError(f"a worker may not call {self._whose}.{name}")
        return lambda *arguments: self._call(self._whose, name, arguments)


class RemoteMarket(_Remote):
    """Proxy of `protocol.ports.MarketView`, for the reads that orders need."""

    def __init__(self, call: Call, me: Address) -> None:
        super().__init__(call, "market")
        self.me = me


class RemoteBlocks:
    """The node's blocks in a worker.

    `store`: folder of the node's block store if the worker shares the machine; it is read and written
    directly, and the node fetches missing blocks into it. Thread-safe.
    """

    def __init__(self, call: Call, store: Blocks | None) -> None:
        self._call, self._store = call, store

    def _ask(self, name: str, *arguments: Any) -> Any:
        return self._call("blocks", name, arguments)

    def put(self, data: bytes, codec: int = RAW) -> str:
        return str(self._ask("put", data, codec)) if self._store is None else self._store.put(data, codec)

    def get(self, cid: str) -> bytes:
        if self._store is not None:
            try:
                return self._store.get(cid)
            except (BlockNotFound, CorruptBlock):
                pass
        return bytes(self._ask("get", cid))

    def has(self, cid: str) -> bool:
        return bool(self._ask("has", cid)) if self._store is None else self._store.has(cid)

    def holds(self, cid: str) -> bool:
        if self._store is None:
            return bool(self._ask("holds", cid))
        return isinstance(self._store, LocalBlocks) and self._store.holds(cid)

    def add_file(self, data: bytes | BinaryIO) -> str:
        if self._store is not None:
            return self._store.add_file(data)
        return str(self._ask("add_file", data if isinstance(data, bytes) else data.read()))

    def together(self) -> AbstractContextManager[None]:
        return nullcontext() if self._store is None else self._store.together()

    def read_file(self, cid: str, max_bytes: int) -> bytes:
        if self._store is None:
            return bytes(self._ask("read_file", cid, max_bytes))
        try:
            return self._store.read_file(cid, max_bytes)
        except (BlockNotFound, CorruptBlock):
            self._ask("fetch", cid, max_bytes)
        return self._store.read_file(cid, max_bytes)

    def holes(self, cid: str, max_bytes: int, order: Random, most: int) -> list[range]:
        order = Random(order.getrandbits(256))  # the system's own cannot be sent
        return list(self._ask("holes", cid, max_bytes, order, most))

    def pin(self, cid: str) -> None:
        self._ask("pin", cid)


class RemoteNode:
    """The node, seen from a worker."""

    def __init__(self, call: Call, me: Address, store: Blocks | None) -> None:
        self.market: Any = RemoteMarket(call, me)
        self.blocks: Blocks = RemoteBlocks(call, store)
        self.books: Any = _Remote(call, "books")
