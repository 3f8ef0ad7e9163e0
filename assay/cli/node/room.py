"""How much of a disk a node may take."""

from __future__ import annotations

import shutil

from assay.app.units import parse_bytes
from assay.blocks.blockstore import BlockStore
from assay.solver.room import DiskBudget

FREE_SHARE = 0.8
"""Of what is free when a node starts, where its operator says nothing."""


def disk_budget(store: BlockStore, given: str | None, shards: int) -> DiskBudget:
    """What `given` says, or most of what is free. Raises Stop for no size."""

    def used() -> int:
        return store.usage().total_bytes

    if given is not None:
        return DiskBudget(parse_bytes(given), used, shards)
    free = shutil.disk_usage(store.root).free
    return DiskBudget(used() + int(free * FREE_SHARE), used, shards)
