"""Workers on a Ray cluster (``pip install 'assay-market[ray]'``).

Contract: as ``compute.pool``: each worker is an actor with one processor of the cluster. Every machine of it
needs this program in the same version. Not guaranteed: that a cluster's machines compute right, they are the
operator's as this one is; secrecy from whoever reaches the cluster, but what is sent is public.
"""

from __future__ import annotations

import importlib.util
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from assay.compute.orders import Bench, Cancelled, DeviceLost, Order, WorkerConfig
from assay.compute.pool import CANCEL_S, Pool, Progress, WorkerGone
from assay.compute.process import SECRET, Answer
from assay.compute.worker import answered
from assay.protocol.errors import Ask

LOCAL = "local"
_LOOK_S = 0.1


@contextmanager
def _without_secrets() -> Iterator[None]:
    """A `with` block in which this process's environment has no variable of this program's."""
    secret = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith(SECRET)}
    try:
        yield
    finally:
        os.environ.update(secret)


class _Actor:
    """What runs in the cluster: one order at a time, while its steps are asked for."""

    def __init__(self, config: WorkerConfig) -> None:
        self._bench = Bench(config, self._progress)
        self._steps = 0, 0
        self._cancelled = False

    def _progress(self, done: int, total: int) -> None:
        self._steps = done, total
        if self._cancelled:
            raise Cancelled("the order was cancelled, and nothing of it is kept", hint="order it again")

    def run(self, order: Order[Any]) -> Answer:
        self._cancelled, self._steps = False, (0, 0)
        return answered(order, self._bench)

    def steps(self) -> tuple[int, int]:
        return self._steps

    def cancel(self) -> None:
        self._cancelled = True


class RayWorker:
    """An actor, started at the first order and again after each that ends."""

    def __init__(self, ray: Any, config: WorkerConfig) -> None:
        self._ray, self._config = ray, config
        self._make = ray.remote(num_cpus=1, max_concurrency=2)(_Actor)
        self._actor: Any = None
        self._closed = False

    @property
    def device(self) -> str:
        """As `WorkerConfig` has it, with where it is."""
        return f"ray:{self._config.device}"

    def run(self, order: Order[Any], progress: Progress, cancelled: threading.Event) -> Any:
        """See `compute.pool.Worker`."""
        if self._closed:
            raise WorkerGone("the pool is closed")
        if self._actor is None:
            self._actor = self._make.remote(self._config)
        try:
            answer: Answer = self._answered(order, progress, cancelled)
        except self._ray.exceptions.RayTaskError as error:  # not the order's, whose errors are answers
            raise RuntimeError(f"the result of {order.name} cannot be sent: {error}") from error
        except self._ray.exceptions.RayError as error:
            self._end()
            said = str(error).strip().partition("\n")[0]
            raise WorkerGone(f"the cluster has lost it ({said})") from error
        if isinstance(answer.error, DeviceLost):
            self._end()
        return answer.given()

    def _answered(self, order: Order[Any], progress: Progress, cancelled: threading.Event) -> Any:
        answer, told = self._actor.run.remote(order), (0, 0)
        killed_at_s: float | None = None
        while not self._ray.wait([answer], timeout=_LOOK_S)[0]:
            steps = self._ray.get(self._actor.steps.remote())
            if steps != told:
                told = steps
                progress(*steps)
            if cancelled.is_set() and killed_at_s is None:
                self._actor.cancel.remote()
                killed_at_s = time.monotonic() + CANCEL_S
            elif killed_at_s is not None and time.monotonic() > killed_at_s:
                self._end()
                raise Cancelled("the order was cancelled, and its worker killed", hint="order it again")
        found = self._ray.get(answer)
        last = self._ray.get(self._actor.steps.remote())
        if last != told:
            progress(*last)
        return found

    def _end(self) -> None:
        actor, self._actor = self._actor, None
        if actor is not None:
            with suppress(Exception):
                self._ray.kill(actor)

    def close(self) -> None:
        """See `compute.pool.Worker`."""
        self._closed = True
        self._end()


class RayPool(Pool):
    """As many workers as the cluster at an address has processors; `local` starts one here, of `width`."""

    def __init__(self, address: str, width: int | None = None) -> None:
        """`width` of None: this machine's processors. Raises Ask without Ray, or where no cluster answers."""
        if importlib.util.find_spec("ray") is None:
            raise Ask(
                "Ray is not installed, so nothing was started",
                hint="pip install 'assay-market[ray]', or give --replays N for processes of this machine",
                code="no-ray",
            )
        import ray

        self._ray: Any = ray
        try:
            with _without_secrets():  # a cluster that is started here inherits the environment
                ray.init(
                    address=address,
                    num_cpus=width if address == LOCAL else None,
                    log_to_driver=False,
                    configure_logging=False,
                    include_dashboard=False,
                )
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise Ask(
                f"no Ray cluster answers at {address!r} ({error}), so nothing was started",
                hint="give the address that `ray start --head` has named, or 'local'",
                code="no-ray",
            ) from error
        processors = max(1, int(ray.cluster_resources().get("CPU", 1)))
        super().__init__([RayWorker(ray, WorkerConfig(threads=1)) for _ in range(processors)])

    def close(self) -> None:
        """End all workers, and leave the cluster."""
        super().close()
        self._ray.shutdown()
