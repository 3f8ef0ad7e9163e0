"""Enforces a solver's disk budget: chooses which segment ends to keep, and refuses states that do not fit.

Contract: the states of all tasks that can be unsettled at once fit the budget, if two of each do. If needed,
fewer segment ends are kept, and of the others only the roots. Dropped states are recomputed when a game, a
demand or an auditor needs them, which takes at most half of the time for a move. A task's first and last
state are always kept, as others build on the last. Not guaranteed: that nothing else fills the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from assay.protocol.errors import Retry
from assay.protocol.types import Terms


class DiskFull(Retry):
    """Unsettled states use the whole disk budget."""

    code = "disk-full"


PART = 4
"""Denominator of the part of the free space that is handed out before it is counted again."""


@dataclass
class DiskBudget:
    """Disk budget of a node's blocks and its use. `shards`: the most that the node holds.

    Counting lists every block, of which a long round has tens of thousands. So the use is only counted again
    after a quarter of the free space has been handed out, and before anything is refused; other programs' use
    shows then.
    """

    limit_bytes: int
    used_bytes: Callable[[], int]
    shards: int = 1
    _room: int = 0
    """Free bytes at the last count."""
    _given: int = 0
    """Bytes handed out since."""

    def stride(self, terms: Terms, state_bytes: int, segment_s: float) -> int:
        """Keep every n-th segment end. `segment_s`: duration of a segment in seconds; 0 if unknown."""
        fits = self.limit_bytes // (max(terms.max_unsettled, 1) * max(self.shards, 1) * state_bytes)
        stride = 1
        while stride < terms.segments and -(-terms.segments // stride) + 1 > fits:
            stride *= 2
        while stride > 1 and 2 * stride * segment_s > terms.move_time:
            stride //= 2
        return stride

    def require(self, needed_bytes: int) -> None:
        """Reserves this many bytes. Raises DiskFull if they exceed the budget."""
        if PART * (self._given + needed_bytes) > self._room:
            self._room, self._given = self.limit_bytes - self.used_bytes(), 0
        if needed_bytes > self._room:
            used = self.limit_bytes - self._room
            raise DiskFull(
                f"{used:,} of {self.limit_bytes:,} bytes are used, and the next state has {needed_bytes:,};"
                " the shard waits until a round is settled",
                hint="raise --disk, or see `assay storage ls`",
            )
        self._given += needed_bytes
