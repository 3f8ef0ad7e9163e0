"""Decides how long a chain read may be reused.

Contract: pure but for its clock. On a fast link a read is good for a moment; on a slow one for a few times
its duration, so that one decision is not read again while it is carried out. Not thread-safe.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE, LONGEST_S = 4, 5.0
"""A read is good for this multiple of its duration, up to this many seconds."""


class Freshness:
    """Age of the last read. `floor_s` 0 or less: always stale."""

    def __init__(self, floor_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._floor_s, self._clock = floor_s, clock
        self._asked_s = float("-inf")
        self._took_s = 0.0

    def stale(self, since_s: float | None = None) -> bool:
        """True if it must be read again: read before `since_s`, or, if not given, too old."""
        if since_s is not None:
            return self._asked_s < since_s
        good_s = self._floor_s
        if good_s > 0:
            good_s = max(good_s, min(PATIENCE * self._took_s, LONGEST_S))
        return self._clock() - self._asked_s > good_s

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Measures a read within a `with` block. If it fails, the old value counts as stale."""
        self._asked_s, begun = float("-inf"), self._clock()
        yield
        self._took_s, self._asked_s = self._clock() - begun, begun
