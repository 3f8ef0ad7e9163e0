"""Schedules orders on a pool of workers by priority, and retries them when a worker is lost.

Contract: `submit` returns a future of the order's result. A free worker takes the waiting order of highest
priority; among equals one with its own affinity, then the oldest. A running order is only preempted by
`give_way`. An order whose worker dies or loses its device runs again on another worker or new process,
`TRIES` times in all; then its future raises `WorkerLost`. Exceptions of an order are raised by its future and
not retried. A worker that dies at once is restarted after a pause that doubles, up to `MOST_PAUSE_S`.
`cancel` of the future removes a waiting order; a running one ends between two steps, or its worker is killed
`CANCEL_S` later. Thread-safe; one thread per worker.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from typing import Any, Protocol, TypeVar

from assay.compute.orders import Cancelled, Order, Priority, WorkerLost

log = logging.getLogger(__name__)

R = TypeVar("R")

TRIES = 3
CANCEL_S = 5.0
FIRST_PAUSE_S, MOST_PAUSE_S = 0.5, 60.0
STEADY_S = 10.0
"""Lifetime in seconds from which a process does not count as dying at once."""

Progress = Callable[[int, int], None]
"""Callback with the steps done and in all."""


class WorkerGone(Exception):
    """A worker's process has ended, or its device is lost. `why`: explanation to show."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


@dataclass(frozen=True)
class Usage:
    """Resources used by a worker's process; 0 if unknown."""

    resident_bytes: int = 0
    device_bytes: int = 0
    """Bytes of GPU memory."""
    seconds_a_step: float = 0.0
    """Seconds per step of the latest steps."""
    slower: tuple[str, ...] = ()
    """What it computes more slowly than it could, and why (``numerics.slow_paths``)."""
    crew: Mapping[str, Any] = field(default_factory=dict)
    """What a crew's member measures (``compute.meter``)."""


UNKNOWN = Usage()


class Worker(Protocol):
    """One worker as the pool uses it: from one thread, except `close`."""

    @property
    def device(self) -> str: ...
    @property
    def ended(self) -> int:
        """Number of its processes that have ended, with their memory. Their messages are dropped from then
        on."""
        ...

    @property
    def usage(self) -> Usage:
        """Resources its process uses now."""
        ...

    def run(self, order: Order[Any], progress: Progress, cancelled: threading.Event) -> Any:
        """Runs an order, and starts the process if needed. Raises what the order raised, `Cancelled`, or
        `WorkerGone`."""
        ...

    def stopped(self) -> AbstractContextManager[None]:
        """Kills the process and keeps it stopped for a `with` block.

        Its messages are dropped from then on. Thread-safe; a concurrent `run` raises WorkerGone.
        """
        ...

    def close(self) -> None:
        """Ends the process for good. Thread-safe; a concurrent `run` raises WorkerGone."""
        ...


@dataclass(frozen=True)
class WorkerStatus:
    """Activity of a worker, to show. Times are of `time.monotonic`."""

    device: str
    order: str = ""
    """Name of the running order; empty if idle."""
    done: int = 0
    total: int = 0
    since_s: float = 0.0
    busy_s: float = 0.0
    """Seconds used by completed orders."""
    orders: int = 0
    losses: int = 0
    trouble: str = ""
    """Why the last process ended, until an order completes."""
    resident_bytes: int = 0
    device_bytes: int = 0
    seconds_a_step: float = 0.0
    slower: tuple[str, ...] = ()
    crew: Mapping[str, Any] = field(default_factory=dict)
    """As in `Usage`."""


@dataclass(frozen=True)
class Loss:
    """A worker's process or device was lost during an order. `again`: whether the order is retried."""

    device: str
    order: str
    why: str
    again: bool


@dataclass(frozen=True)
class Slower:
    """A worker computes more slowly than it could."""

    device: str
    why: str


class OrderFuture(Future[R]):
    """Future of an order's result."""

    def __init__(self, order: Order[R], priority: Priority, progress: Progress | None) -> None:
        super().__init__()
        self.order, self.priority, self.progress = order, priority, progress
        self.cancelled_running = threading.Event()
        self.unwanted = self.gives_way = False
        """True if it was cancelled or preempted."""
        self.losses = 0

    def cancel(self) -> bool:
        """Cancels the order, waiting or running; False if it is done."""
        if super().cancel():
            return True
        self.unwanted = True
        self.cancelled_running.set()
        return not self.done()

    @property
    def is_dropped(self) -> bool:
        """True if it was cancelled while it waited, also after being preempted."""
        return self.cancelled() or (self.losses > 0 and self.cancelled_running.is_set())

    def drop(self) -> None:
        """Notifies waiters that it was cancelled while it waited after being preempted."""
        if not self.cancelled():
            what = "the order was cancelled, and nothing of it is kept"
            self.set_exception(Cancelled(what, hint="order it again"))


class Pool:
    """A queue of orders and the workers that run them."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        """Needs at least one worker."""
        self._changed = threading.Condition()
        self._waiting: list[tuple[Priority, int, OrderFuture[Any]]] = []
        self._numbers = count()
        self._closed = False
        self._begun_s = time.monotonic()
        self.on_loss: Callable[[Loss], object] = lambda loss: None
        """Called for each lost worker, in a thread of the pool."""
        self.on_slower: Callable[[Slower], object] = lambda slower: None
        """Called once for each device and reason."""
        self._slower: set[Slower] = set()
        self._workers = list(workers)
        self._status = [WorkerStatus(worker.device) for worker in workers]
        self._running: dict[int, OrderFuture[Any]] = {}
        self._threads = [
            threading.Thread(target=self._serve, args=(number,), name=f"worker-{worker.device}", daemon=True)
            for number, worker in enumerate(workers)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def width(self) -> int:
        """Number of orders that run in parallel."""
        return len(self._workers)

    def submit(
        self,
        order: Order[R],
        priority: Priority = Priority.TRAINING,
        progress: Progress | None = None,
    ) -> OrderFuture[R]:
        """Queues an order. `progress` is called from a thread of the pool. Raises RuntimeError once the pool
        is closed."""
        task = OrderFuture(order, priority, progress)
        with self._changed:
            if self._closed:
                raise RuntimeError("the pool is closed")
            self._waiting.append((priority, next(self._numbers), task))
            self._changed.notify_all()
        return task

    def status(self) -> tuple[WorkerStatus, ...]:
        """Activity of each worker."""
        with self._changed:
            found = tuple(self._status)
        usages = [worker.usage for worker in self._workers]
        return tuple(replace(status, **asdict(usage)) for status, usage in zip(found, usages, strict=True))

    def is_busy(self) -> bool:
        """True if any worker runs an order."""
        with self._changed:
            return any(status.order for status in self._status)

    def waiting(self, priority: Priority = Priority.AHEAD) -> int:
        """Number of queued orders of at least this priority."""
        with self._changed:
            return sum(of <= priority and not task.is_dropped for of, _, task in self._waiting)

    def busy_s(self) -> tuple[float, float]:
        """Seconds that workers have run orders, and total seconds of all workers since the pool started."""
        now = time.monotonic()
        with self._changed:
            busy = sum(s.busy_s + (now - s.since_s if s.order else 0.0) for s in self._status)
        return busy, (now - self._begun_s) * self.width

    def give_way(self, task: OrderFuture[Any]) -> None:
        """Preempts a running order of lower priority for a waiting one; it is queued again. One at a time."""
        with self._changed:
            of = task.order.device
            fit = [x for n, x in self._running.items() if of in ("", self._workers[n].device)]
            less = [other for other in fit if other.priority > task.priority]
            waits = any(entry[2] is task for entry in self._waiting)
            if waits and less and not any(x.gives_way for x in fit):
                last = max(less, key=lambda other: other.priority)
                last.gives_way = True
                last.cancelled_running.set()

    def ended(self) -> int:
        """Number of worker processes that have ended."""
        return sum(worker.ended for worker in self._workers)

    def renew(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Restarts all processes, so that nothing in their memory is used or reported any more.

        Running orders start again once `meanwhile` is done.
        """
        with ExitStack() as stopped:
            for worker in self._workers:
                stopped.enter_context(worker.stopped())
            meanwhile()

    def close(self) -> None:
        """Cancels all orders and ends all processes; one whose order does not stop is killed `CANCEL_S`
        later."""
        with self._changed:
            self._closed = True
            waiting, self._waiting = self._waiting, []
            running = list(self._running.values())
            self._changed.notify_all()
        for task in (*(task for _, _, task in waiting), *running):
            task.cancel()
        for _, _, task in waiting:
            task.drop()
        until_s = time.monotonic() + CANCEL_S
        for thread in self._threads:
            thread.join(max(until_s - time.monotonic(), 0.0))
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
            task = self._take(number, affinity, pause_s)
            if task is None:
                return
            affinity = task.order.affinity
            began_s = time.monotonic()
            lost = self._run(number, task)
            with self._changed:
                self._running.pop(number, None)
            self._note(number, busy_s=self._status[number].busy_s + time.monotonic() - began_s)
            self._tell_slower(number)
            if not lost:
                pause_s = 0.0
            elif time.monotonic() - began_s > STEADY_S:
                pause_s = FIRST_PAUSE_S
            else:
                pause_s = min(max(2 * pause_s, FIRST_PAUSE_S), MOST_PAUSE_S)

    def _drop_cancelled(self) -> None:
        for task in [task for _, _, task in self._waiting if task.is_dropped]:
            task.drop()
        self._waiting = [entry for entry in self._waiting if not entry[2].is_dropped]

    def _take(self, number: int, affinity: str, pause_s: float) -> OrderFuture[Any] | None:
        """The next order for a worker, after a pause; None once the pool is closed."""
        with self._changed:
            if pause_s:
                self._changed.wait_for(lambda: self._closed, pause_s)
            while not self._closed:
                self._drop_cancelled()
                device = self._workers[number].device
                mine = [entry for entry in self._waiting if entry[2].order.device in ("", device)]
                if mine:
                    best = min(
                        mine,
                        key=lambda e: (e[0], not affinity or e[2].order.affinity != affinity, e[1]),
                    )
                    self._waiting.remove(best)
                    task = best[2]
                    if task.running() or task.set_running_or_notify_cancel():
                        self._running[number] = task
                        return task
                    continue
                self._changed.wait()
        return None

    def _run(self, number: int, task: OrderFuture[Any]) -> bool:
        """Runs an order; True if its worker was lost."""
        self._note(number, order=task.order.name, done=0, total=0, since_s=time.monotonic())

        def progress(done: int, total: int) -> None:
            self._note(number, done=done, total=total)
            self._tell_slower(number)
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
            if not (isinstance(error, Cancelled) and self._runs_again(task)):
                task.set_exception(error)
            return False
        with self._changed:
            now = self._status[number]
            self._status[number] = replace(now, order="", trouble="", orders=now.orders + 1)
        task.set_result(result)
        return False

    def _runs_again(self, task: OrderFuture[Any]) -> bool:
        """Queues an order that was preempted again; False if it was not, or is no longer wanted."""
        with self._changed:
            if self._closed or not task.gives_way or task.unwanted:
                return False
            task.gives_way = False
            task.cancelled_running.clear()
            if task.unwanted:  # since then
                task.cancelled_running.set()
            self._waiting.append((task.priority, next(self._numbers), task))
            self._changed.notify_all()
        return True

    def _lost(self, number: int, task: OrderFuture[Any], why: str) -> None:
        """Queues the order of a lost worker again, or fails it."""
        task.losses += 1
        with self._changed:
            now = self._status[number]
            self._status[number] = replace(now, order="", losses=now.losses + 1, trouble=why)
            closed = self._closed
            again = not closed and task.losses < TRIES and not task.unwanted
            if again:
                task.gives_way = False
                task.cancelled_running.clear()
                self._waiting.append((task.priority, next(self._numbers), task))
                self._changed.notify_all()
        if not closed:
            try:
                self.on_loss(Loss(now.device, task.order.name, why, again))
            except Exception:  # the listener's bug must not keep the order from running again
                log.exception("telling of the loss of a worker failed")
        if again:
            return
        if closed or task.unwanted:
            what = "the order was cancelled, and nothing of it is kept"
            task.set_exception(Cancelled(what, hint="order it again"))
            return
        task.set_exception(
            WorkerLost(
                f"{task.losses} workers that ran {task.order.name} were lost, the last as {why}",
                hint="see whether this machine has memory for it, and what the node's log says",
            )
        )

    def _tell_slower(self, number: int) -> None:
        worker = self._workers[number]
        found = [Slower(worker.device, why) for why in worker.usage.slower]
        with self._changed:
            new = [slower for slower in found if slower not in self._slower]
            self._slower.update(new)
        for slower in new:
            try:
                self.on_slower(slower)
            except Exception:  # the listener's bug must not end the worker's thread
                log.exception("telling that a worker is slower failed")

    def _note(self, number: int, **changes: Any) -> None:
        with self._changed:
            self._status[number] = replace(self._status[number], **changes)
