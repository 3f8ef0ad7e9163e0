"""Runs workers on a Ray cluster (``pip install 'assay-market[ray]'``).

Contract: as ``compute.pool``; each worker is an actor with one CPU of the cluster. It has no block store and
requests every block from the node. Every machine of the cluster needs the same version of this program. Not
guaranteed: that the cluster's machines compute right (they are the operator's, as this one is), or secrecy
from anyone who can reach the cluster (but all data is public).
"""

from __future__ import annotations

import importlib.util
import os
import pickle
import queue
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from typing import Any

from assay.compute.node_calls import Home
from assay.compute.orders import WorkerConfig
from assay.compute.pool import Pool
from assay.compute.process import SECRET, LinkWorker
from assay.protocol.errors import Ask

LOCAL = "local"
_SAY_S = 1.0
"""Timeout in seconds of one poll for an actor's messages."""


@contextmanager
def _without_secrets() -> Iterator[None]:
    """Removes this program's variables from the environment for a `with` block."""
    secret = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith(SECRET)}
    try:
        yield
    finally:
        os.environ.update(secret)


class _Actor:
    """Runs ``compute.worker.serve`` in the cluster, with queues as its connection.

    Its calls run in several threads, in any order.
    """

    def __init__(self) -> None:
        self._heard: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._said: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._lock, self._early, self._next = threading.Lock(), dict[int, bytes](), 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        from assay.compute.worker import serve

        try:
            serve(self)
        except BaseException:  # noqa: BLE001 - in a thread it would be lost: ended, the cluster tells the node
            os._exit(1)

    def hear(self, number: int, message: bytes) -> None:
        """Delivers the message with this number, after all before it."""
        with self._lock:
            self._early[number] = message
            while self._next in self._early:
                self._heard.put(self._early.pop(self._next))
                self._next += 1

    def say(self, wait_s: float) -> list[bytes]:
        """Waits for outgoing messages and returns them."""
        said: list[bytes] = []
        with suppress(queue.Empty):
            said.append(self._said.get(timeout=wait_s))
            while True:
                said.append(self._said.get_nowait())
        return said

    # the connection that `serve` has

    def send(self, message: object) -> None:
        self._said.put(pickle.dumps(message))

    def recv(self) -> Any:
        return pickle.loads(self._heard.get())


class RayLink:
    """Connection to an actor."""

    def __init__(self, ray: Any) -> None:
        self._ray, self._said, self._numbers = ray, deque[bytes](), count()
        self._actor = ray.remote(num_cpus=1, max_concurrency=4)(_Actor).remote()
        self._why = "it was ended"

    def send(self, message: object) -> None:
        """See `compute.process.Link`."""
        self._actor.hear.remote(next(self._numbers), pickle.dumps(message))

    def recv(self) -> Any:
        """See `compute.process.Link`."""
        while not self._said:
            try:
                self._said.extend(self._ray.get(self._actor.say.remote(_SAY_S)))
            except self._ray.exceptions.RayError as error:
                self._why = f"the cluster has lost it ({str(error).strip().partition(chr(10))[0]})"
                raise OSError(self._why) from error
        return pickle.loads(self._said.popleft())

    def kill(self) -> None:
        """See `compute.process.Link`."""
        with suppress(Exception):
            self._ray.kill(self._actor)

    def how_ended(self) -> str:
        """See `compute.process.Link`."""
        self.kill()
        return self._why


class RayPool(Pool):
    """A pool with one worker for each CPU of the cluster at an address; `local` starts a cluster here, of
    `width` CPUs."""

    def __init__(
        self,
        address: str,
        width: int | None = None,
        home: Home | None = None,
        config: WorkerConfig | None = None,
    ) -> None:
        """`width` of None: this machine's CPUs. Raises Ask if Ray is missing or no cluster answers."""
        if importlib.util.find_spec("ray") is None:
            raise Ask(
                "Ray is not installed, so nothing was started",
                hint="pip install '.[ray]' in a checkout, or give --replays N for processes of this machine",
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
        config = replace(config or WorkerConfig(), threads=1, store=None)
        super().__init__([LinkWorker(config, lambda: RayLink(ray), home) for _ in range(processors)])

    def close(self) -> None:
        """Ends all workers and disconnects from the cluster."""
        super().close()
        self._ray.shutdown()
