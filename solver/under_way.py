"""A segment that is being computed: by a process of its own, or at once.

Contract: at most one is under way. Where another process computes, `over` waits for it without Python's lock;
else `begin` computes, and returns when it is over. One that was let go is computed to its end and used for
nothing. Used from one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from assay.node.artifacts import State
from assay.node.time_spent import COMPUTING, TimeSpent
from assay.solver.storing import OpenTask


class Times:
    """When a segment's computing began, and ended; without the states."""

    def __init__(self, begun_s: float) -> None:
        self.begun_s = begun_s
        self.ended_s: float | None = None

    def ended(self) -> float | None:
        """By the clock, once it has."""
        return self.ended_s

    @property
    def took_s(self) -> float:
        """How long it took, once it is over."""
        return (self.begun_s if self.ended_s is None else self.ended_s) - self.begun_s


@dataclass
class UnderWay:
    """A segment of a task, from the state at its beginning."""

    task: OpenTask
    segment: int
    start: State
    times: Times
    apart: bool
    future: Future[State] = field(default_factory=Future)


class Computing:
    """Computes one segment at a time."""

    def __init__(self, spent: TimeSpent, clock: Callable[[], float] = time.monotonic) -> None:
        self._spent, self._clock = spent, clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="computing")
        self.under_way: UnderWay | None = None

    def begin(self, task: OpenTask, run: Callable[[], State], apart: bool) -> None:
        """Begin a segment: `run` gives its end; `apart`: without keeping this process busy."""
        times = Times(self._clock())
        found = UnderWay(task, task.segments, task.state, times, apart)

        def computed() -> State:
            times.begun_s = self._clock()  # what it was let wait for is not its own
            try:
                return run()
            finally:
                times.ended_s = self._clock()

        if apart:
            found.future = self._thread.submit(computed)
            self._spent.begin_beside(COMPUTING, times.ended)
        else:
            with self._spent.on(COMPUTING):
                found.future.set_result(computed())
        self.under_way = found

    def over(self, wait_s: float) -> bool:
        """Whether the one under way is over, within so many seconds."""
        return self.under_way is None or bool(wait([self.under_way.future], wait_s).done)

    def take(self) -> tuple[UnderWay, State]:
        """The one that was under way, and its end. Raises what computing it raised."""
        found = self.under_way
        assert found is not None, "none was begun"
        self.let_go()
        return found, found.future.result()

    def let_go(self) -> None:
        """Have none under way."""
        if self.under_way is not None:
            self._spent.end_beside(self.under_way.times.ended)
            self.under_way.future.cancel()
        self.under_way = None

    def close(self) -> None:
        """Begin none any more."""
        self.let_go()
        self._thread.shutdown(wait=False, cancel_futures=True)
