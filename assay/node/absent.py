"""Files that were found missing by an action that was put off since: it does not wait for them once more.

Contract: within `during` a file that could not be had is not asked for again, nor is its map of holes made
twice. What was found so is kept while the action is put off (`PutOff`) or cancelled, and after one of its
orders that is a part of it; it is forgotten as soon as the action comes to an end, done or failed. So an
action of many files that never come ends after their own times, however short the pieces are in which it goes
on, and whatever is tried anew asks anew. A file that was stored meanwhile is there. Not guaranteed: that a
file which comes while the action is put off is used by it; what is missing is computed or demanded.
Thread-safe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from random import Random
from typing import BinaryIO, TypeVar

from assay.compute.orders import Cancelled
from assay.protocol.errors import AssayError, BlockNotFound, PeerUnreachable, PutOff
from assay.protocol.ports import RAW, Blocks, Holding

T = TypeVar("T")

_KEPT = 1024


class Found:
    """What one action has found out about files that cannot be had, by CID."""

    def __init__(self) -> None:
        self.missing: dict[str, AssayError] = {}
        self.holes: dict[str, list[range]] = {}


class Absent:
    """What the actions of one node have found missing: of the one at work, and of those put off."""

    def __init__(self) -> None:
        self.now: Found | None = None
        self._put_off: dict[object, Found] = {}

    @contextmanager
    def during(self, what: object, part: bool = False) -> Iterator[None]:
        """Do this action, or a `part` of it: go on with what it found before it was put off."""
        outer, found = self.now, self._put_off.pop(what, None) or Found()
        self.now, keep = found, part
        try:
            yield
        except (PutOff, Cancelled):
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
        """This file is here now."""
        for found in (*self._put_off.values(), *([self.now] if self.now else ())):
            found.missing.pop(cid, None)
            found.holes.pop(cid, None)


class SparingBlocks:
    """`protocol.ports.Blocks` for states that can be computed where they are not to be had."""

    def __init__(self, blocks: Blocks, absent: Absent) -> None:
        self._blocks, self._absent = blocks, absent

    def put(self, data: bytes, codec: int = RAW) -> str:
        return self._stored(self._blocks.put(data, codec))

    def get(self, cid: str) -> bytes:
        return self._unless_missing(cid, lambda: self._blocks.get(cid))

    def has(self, cid: str) -> bool:
        return self._blocks.has(cid)

    def holds(self, cid: str) -> bool:
        return isinstance(self._blocks, Holding) and self._blocks.holds(cid)

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
