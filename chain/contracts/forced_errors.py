"""A client's forced errors on chain: commit, reveal, finish (docs/protocol.md 7.4).

Contract: as `chain.contracts.market`: each call sends at most one transaction for its intent. A forced
error's salt is the caller's to keep: without it a forced error cannot be revealed.
"""

from __future__ import annotations

from eth_utils.crypto import keccak

from assay.chain.contracts.market import ChainMarket
from assay.protocol.encoding import encode
from assay.protocol.types import Address, Claim, JobId, TxResult, Wei


def forced_error_commitment(
    client: Address, solver: Address, job_id: JobId, round_: int, shard: int, salt: bytes
) -> bytes:
    """What the client commits to: `MarketState.forced_error_commitment` of the pure rules."""
    return keccak(encode(client, solver, job_id, round_, shard, salt))


class Forcer:
    """A client that forces errors in its own jobs."""

    def __init__(self, market: ChainMarket) -> None:
        self._market = market

    def forced_error(self, intent: str, commitment: bytes, deposit: Wei) -> TxResult:
        """Commit to a fault, with a deposit from the free balance."""
        return self._market.do(intent, "ForcedErrors", "commitError", commitment, deposit)

    def reveal(self, intent: str, claim: Claim, salt: bytes) -> TxResult:
        """Say which claim is the forced error, before its conviction."""
        return self._market.do(intent, "ForcedErrors", "reveal", claim, salt)

    def finish(self, intent: str, commitment: bytes) -> TxResult:
        """Get the deposit back after the conviction (or burn it, after the expiry)."""
        return self._market.do(intent, "ForcedErrors", "finish", self._market.me, commitment)
