"""A CAR as it comes from a peer: its blocks are checked, and those that are wanted kept.

Contract: what comes within `GATHERED_S` after something was absorbed waits for more, up to `READ_BYTES`, so
that a fast transfer takes few turns of threads. What comes later is due at once. `BadCar` for what is no CAR
of the blocks that are allowed. `absorb` may be called from several threads, but not while `came` runs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from assay.blocks.blockstore import BlockStore
from assay.blocks.car import BadCar, CarParser
from assay.blocks.cid import CID_BYTES, Cid

READ_BYTES = 1 << 20
"""Hashed and stored at once: the 64 KiB that come at a time cost more in turns of threads than in hashing."""
GATHERED_S = 0.05
_OVERHEAD_BYTES = CID_BYTES + 8


class Arrival:
    """What one peer sends of a DAG."""

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
        """`who` sends it; of the `allowed` blocks, of at most `max_bytes` together, the `missing` ones are
        kept and given to `take`."""
        self._who, self._store, self._missing, self._take = who, store, missing, take
        self._unseen = set(allowed)
        self._room = max_bytes + _OVERHEAD_BYTES * (len(self._unseen) + 4)
        self._parser, self._come, self._due_s = CarParser(), bytearray(), float("-inf")
        self._turn, self._clock = threading.Lock(), clock
        self.received_bytes = 0

    def came(self, chunk: bytes) -> bool:
        """Take bytes of it; whether to absorb what has come. Raises BadCar where it is too much."""
        self.received_bytes += len(chunk)
        if self.received_bytes > self._room:
            raise BadCar(f"peer {self._who} sent more than the DAG has", hint="ask another peer")
        self._come += chunk
        return len(self._come) >= READ_BYTES or self._clock() >= self._due_s

    def absorb(self) -> bool:
        """Check and keep the blocks that are complete with what has come; whether there were any. Raises
        BadCar."""
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
        """Raise BadCar where the CAR is not over."""
        self._parser.finish()
