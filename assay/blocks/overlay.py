"""A block store that also reads another one without writing to it, for dry runs.

Contract: a block is read from the store itself, or from the one below, verified. Pins, deletion and counts
are those of the store itself.
"""

from __future__ import annotations

import os
from pathlib import Path

from assay.blocks.blockstore import BlockStore, read_if_exists
from assay.protocol.cid import Cid
from assay.protocol.errors import BlockNotFound


class OverlayStore(BlockStore):
    """Blocks under `root`, and read-only those under `below`."""

    def __init__(self, root: Path, below: Path) -> None:
        super().__init__(root)
        self._below = below

    def get_block(self, cid: Cid) -> bytes:
        """As `BlockStore`; a damaged block below counts as missing and stays there."""
        try:
            return super().get_block(cid)
        except BlockNotFound:
            data = read_if_exists(self._path_below(cid))
            if data is None or not cid.matches(data):
                raise
            return data

    def has_block(self, cid: Cid) -> bool:
        """As `BlockStore`."""
        return super().has_block(cid) or os.path.isfile(self._path_below(cid))

    def _path_below(self, cid: Cid) -> Path:
        return self._below / self._path(cid).relative_to(self.root)
