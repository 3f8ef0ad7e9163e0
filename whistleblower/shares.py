"""Samples the claims and votes to audit, for a whistleblower that does not audit everything.

Contract: each claim, and each vote on it separately, is sampled with the job's probability, by a secret that
is never shown. So nobody can know which are audited, and a restart samples the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

from assay.protocol.types import Address, ClaimId, JobId

_ALL = 1 << 64


@dataclass(frozen=True)
class Shares:
    """Fraction of each job to audit, 0 to 1; jobs not listed are not audited. `secret`: 32 bytes."""

    secret: bytes
    of: Mapping[JobId, float]

    def takes(self, job_id: JobId, claim_id: ClaimId, verifier: Address) -> bool:
        """True if the claim (zero address), or this verifier's vote on it, is sampled."""
        drawn = sha256(b"assay/audit/1" + self.secret + claim_id + bytes.fromhex(verifier[2:])).digest()
        return int.from_bytes(drawn[:8], "big") < int(self.of.get(job_id, 0.0) * _ALL)
