"""A pool whose one worker does what the test says: it takes its next order, dies in the midst of one, or
idle."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, ClassVar

from assay.compute.inline import InlinePool
from assay.compute.node_calls import Home
from assay.compute.orders import Order, Priority, WorkerLost
from assay.compute.pool import TRIES, OrderFuture, Progress, R


class Died(BaseException):
    """The worker's process was killed. No code of the worker's catches it."""


class LateExecutor:
    """An executor whose work is done when the test says, or when somebody waits for it."""

    every: ClassVar[list[LateExecutor]] = []

    def __init__(self, *_: object, **__: object) -> None:
        self._waiting: list[LateFuture] = []
        self.every.append(self)

    def submit(self, work: Callable[..., Any], *arguments: Any) -> LateFuture:
        future = LateFuture(self, lambda: work(*arguments))
        self._waiting.append(future)
        return future

    def step(self) -> None:
        """Do what waits the longest."""
        if self._waiting:
            self._waiting.pop(0).do()

    def shutdown(self, wait: bool = True, cancel_futures: bool = False) -> None:
        self._waiting.clear()


class LateFuture(Future[Any]):
    def __init__(self, executor: LateExecutor, work: Callable[[], Any]) -> None:
        super().__init__()
        self._executor, self._work = executor, work

    def do(self) -> None:
        try:
            self.set_result(self._work())
        except BaseException as error:  # noqa: BLE001 - as an executor's
            self.set_exception(error)

    def result(self, timeout: float | None = None) -> Any:
        while not self.done():
            self._executor.step()
        return super().result(timeout)


class ManualPool:
    """As ``compute.pool.Pool``, but that nothing runs until `step`."""

    width = 1

    def __init__(self, home: Home) -> None:
        self._worker = InlinePool(home)
        self._waiting: list[tuple[Priority, int, OrderFuture[Any]]] = []
        self._count = 0

    def submit(
        self, order: Order[R], priority: Priority = Priority.TRAINING, progress: Progress | None = None
    ) -> OrderFuture[R]:
        task = OrderFuture(order, priority, progress)
        self._count += 1
        self._waiting.append((priority, self._count, task))
        return task

    def step(self, dies_after: int | None = None) -> bool:
        """Run the next order, or let the worker die after so many of its steps; whether there was one."""
        self._waiting = [entry for entry in self._waiting if not entry[2].cancelled()]
        if not self._waiting:
            return False
        first = min(self._waiting)
        self._waiting.remove(first)
        task, left = first[2], dies_after

        def progress(done: int, total: int) -> None:
            nonlocal left
            if left is not None:
                if left == 0:
                    raise Died
                left -= 1

        try:
            found = self._worker.submit(task.order, task.priority, progress)
        except Died:
            self._worker.renew()
            task.losses += 1
            if task.losses < TRIES:
                self._waiting.append(first)
            else:
                task.set_exception(WorkerLost("three workers were lost", hint="-"))
            return True
        error = found.exception()
        if error is None:
            task.set_result(found.result())
        else:
            task.set_exception(error)
        return True

    def orders(self) -> list[Order[Any]]:
        """Those that wait."""
        return [task.order for _, _, task in self._waiting if not task.cancelled()]

    def status(self) -> tuple[()]:
        return ()

    def waiting(self, priority: Priority = Priority.AHEAD) -> int:
        return sum(of <= priority and not task.cancelled() for of, _, task in self._waiting)

    def give_way(self, task: OrderFuture[Any]) -> None:
        """Nothing runs whenever it can be asked."""

    def busy_s(self) -> tuple[float, float]:
        return 0.0, 0.0

    def ended(self) -> int:
        return self._worker.ended()

    def renew(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self._worker.renew(meanwhile)

    def close(self) -> None:
        self._worker.renew()
