"""A pool of workers: takes orders by priority, and sees each one through.

Contract: `submit` gives a future of the order's result. A worker takes the waiting order of the highest
priority; among equal ones, one whose affinity is its own, then the oldest. Orders are not preempted. An order
whose worker dies, or loses its device, runs again on another worker or a new process, `TRIES` times in all;
then its future raises `WorkerLost`. What an order raises is raised by its future, and not tried again. A
worker that dies at once is started again after a pause that doubles, up to `MOST_PAUSE_S`.
`cancel` of the future removes a waiting order; a running one ends between two steps, or its worker is killed
`CANCEL_S` later. Thread-safe; one thread for each worker.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Protocol, TypeVar

from assay.compute.orders import Cancelled, Order, Priority, WorkerLost

log = logging.getLogger(__name__)

R = TypeVar("R")

TRIES = 3
CANCEL_S = 5.0
FIRST_PAUSE_S, MOST_PAUSE_S = 0.5, 60.0
STEADY_S = 10.0
"""A process that lived for so long did not die at once."""

Progress = Callable[[int, int], None]
"""Told steps done and steps in all."""


class WorkerGone(Exception):
    """The process behind a worker has ended, or its device is lost. `why` is for people."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Worker(Protocol):
    """One worker, as the pool reaches it. Used from one thread, but for `close`."""

    @property
    def device(self) -> str: ...

    def run(self, order: Order[Any], progress: Progress, cancelled: threading.Event) -> Any:
        """Start the process if none runs, and run an order in it. Raises what the order raised, `Cancelled`,
        or `WorkerGone`."""
        ...

    def close(self) -> None:
        """End the process, whatever it is at. Called from any thread; `run` then raises WorkerGone."""
        ...


@dataclass(frozen=True)
class WorkerStatus:
    """What a worker does, for people. Times are of `time.monotonic`."""

    device: str
    order: str = ""
    """Name of the running order; empty where the worker is idle."""
    done: int = 0
    total: int = 0
    since_s: float = 0.0
    seconds_a_step: float = 0.0
    """Of the order that ran last."""
    orders: int = 0
    losses: int = 0
    trouble: str = ""
    """Why the last process ended, until an order is done again."""


class Task(Future[R]):
    """The future of an order's result."""

    def __init__(self, order: Order[R], priority: Priority, progress: Progress | None) -> None:
        super().__init__()
        self.order, self.priority, self.progress = order, priority, progress
        self.cancelled_running = threading.Event()
        self.losses = 0

    def cancel(self) -> bool:
        """Cancel the order, waiting or running; False once it is done."""
        if super().cancel():
            return True
        self.cancelled_running.set()
        return not self.done()


class Pool:
    """Orders on their way to some workers."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        """At least one worker."""
        self._changed = threading.Condition()
        self._waiting: list[tuple[Priority, int, Task[Any]]] = []
        self._numbers = count()
        self._closed = False
        self._workers = list(workers)
        self._status = [WorkerStatus(worker.device) for worker in workers]
        self._threads = [
            threading.Thread(target=self._serve, args=(number,), name=f"worker-{worker.device}", daemon=True)
            for number, worker in enumerate(workers)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def width(self) -> int:
        """How many orders run at the same time."""
        return len(self._workers)

    def submit(
        self,
        order: Order[R],
        priority: Priority = Priority.TRAINING,
        progress: Progress | None = None,
    ) -> Task[R]:
        """Have an order run. `progress` is called from a thread of the pool's. Raises RuntimeError once the
        pool is closed."""
        task = Task(order, priority, progress)
        with self._changed:
            if self._closed:
                raise RuntimeError("the pool is closed")
            self._waiting.append((priority, next(self._numbers), task))
            self._changed.notify_all()
        return task

    def status(self) -> tuple[WorkerStatus, ...]:
        """What each worker does now."""
        with self._changed:
            return tuple(self._status)

    def waiting(self) -> int:
        """Orders that no worker has taken."""
        with self._changed:
            return sum(not task.cancelled() for _, _, task in self._waiting)

    def close(self) -> None:
        """Cancel what waits, end what runs, and end all processes."""
        with self._changed:
            self._closed = True
            waiting, self._waiting = self._waiting, []
            self._changed.notify_all()
        for _, _, task in waiting:
            task.cancel()
        for worker in self._workers:
            worker.close()
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- a worker's thread

    def _serve(self, number: int) -> None:
        affinity, pause_s = "", 0.0
        while True:
            task = self._take(affinity, pause_s)
            if task is None:
                return
            affinity = task.order.affinity
            began_s = time.monotonic()
            lost = self._run(number, task)
            if not lost:
                pause_s = 0.0
            elif time.monotonic() - began_s > STEADY_S:
                pause_s = FIRST_PAUSE_S
            else:
                pause_s = min(max(2 * pause_s, FIRST_PAUSE_S), MOST_PAUSE_S)

    def _take(self, affinity: str, pause_s: float) -> Task[Any] | None:
        """The next order for a worker, after a pause; None once the pool is closed."""
        with self._changed:
            if pause_s:
                self._changed.wait_for(lambda: self._closed, pause_s)
            while not self._closed:
                self._waiting = [entry for entry in self._waiting if not entry[2].cancelled()]
                if self._waiting:
                    best = min(
                        self._waiting,
                        key=lambda e: (e[0], not affinity or e[2].order.affinity != affinity, e[1]),
                    )
                    self._waiting.remove(best)
                    task = best[2]
                    if task.losses or task.set_running_or_notify_cancel():
                        return task
                    continue
                self._changed.wait()
        return None

    def _run(self, number: int, task: Task[Any]) -> bool:
        """Run an order; whether its worker was lost by it."""
        begun_s = time.monotonic()
        self._note(number, order=task.order.name, done=0, total=0, since_s=begun_s)

        def progress(done: int, total: int) -> None:
            self._note(number, done=done, total=total)
            if task.progress is not None:
                try:
                    task.progress(done, total)
                except Exception:  # the listener's bug is not the order's, which runs on
                    log.exception("telling the progress of %s failed", task.order.name)

        try:
            result = self._workers[number].run(task.order, progress, task.cancelled_running)
        except WorkerGone as gone:
            self._lost(number, task, gone.why)
            return True
        except BaseException as error:  # noqa: BLE001 - it is whoever waits for the order that it concerns
            self._note(number, order="", trouble="")
            task.set_exception(error)
            return False
        with self._changed:
            now = self._status[number]
            took_s = (time.monotonic() - begun_s) / now.total if now.total else now.seconds_a_step
            self._status[number] = replace(
                now, order="", trouble="", orders=now.orders + 1, seconds_a_step=took_s
            )
        task.set_result(result)
        return False

    def _lost(self, number: int, task: Task[Any], why: str) -> None:
        """Have an order run again whose worker was lost, or give it up."""
        task.losses += 1
        with self._changed:
            now = self._status[number]
            self._status[number] = replace(now, order="", losses=now.losses + 1, trouble=why)
            closed = self._closed
            again = not closed and task.losses < TRIES and not task.cancelled_running.is_set()
            if again:
                self._waiting.append((task.priority, next(self._numbers), task))
                self._changed.notify_all()
        if again:
            return
        if closed or task.cancelled_running.is_set():
            what = "the order was cancelled, and nothing of it is kept"
            task.set_exception(Cancelled(what, hint="order it again"))
            return
        task.set_exception(
            WorkerLost(
                f"{task.losses} workers that ran {task.order.name} were lost, the last as {why}",
                hint="see whether this machine has memory for it, and what the node's log says",
            )
        )

    def _note(self, number: int, **changes: Any) -> None:
        with self._changed:
            self._status[number] = replace(self._status[number], **changes)
