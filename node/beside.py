"""A look at the market by a thread of its own, beside long work.

Contract: at most one look, and before it one round of housekeeping, are under way; whoever decides waits for
the look, so both are never done by two threads at once. What a look read is in the market's view, and when it
began is told, so that decisions after it ask nothing again (`MarketView.snapshot`): it is taken up to ten
times as long as it took after its end, at most `LONGEST_S`, and counts for as long again; where there is none
such, whoever decides looks himself. The house is kept again after ten times as long as it took, at most
`HOUSE_LONGEST_S`. What either raises is raised where it is taken in. Used from one thread, but for what it
runs and `moved`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Executor, Future

LONGEST_S = 10.0
HOUSE_LONGEST_S = 60.0
PATIENCE_S = 30.0
"""How long a look waits for the house."""
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
        self._good_until_s = 0.0
        self._house_due_s = float("-inf")

    def begin(self) -> None:
        """Keep house if that is due, and look after it, unless either is under way: who decides by a look
        finds nobody else at the market's view."""
        if self._house is None and self._look is None and self._clock() >= self._house_due_s:
            self._house = self._executor.submit(self._kept)
        if self._look is None:
            self._asked_s = self._clock()
            self._look = self._executor.submit(self._looked)

    def _kept(self) -> None:
        begun_s = self._clock()
        try:
            self._keep_house()
        finally:
            now = self._clock()
            self._house_due_s = now + min(TIMES * (now - begun_s), HOUSE_LONGEST_S)

    def _looked(self) -> None:
        self._begun_s = self._clock()
        self._read()
        self._ended_s = self._clock()

    def moved(self) -> None:
        """This node has sent something: the view has moved on from what a look before it read. To be called
        from any thread."""
        self._moved_s = self._clock()

    def ready(self, sending: bool = False) -> bool:
        """Whether to decide now: by a look that is over, or by one that the decision makes itself, as it took
        a tenth of the time since at most. Else one that was begun before this node sent something is made
        again; one beside which it is `sending` waits for that, half as long as it is good; and one that has
        not begun for `PATIENCE_S`, as the house takes so long, is not waited for."""
        if self._look is None:
            return False
        now = self._clock()
        if not self._look.done():
            return not self._look.running() and now - self._asked_s > PATIENCE_S
        if self._look.exception() is not None:
            return True
        took_s = self._ended_s - self._begun_s
        if TIMES * took_s <= min(now - self._ended_s, LONGEST_S):
            return True
        if sending and now - self._ended_s < self._good_s / 2:
            return False
        if self._moved_s > self._begun_s:
            self._look = None
            self.begin()
            return False
        return True

    def take(self) -> None:
        """Wait for the look that is under way, unless it has not begun; look now where there is none by which
        to decide. Raises what the look raised."""
        look, self._look = self._look, None
        if look is not None and not look.cancel():
            self._taken_s = None
            look.result()
            self._take_last(self._good_s)
        if self.since_s is None:
            self._looked()
            self._take_last(self._good_s)

    def _take_last(self, good_s: float) -> None:
        """Go by the look that was over last, if it is not too old, and nothing was sent since it began."""
        now = self._clock()
        if now - self._ended_s <= good_s and self._moved_s <= self._begun_s:
            self._taken_s, self._good_until_s = self._begun_s, now + good_s

    @property
    def _good_s(self) -> float:
        """How long after its end the last look may be taken, and how long it counts from then on."""
        return min(TIMES * (self._ended_s - self._begun_s), LONGEST_S)

    @property
    def since_s(self) -> float | None:
        """When the look that was taken had begun, by the clock; None where none was, or where that is too
        long ago to decide by it."""
        return None if self._taken_s is None or self._clock() > self._good_until_s else self._taken_s

    def house(self) -> None:
        """Keep house now if that is due, unless the thread is at it. Raises what keeping it raised."""
        done, self._house = self._house, None
        if done is not None and not done.done():
            self._house = done
        elif done is not None:
            done.result()
        elif self._clock() >= self._house_due_s:
            self._kept()
