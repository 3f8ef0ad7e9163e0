"""What a whistleblower has chosen to demand of each claim, on its disk.

Contract: what was kept before a demand is signed is found again after any crash, so that the same demand is
meant again and not another one. One record (``disk.record``) for each claim; a damaged one is an error, as
another choice could be a second demand with a second bond.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from assay.disk import record
from assay.node.orders import WantedLeaves
from assay.protocol import bounded_json
from assay.protocol.demands import StateLeaf
from assay.protocol.types import ClaimId

_KIND = "assay/demand/1"


class DemandStore:
    """One small file for each claim."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def _path(self, claim_id: ClaimId) -> Path:
        return self._folder / f"{claim_id.hex()}.json"

    def of(self, claim_id: ClaimId) -> WantedLeaves | None:
        """What was chosen for a claim. Raises DamagedRecord."""

        def earlier(data: bytes) -> Any:
            kept = bounded_json.loads(data)
            places = [[int(slot), int(leaf)] for slot, leaf in kept["places"]]
            return {"claim": claim_id.hex(), "end": int(kept["end"]), "places": places}

        path = self._path(claim_id)
        hint = f"move {path} away once no demand of this account on the claim is under way"
        body = record.read(path, _KIND, hint=hint, earlier=earlier)
        if body is None:
            return None
        if body["claim"] != claim_id.hex():
            raise record.DamagedRecord(f"{path} is about claim 0x{body['claim']}", hint=hint)
        return WantedLeaves(int(body["end"]), tuple(StateLeaf(*place) for place in body["places"]))

    def keep(self, claim_id: ClaimId, wanted: WantedLeaves) -> None:
        """On the disk before it returns."""
        places = [[place.slot, place.leaf] for place in wanted.places]
        body = {"claim": claim_id.hex(), "end": wanted.end, "places": places}
        record.write(self._path(claim_id), _KIND, body)
