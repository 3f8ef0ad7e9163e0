"""Where a node's time goes: how long its loop did what.

Contract: wall time of the loop's own thread, each second counted once, for the innermost of what was being
done. What other threads do meanwhile, such as storing a large state, is not counted. Read from any thread.
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
        now = self._clock()
        if self._doing:
            done = self._doing[-1]
            self._seconds[done] = self._seconds.get(done, 0.0) + now - self._since
        self._since = now

    def seconds(self) -> dict[str, float]:
        """What is over, by what it went to."""
        return dict(self._seconds)

    def counters(self) -> dict[str, int]:
        """For the status and the metrics: whole seconds, and the share that computing has of all."""
        found = self.seconds()
        share = found.get(COMPUTING, 0.0) / max(sum(found.values()), 1e-9)
        shown = {f"seconds_{what}": round(spent) for what, spent in found.items()}
        return {**shown, "computing_percent": round(100 * share)}
