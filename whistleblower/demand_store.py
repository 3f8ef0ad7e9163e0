"""What a whistleblower has chosen to demand of each claim, on its disk.

Contract: what was kept before a demand is signed is found again after any crash, so that the same demand is
meant again and not another one. A file that does not parse counts as absent.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from assay.node.availability import WantedLeaves
from assay.protocol.demands import StateLeaf
from assay.protocol.types import ClaimId


class DemandStore:
    """One small file for each claim."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def _path(self, claim_id: ClaimId) -> Path:
        return self._folder / f"{claim_id.hex()}.json"

    def of(self, claim_id: ClaimId) -> WantedLeaves | None:
        """What was chosen for a claim."""
        try:
            kept = json.loads(self._path(claim_id).read_text())
            places = tuple(StateLeaf(int(slot), int(leaf)) for slot, leaf in kept["places"])
            return WantedLeaves(int(kept["end"]), places)
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def keep(self, claim_id: ClaimId, wanted: WantedLeaves) -> None:
        """On the disk before it returns."""
        path = self._path(claim_id)
        fresh = path.with_suffix(".tmp")
        with fresh.open("w") as file:
            json.dump({"end": wanted.end, "places": [[p.slot, p.leaf] for p in wanted.places]}, file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
