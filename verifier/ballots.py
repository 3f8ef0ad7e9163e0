"""What a verifier has worked out and not yet revealed, on its disk, so that a restart reveals what it
committed.

Contract: one small JSON file for each claim and seed, written before the vote is sent. Salts are not stored:
they follow from the operator's secret.
"""

from __future__ import annotations

import json
import os
from hashlib import sha256
from hmac import new as hmac
from pathlib import Path

from assay.protocol.types import ClaimId
from assay.verifier.policy import Ballot


class Ballots:
    """Ballots by claim and seed."""

    def __init__(self, folder: Path, secret: bytes) -> None:
        self._folder, self._secret = folder, secret
        folder.mkdir(parents=True, exist_ok=True)
        self._known: dict[tuple[ClaimId, bytes], Ballot] = {}
        for path in folder.glob("*.json"):
            try:
                entry = json.loads(path.read_text())
                key = (ClaimId(bytes.fromhex(entry["claim"])), bytes.fromhex(entry["seed"]))
                traces = tuple(bytes.fromhex(trace) for trace in entry["traces"])
                self._known[key] = Ballot(bool(entry["valid"]), traces, bool(entry["finding"]))
            except (OSError, ValueError, TypeError, KeyError):
                continue

    def salt(self, claim_id: ClaimId, seed: bytes) -> bytes:
        """Salt of our vote commitment: ours alone, and the same after every restart."""
        return hmac(self._secret, b"assay/vote/1" + claim_id + seed, sha256).digest()

    def all(self) -> dict[tuple[ClaimId, bytes], Ballot]:
        return dict(self._known)

    def get(self, claim_id: ClaimId, seed: bytes) -> Ballot | None:
        return self._known.get((claim_id, seed))

    def put(self, claim_id: ClaimId, seed: bytes, ballot: Ballot) -> None:
        """Keep a ballot; the first one for a claim and seed stays."""
        if (claim_id, seed) in self._known:
            return
        self._known[claim_id, seed] = ballot
        path = self._folder / f"{claim_id.hex()}-{seed.hex()[:16]}.json"
        fresh = path.with_suffix(".tmp")
        entry = {
            "claim": claim_id.hex(),
            "seed": seed.hex(),
            "valid": ballot.valid,
            "traces": [trace.hex() for trace in ballot.traces],
            "finding": ballot.finding,
        }
        with fresh.open("w") as file:
            json.dump(entry, file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
