"""Where a node's time goes: how long its loop did what.

Contract: wall time of the loop's own thread, each second counted once, for the innermost of what was being
done; while computing goes on beside it, for that. What other threads do meanwhile, such as storing a large
state, is not counted. Read from any thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

COMPUTING, STORING, FETCHING, WAITING, REST = "computing", "storing", "fetching", "waiting", "deciding"


class TimeSpent:
    """Seconds by what they went to."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since = clock()
        self._doing: list[str] = []
        self._seconds: dict[str, float] = {}
        self._beside: tuple[str, Callable[[], float | None]] | None = None

    def begin_beside(self, what: str, ended_s: Callable[[], float | None]) -> None:
        """From now on, and until `ended_s` by the clock, every second is one of `what`."""
        self._turn()
        self._beside = what, ended_s

    def end_beside(self, ended_s: Callable[[], float | None]) -> None:
        """That is over, or goes on for nothing; unless something else has begun."""
        self._turn()
        if self._beside is not None and self._beside[1] == ended_s:
            self._beside = None

    @contextmanager
    def on(self, what: str) -> Iterator[None]:
        """A `with` block whose time goes to `what`, but for blocks within it."""
        self._turn()
        self._doing.append(what)
        try:
            yield
        finally:
            self._turn()
            self._doing.pop()

    def _turn(self) -> None:
        now, since = self._clock(), self._since
        if self._beside is not None:
            what, ended_s = self._beside
            ended = ended_s()
            until = max(since, now if ended is None else min(ended, now))
            self._add(what, until - since)
            since = until
        if self._doing:
            self._add(self._doing[-1], now - since)
        self._since = now

    def _add(self, what: str, seconds: float) -> None:
        self._seconds[what] = self._seconds.get(what, 0.0) + seconds

    def seconds(self) -> dict[str, float]:
        """What is over, by what it went to."""
        return dict(self._seconds)

    def counters(self) -> dict[str, int]:
        """For the status and the metrics: whole seconds, and the share that computing has of all."""
        found = self.seconds()
        share = found.get(COMPUTING, 0.0) / max(sum(found.values()), 1e-9)
        shown = {f"seconds_{what}": round(spent) for what, spent in found.items()}
        return {**shown, "computing_percent": round(100 * share)}
