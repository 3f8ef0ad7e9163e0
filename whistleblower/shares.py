"""Which claims and votes are audited by whoever does not audit all of them.

Contract: each claim, and each vote on it by itself, is taken with the job's chance, by a secret that is never
shown: whoever commits a claim, or replays it, cannot know which are taken, and a restart takes the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

from assay.protocol.types import Address, ClaimId, JobId

_ALL = 1 << 64


@dataclass(frozen=True)
class Shares:
    """Of which jobs which share is audited, 0 to 1; of other jobs nothing. `secret`: 32 bytes."""

    secret: bytes
    of: Mapping[JobId, float]

    def takes(self, job_id: JobId, claim_id: ClaimId, verifier: Address) -> bool:
        """Whether the claim (zero address), or this verifier's vote on it, is to be audited."""
        drawn = sha256(b"assay/audit/1" + self.secret + claim_id + bytes.fromhex(verifier[2:])).digest()
        return int.from_bytes(drawn[:8], "big") < int(self.of.get(job_id, 0.0) * _ALL)
