"""Stores on disk which leaves a whistleblower demands of each claim.

Contract: the choice is stored before a demand is signed, so that a crash leads to the same demand again and
not to another one. One record (``disk.record``) per claim; a damaged one is an error, as another choice could
mean a second demand with a second bond.
"""

from __future__ import annotations

from pathlib import Path

from assay.disk import record
from assay.node.orders import WantedLeaves
from assay.protocol.demands import StateLeaf
from assay.protocol.types import ClaimId

_KIND = "assay/demand/1"


class DemandStore:
    """One small file per claim."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def _path(self, claim_id: ClaimId) -> Path:
        return self._folder / f"{claim_id.hex()}.json"

    def of(self, claim_id: ClaimId) -> WantedLeaves | None:
        """The leaves chosen for a claim, or None. Raises DamagedRecord."""
        path = self._path(claim_id)
        hint = f"move {path} away once no demand of this account on the claim is under way"
        body = record.read(path, _KIND, hint=hint)
        if body is None:
            return None
        if body["claim"] != claim_id.hex():
            raise record.DamagedRecord(f"{path} is about claim 0x{body['claim']}", hint=hint)
        return WantedLeaves(int(body["end"]), tuple(StateLeaf(*place) for place in body["places"]))

    def keep(self, claim_id: ClaimId, wanted: WantedLeaves) -> None:
        """Stores the choice durably."""
        places = [[place.slot, place.leaf] for place in wanted.places]
        body = {"claim": claim_id.hex(), "end": wanted.end, "places": places}
        record.write(self._path(claim_id), _KIND, body)
