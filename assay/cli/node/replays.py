"""Several replays at the same time, for a verifier or a whistleblower: where, and how many.

Contract: `replays_of` gives what an engine needs for them, None for one after another in this process.
"""

from __future__ import annotations

from assay.node.engine import Engine
from assay.node.replays import LocalReplays, Replays
from assay.protocol.errors import Ask


def replays_of(count: int, ray: str | None, engine: Engine) -> Replays | None:
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
        return LocalReplays(count)
    from assay.node.ray_replays import RayReplays

    return RayReplays(ray)
