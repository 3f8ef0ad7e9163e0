"""Several replays at the same time, for a verifier or a whistleblower: where, and how many.

Contract: `pool_of` gives what an engine needs for them, None for one after another in this process.
"""

from __future__ import annotations

from assay.compute.orders import WorkerConfig
from assay.compute.pool import Pool
from assay.compute.process import ProcessWorker
from assay.node.engine import Engine
from assay.protocol.errors import Ask


def pool_of(count: int, ray: str | None, engine: Engine) -> Pool | None:
    """Raises Ask where they cannot be."""
    if count == 1 and ray is None:
        return None
    if engine.device != "cpu":
        raise Ask(
            f"several replays compute on processors only, not on {engine.device}, so nothing was started",
            hint="run with --device cpu, or without --replays and --ray",
            code="bad-replays",
        )
    if ray is None:
        return Pool([ProcessWorker(WorkerConfig(threads=1)) for _ in range(count)])
    from assay.compute.ray import RayPool

    return RayPool(ray)
