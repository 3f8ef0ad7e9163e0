"""Caches failed fetches for the length of an action, so that a resumed action does not wait for them again.

Contract: within `during`, a file that could not be fetched is not requested again, and its holes are computed
once. The cache survives while the action is put off (`Deferred`) or cancelled, and between the orders of one
action. It is cleared when the action succeeds or fails. So an action with many missing files ends after one
timeout for each, however often it is resumed; a new action requests them again. Storing a file clears its
entry. Not guaranteed: that a file which arrives while the action is put off is used by it; what is missing is
recomputed or demanded. Thread-safe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from random import Random
from typing import BinaryIO, TypeVar

from assay.compute.orders import Cancelled
from assay.protocol.cid import RAW
from assay.protocol.errors import AssayError, BlockNotFound, Deferred, PeerUnreachable
from assay.protocol.ports import Blocks, LocalBlocks

T = TypeVar("T")

_KEPT = 1024


class Found:
    """Failed fetches of one action, by CID."""

    def __init__(self) -> None:
        self.missing: dict[str, AssayError] = {}
        self.holes: dict[str, list[range]] = {}


class Absent:
    """Failed fetches of a node's actions: the current one and those put off."""

    def __init__(self) -> None:
        self.now: Found | None = None
        self._put_off: dict[object, Found] = {}

    @contextmanager
    def during(self, what: object, part: bool = False) -> Iterator[None]:
        """Runs an action, or one order (`part`) of it, with the failures recorded before it was put off."""
        outer, found = self.now, self._put_off.pop(what, None) or Found()
        self.now, keep = found, part
        try:
            yield
        except (Deferred, Cancelled):
            keep = True
            raise
        except BaseException:
            keep = False
            raise
        finally:
            self.now = outer
            if keep:
                self._put_off[what] = found
            for oldest in list(self._put_off)[:-_KEPT]:
                del self._put_off[oldest]

    def stored(self, cid: str) -> None:
        """Clears the entries of a file that has been stored."""
        for found in (*self._put_off.values(), *([self.now] if self.now else ())):
            found.missing.pop(cid, None)
            found.holes.pop(cid, None)


class MissCachingBlocks:
    """`protocol.ports.Blocks` that skips fetches which failed before; for states that can be recomputed
    instead."""

    def __init__(self, blocks: Blocks, absent: Absent) -> None:
        self._blocks, self._absent = blocks, absent

    def put(self, data: bytes, codec: int = RAW) -> str:
        return self._stored(self._blocks.put(data, codec))

    def get(self, cid: str) -> bytes:
        return self._unless_missing(cid, lambda: self._blocks.get(cid))

    def has(self, cid: str) -> bool:
        return self._blocks.has(cid)

    def holds(self, cid: str) -> bool:
        return isinstance(self._blocks, LocalBlocks) and self._blocks.holds(cid)

    def add_file(self, data: bytes | BinaryIO) -> str:
        return self._stored(self._blocks.add_file(data))

    def together(self) -> AbstractContextManager[None]:
        return self._blocks.together()

    def read_file(self, cid: str, max_bytes: int) -> bytes:
        return self._unless_missing(cid, lambda: self._blocks.read_file(cid, max_bytes))

    def holes(self, cid: str, max_bytes: int, order: Random, most: int) -> list[range]:
        found = self._absent.now
        if found is None:
            return self._blocks.holes(cid, max_bytes, order, most)
        if cid not in found.holes:
            found.holes[cid] = self._blocks.holes(cid, max_bytes, order, most)
        return found.holes[cid]

    def pin(self, cid: str) -> None:
        self._blocks.pin(cid)

    def _unless_missing(self, cid: str, read: Callable[[], T]) -> T:
        found = self._absent.now
        if found is None:
            return read()
        if (known := found.missing.get(cid)) is not None:
            raise type(known)(known.message, hint=known.hint)
        try:
            return read()
        except (BlockNotFound, PeerUnreachable) as error:
            found.missing[cid] = error
            raise

    def _stored(self, cid: str) -> str:
        self._absent.stored(cid)
        return cid
