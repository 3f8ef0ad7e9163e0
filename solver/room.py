"""Which of its states a solver keeps on its disk, and whether there is room for the next.

Contract: the states of all tasks that can be unsettled at once fit into the budget, as long as two of each
do: the ends of fewer segments are kept then, of the others their roots alone. What lies between two kept ends
is computed again when a game, a demand or an auditor wants it, which takes at most half of the time for a
move. A task's first and last state are always kept, as others build on the last. Not guaranteed: that nothing
else fills the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from assay.protocol.errors import Retry
from assay.protocol.types import Terms


class DiskFull(Retry):
    """The states that are not settled yet take all the room that the operator gives."""

    code = "disk-full"


PART = 4
"""Of the room that was left this part is given away before what is taken is counted again."""


@dataclass
class DiskBudget:
    """What the operator gives a node's blocks, and what they take. `shards`: the most that it holds.

    To count is to list every block, of which a long round has tens of thousands: it is done anew once a
    quarter of the room is given away, and before anything is refused; what others fill meanwhile is seen
    then.
    """

    limit_bytes: int
    used_bytes: Callable[[], int]
    shards: int = 1
    _room: int = 0
    """That was left when it was counted last."""
    _given: int = 0
    """Of it, since."""

    def stride(self, terms: Terms, state_bytes: int, segment_s: float) -> int:
        """Every how many segment ends are kept. `segment_s`: how long a segment takes; 0 where not known."""
        fits = self.limit_bytes // (max(terms.max_unsettled, 1) * max(self.shards, 1) * state_bytes)
        stride = 1
        while stride < terms.segments and -(-terms.segments // stride) + 1 > fits:
            stride *= 2
        while stride > 1 and 2 * stride * segment_s > terms.move_time:
            stride //= 2
        return stride

    def require(self, needed_bytes: int) -> None:
        """Raise DiskFull where so many more bytes exceed the budget."""
        if PART * (self._given + needed_bytes) > self._room:
            self._room, self._given = self.limit_bytes - self.used_bytes(), 0
        if needed_bytes > self._room:
            used = self.limit_bytes - self._room
            raise DiskFull(
                f"{used:,} bytes of {self.limit_bytes:,} are taken and the next state has {needed_bytes:,};"
                " this waits until a round is settled",
                hint="raise --disk, or see `assay storage ls`",
            )
        self._given += needed_bytes
