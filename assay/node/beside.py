"""A look at the market by a thread of its own, beside long work.

Contract: at most one look, and before it one round of housekeeping, are under way in that thread. What a look
read is in the market's view, and when it began is told, so that decisions after it ask nothing again
(`MarketView.snapshot`). It may be taken up to thirty times as long as it took after its end, at most
`TAKEN_S`, and counts from then on for as long, at most `LONGEST_S`; whoever has none such to decide by looks
himself. A look in the same block as the one before asks next to nothing, so each counts as half as long as
that at least, up to `INHERITED_S`. The house rests ten times as long as keeping it took, at most
`HOUSE_LONGEST_S`. What either raises is raised where it is taken in. Used from one thread, but for what it
runs, `moved` and `since_s`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Executor, Future

TIMES, TIMES_OVERTAKEN, TIMES_HOUSE = 30, 10, 10
LONGEST_S = 10.0
TAKEN_S = 30.0
HOUSE_LONGEST_S = 30.0
INHERITED_S = 1.0
LOOKS_LEFT = 2
PATIENCE_S = 30.0
"""How long a decision is put off, for a house that is being kept or for looks that are overtaken."""


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
        self._asked_s = self._begun_s = self._took_s = self._ended_s = 0.0
        self._moved_s = self._house_due_s = float("-inf")
        self._taken_s: float | None = None
        """When the look that was taken last had begun."""
        self._good_until_s = 0.0

    def begin(self, ends_in_s: float = float("inf")) -> None:
        """Keep house if that is due, and look after it, unless a look is under way. None is begun that might
        not be over when the work ends beside which it is made, where the last one serves until then: who
        decides at that end would wait for its answers, or for the view that it holds."""
        serves = self._serves and self._clock() + ends_in_s <= self._good_until_s
        if self._look is None and not (serves and ends_in_s < LOOKS_LEFT * self._took_s):
            self._asked_s = self._clock()
            self._begin()

    def _begin(self) -> None:
        if self._house is None and self._clock() >= self._house_due_s:
            self._house = self._executor.submit(self._kept)
        self._look = self._executor.submit(self._looked)

    def _kept(self) -> None:
        begun_s, most_s = self._clock(), LONGEST_S
        try:
            self._keep_house()
            most_s = HOUSE_LONGEST_S
        finally:
            now = self._clock()
            self._house_due_s = now + min(TIMES_HOUSE * (now - begun_s), most_s)

    def _looked(self) -> None:
        begun_s = self._clock()
        self._read()
        self._ended_s = self._clock()
        self._begun_s = begun_s
        self._took_s = max(self._ended_s - begun_s, min(self._took_s / 2, INHERITED_S))

    def moved(self) -> None:
        """This node has sent something: the view has moved on from what a look before it read. To be called
        from any thread."""
        self._moved_s = self._clock()

    def ready(self, sending: bool = False) -> bool:
        """Whether to decide now, as a look is over. One that was begun before this node sent something is
        made again, unless it took a tenth of the time since at most: who decides then makes his own. One
        beside which it is `sending` waits for that, half as long as a look counts; and neither of them nor
        one that has not begun, as the house takes long, is waited for beyond `PATIENCE_S`."""
        if self._look is None:
            if self._taken_s is not None and not self._serves:  # the work did not end when it was to
                self.begin()
            return False
        now = self._clock()
        late, age_s = now - self._asked_s > PATIENCE_S, now - self._ended_s
        if not self._look.done():
            return late and not self._look.running()
        if late or self._look.exception() is not None:
            return True
        if sending and age_s < min(TIMES_OVERTAKEN * self._took_s, LONGEST_S) / 2:
            return False
        if self._moved_s > self._begun_s and age_s < TIMES_OVERTAKEN * self._took_s:
            self._begin()
            return False
        return True

    def take(self, again: bool = True) -> None:
        """Wait for the look that is under way, unless it has not begun, or the last one serves: then it goes
        on, and is taken another time. Look now where there is none by which to decide; the last one counts
        only `again`, where nobody rested since. Raises what the look raised."""
        if not again:
            self._taken_s = None
        if self._look is not None and not self._look.done() and self._serves:
            return
        look, self._look = self._look, None
        if look is not None and not look.cancel():
            self._taken_s = None
            look.result()
            age_s = self._clock() - self._ended_s
            if self._moved_s <= self._begun_s and age_s <= min(TIMES * self._took_s, TAKEN_S):
                self._take_last()
        if self.since_s is None:
            self._taken_s = None
            self._looked()
            self._take_last()

    def _take_last(self) -> None:
        """Go by the look that was over last."""
        self._taken_s = self._begun_s
        self._good_until_s = self._clock() + min(TIMES * self._took_s, LONGEST_S)

    @property
    def _serves(self) -> bool:
        """Whether the look that was taken last counts, and this node has sent nothing since it began: then no
        newer one is waited for."""
        return (since_s := self.since_s) is not None and self._moved_s <= since_s

    @property
    def since_s(self) -> float | None:
        """When the look that was taken had begun, by the clock; None where none was, or where that is too
        long ago to decide by it."""
        return None if self._taken_s is None or self._clock() > self._good_until_s else self._taken_s

    def house(self, busy: bool = False) -> None:
        """Keep house now if that is due, unless the thread is at it, or will be as it is `busy` or looks;
        then only where it is long overdue. Raises what keeping it raised."""
        done, self._house = self._house, None
        busy |= self._look is not None
        overdue_s = self._clock() - self._house_due_s
        if done is not None and not done.done():
            self._house = done
        elif done is not None:
            done.result()
        elif overdue_s >= (HOUSE_LONGEST_S if busy else 0.0):
            self._kept()
