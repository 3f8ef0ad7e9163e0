"""A look at the market by a thread of its own, beside long work.

Contract: at most one look, and before it one round of housekeeping, are under way; whoever decides waits for
the look, so both are never done by two threads at once. What a look read is in the market's view, and when it
began is told, so that decisions after it ask nothing again (`MarketView.snapshot`): for ten times as long as
it took, at most `LONGEST_S` after its end. What either raises is raised where it is taken in. Used from one
thread, but for what it runs and `moved`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Executor, Future

LONGEST_S = 10.0
TIMES = 10


class Beside:
    """`read`: asks the market for all that a decision depends on; `keep_house`: done between looks."""

    def __init__(
        self,
        executor: Executor,
        read: Callable[[], object],
        keep_house: Callable[[], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`executor` has one thread."""
        self._executor, self._read, self._keep_house = executor, read, keep_house
        self._clock = clock
        self._look: Future[object] | None = None
        self._house: Future[object] | None = None
        self._asked_s = self._begun_s = self._ended_s = 0.0
        self._moved_s = float("-inf")
        self._taken_s: float | None = None
        """When the look that was taken last had begun."""

    def begin(self) -> None:
        """Keep house, and look after it, unless either is under way: who decides by a look finds nobody else
        at the market's view."""
        if self._house is None and self._look is None:
            self._house = self._executor.submit(self._keep_house)
        if self._look is None:
            self._asked_s = self._clock()
            self._look = self._executor.submit(self._looked)

    def _looked(self) -> None:
        self._begun_s = self._clock()
        self._read()
        self._ended_s = self._clock()

    def moved(self) -> None:
        """This node has sent something: the view has moved on from what a look before it read. To be called
        from any thread."""
        self._moved_s = self._clock()

    def ready(self, sending: bool = False) -> bool:
        """Whether a look is over by which to decide. One that was begun before this node sent something is
        made again; one beside which it is `sending` waits for that, for `LONGEST_S` at most; and one that has
        not begun for as long, as the house takes so long, is not waited for."""
        if self._look is None:
            return False
        if not self._look.done():
            return not self._look.running() and self._clock() - self._asked_s > LONGEST_S
        if self._look.exception() is not None:
            return True
        if sending and self._clock() - self._ended_s < LONGEST_S:
            return False
        if self._moved_s > self._begun_s:
            self._look = None
            self.begin()
            return False
        return True

    def take(self) -> None:
        """Wait for the look that is under way, unless it has not begun. Raises what it raised."""
        look, self._look = self._look, None
        if look is not None:
            self._taken_s = None
            if not look.cancel():
                look.result()
                self._taken_s = self._begun_s

    @property
    def since_s(self) -> float | None:
        """When the look that was taken had begun, by the clock; None where none was, or where it is over for
        too long to decide by it."""
        if self._taken_s is None:
            return None
        took_s = self._ended_s - self._taken_s
        return None if self._clock() - self._ended_s > min(TIMES * took_s, LONGEST_S) else self._taken_s

    def house(self) -> bool:
        """Whether the thread has kept house, or is at it. Raises what it raised."""
        if self._house is None:
            return False
        if self._house.done():
            done, self._house = self._house, None
            done.result()
        return True
