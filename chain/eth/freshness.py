"""How old an answer of the chain may be before it is asked for again.

Contract: pure but for its clock. Near the chain an answer is good for a moment; over a far link, where asking
takes long, for a few times as long as asking took, so that one decision is not asked for again and again
while it is carried out. Not safe to share between threads; its owner takes turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE, LONGEST_S = 4, 5.0
"""An answer is good for so many times as long as it took, and at most so long."""


class Freshness:
    """When something was asked, and whether that is too long ago. `floor_s` 0 or less: always."""

    def __init__(self, floor_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._floor_s, self._clock = floor_s, clock
        self._asked_s = float("-inf")
        self._took_s = 0.0

    def stale(self, since_s: float | None = None) -> bool:
        """Whether to ask again: what was asked before `since_s`, or, without, what is no longer good."""
        if since_s is not None:
            return self._asked_s < since_s
        good_s = self._floor_s
        if good_s > 0:
            good_s = max(good_s, min(PATIENCE * self._took_s, LONGEST_S))
        return self._clock() - self._asked_s > good_s

    @contextmanager
    def asking(self) -> Iterator[None]:
        """A `with` block that asks. Where it fails, what there is counts as too old."""
        self._asked_s, begun = float("-inf"), self._clock()
        yield
        self._took_s, self._asked_s = self._clock() - begun, begun
