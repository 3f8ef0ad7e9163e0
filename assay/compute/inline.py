"""A pool without workers: orders run at once, in the calling thread.

Contract: as ``compute.pool.Pool``, but `submit` returns when the order is done, and no worker can be lost.
For commands that run one order and exit, and for tests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from assay.compute.node_calls import Home
from assay.compute.orders import Order, Priority, WorkerConfig, WorkerContext
from assay.compute.pool import Loss, OrderFuture, Progress, R, Slower, WorkerStatus
from assay.numerics import slow_paths


class InlinePool:
    """Runs orders in this process, on the device of `config`."""

    width = 1

    def __init__(self, home: Home | None = None, config: WorkerConfig | None = None) -> None:
        self.context = WorkerContext(config or WorkerConfig(executor="reference"), desk=home)
        self._home = home
        self._orders = self._ended = 0
        self.on_loss: Callable[[Loss], object] = lambda loss: None
        """Never called."""
        self.on_slower: Callable[[Slower], object] = lambda slower: None
        """Never called: this process logs it itself."""

    def submit(
        self, order: Order[R], priority: Priority = Priority.TRAINING, progress: Progress | None = None
    ) -> OrderFuture[R]:
        """Runs the order and returns its completed future. Exceptions that no order raises, such as the end
        of the process, are raised at once."""
        task = OrderFuture(order, priority, progress)
        task.set_running_or_notify_cancel()
        self.context.progress = progress or (lambda done, total: None)
        try:
            if self._home is None or not order.held:
                result = order.run(self.context)
            else:
                with self._home.held():
                    result = order.run(self.context)
        except Exception as error:  # noqa: BLE001 - raised by whoever waits for the order
            task.set_exception(error)
        else:
            task.set_result(result)
        self._orders += 1
        return task

    def status(self) -> tuple[WorkerStatus, ...]:
        """Status of this process, which is idle whenever it can be asked."""
        device, crew = self.context.config.device, self.context.crew
        return (WorkerStatus(device, orders=self._orders, slower=slow_paths.noted(), crew=crew),)

    def is_busy(self) -> bool:
        """Always False: no order runs while the caller asks."""
        return False

    def waiting(self, priority: Priority = Priority.AHEAD) -> int:
        """Counts the caller of the running order, so that it ends as soon as it can."""
        return 1

    def give_way(self, task: OrderFuture[Any]) -> None:
        """Does nothing: no order runs while the caller asks."""

    def busy_s(self) -> tuple[float, float]:
        """Zeros: not measured."""
        return 0.0, 0.0

    def ended(self) -> int:
        """Number of calls to `renew`."""
        return self._ended

    def renew(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Clears the cache of orders and runs `meanwhile`."""
        self._ended += 1
        jobs = self.context.cache.get("jobs", {})
        for job in jobs.values():
            job.close()
        self.context.cache.clear()
        meanwhile()

    def close(self) -> None:
        """Clears the cache of orders."""
        self.renew()
