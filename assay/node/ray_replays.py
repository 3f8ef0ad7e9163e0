"""Replaying segments on a Ray cluster (``pip install assay-market[ray]``).

Contract: as ``node.replays``; Ray sends a segment to another worker where one has died, up to `TRIES` times.
Every machine of the cluster needs this program in the same version, and one processor a replay. Not
guaranteed: secrecy from whoever reaches the cluster; what is sent is public.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

from assay.node.replays import TRIES, Order, Replayed, ReplayLost, Replays, replayed
from assay.protocol.errors import Ask


class RayReplays(Replays):
    """Replays on the cluster at an address; `local` starts one here, as wide as this machine."""

    def __init__(self, address: str) -> None:
        """Raises Ask without Ray, or where no cluster answers."""
        if importlib.util.find_spec("ray") is None:
            raise Ask(
                "Ray is not installed, so nothing was started",
                hint="pip install 'assay-market[ray]', or give --replays N for processes of this machine",
                code="no-ray",
            )
        import ray

        self._ray: Any = ray
        try:
            ray.init(address=address, log_to_driver=False, configure_logging=False, include_dashboard=False)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise Ask(
                f"no Ray cluster answers at {address!r} ({error}), so nothing was started",
                hint="give the address that `ray start --head` has named, or 'local'",
                code="no-ray",
            ) from error
        self.width = max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._replayed = ray.remote(num_cpus=1, max_retries=TRIES - 1)(replayed)

    def submit(self, order: Order) -> Callable[[], Replayed]:
        reference = self._replayed.remote(order)
        return lambda: self._result(reference, order)

    def _result(self, reference: Any, order: Order) -> Replayed:
        try:
            found: Replayed = self._ray.get(reference)
        except self._ray.exceptions.RaySystemError as error:
            raise self._lost(order, error) from error
        except self._ray.exceptions.WorkerCrashedError as error:
            raise self._lost(order, error) from error
        return found

    def _lost(self, order: Order, error: Exception) -> ReplayLost:
        said = str(error).strip().partition("\n")[0]
        return ReplayLost(
            f"the cluster has lost the segment from step {order.steps.first} {TRIES} times ({said})",
            hint="`ray status` and the cluster's logs say why",
        )

    def close(self) -> None:
        self._ray.shutdown()
