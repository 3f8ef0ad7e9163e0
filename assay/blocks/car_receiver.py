"""Verifies and stores the blocks of a CAR as it arrives from a peer.

Contract: bytes that arrive within `GATHERED_S` after the last processing are gathered, up to `READ_BYTES`, so
that a fast transfer needs few thread switches; later ones are processed at once. `BadCar` for anything but a
CAR of allowed blocks. `absorb` may be called from several threads, but not while `came` runs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from assay.blocks.blockstore import BlockStore
from assay.blocks.car import BadCar, CarParser
from assay.protocol.cid import CID_BYTES, Cid

READ_BYTES = 1 << 20
"""Bytes hashed and stored at once: thread switches for 64 KiB at a time cost more than hashing them."""
GATHERED_S = 0.05
_OVERHEAD_BYTES = CID_BYTES + 8


class Arrival:
    """A DAG in transfer from one peer."""

    def __init__(
        self,
        who: str,
        store: BlockStore,
        missing: set[Cid],
        allowed: Iterable[Cid],
        max_bytes: int,
        take: Callable[[Cid, bytes], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`who` is the sender. Of the `allowed` blocks, of at most `max_bytes` in total, the `missing` ones
        are stored and passed to `take`."""
        self._who, self._store, self._missing, self._take = who, store, missing, take
        self._unseen = set(allowed)
        self._room = max_bytes + _OVERHEAD_BYTES * (len(self._unseen) + 4)
        self._parser, self._come, self._due_s = CarParser(), bytearray(), float("-inf")
        self._turn, self._clock = threading.Lock(), clock
        self.received_bytes = 0

    def came(self, chunk: bytes) -> bool:
        """Adds received bytes; True if they are to be absorbed. Raises BadCar if there are too many."""
        self.received_bytes += len(chunk)
        if self.received_bytes > self._room:
            raise BadCar(f"peer {self._who} sent more than the DAG has", hint="ask another peer")
        self._come += chunk
        return len(self._come) >= READ_BYTES or self._clock() >= self._due_s

    def absorb(self) -> bool:
        """Verifies and stores complete blocks; True if there were any. Raises BadCar."""
        with self._turn:
            data, self._come = self._come, bytearray()
            blocks = 0
            for cid, block in self._parser.feed(data) if data else ():
                if cid not in self._unseen:
                    raise BadCar(
                        f"peer {self._who} sent block {cid}, which nobody asked for", hint="ask another peer"
                    )
                self._unseen.remove(cid)
                blocks += 1
                if cid in self._missing:
                    self._store.put_verified(block, cid, durable=False)
                    self._missing.remove(cid)
                    self._take(cid, block)
            self._due_s = self._clock() + GATHERED_S
            return blocks > 0

    def finish(self) -> None:
        """Raises BadCar if the CAR is incomplete."""
        self._parser.finish()
