"""Determines a node's disk budget."""

from __future__ import annotations

import shutil

from assay.app.units import parse_bytes
from assay.blocks.blockstore import BlockStore
from assay.solver.disk_budget import DiskBudget

FREE_SHARE = 0.8
"""Share of the free space at a node's start that it uses by default."""


def disk_budget(store: BlockStore, given: str | None, shards: int) -> DiskBudget:
    """Budget by the option, or most of the free space. Raises Stop for an invalid size."""

    def used() -> int:
        return store.usage().total_bytes

    if given is not None:
        return DiskBudget(parse_bytes(given), used, shards)
    free = shutil.disk_usage(store.root).free
    return DiskBudget(used() + int(free * FREE_SHARE), used, shards)
