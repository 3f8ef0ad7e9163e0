"""How the rules divide money: the only names that the simulation takes from ``protocol.twin.settlement``.

Contract: exact to the last unit. `conviction` is rule 5.1 as ``settlement`` will have it; once it has, this
module is one import.
"""

from __future__ import annotations

from dataclasses import dataclass

from assay.protocol.twin.settlement import alike, burnt_half, convicted_vote, lost_bond
from assay.protocol.types import Wei

__all__ = ["Conviction", "alike", "convicted_vote", "conviction", "lost_bond"]


@dataclass(frozen=True)
class Conviction:
    """How a convicted claim's stake is divided."""

    burnt: Wei
    compensation: Wei
    fees: Wei
    reward: Wei


def conviction(stake: Wei, shown: int, verifier_fee: Wei, wasted: Wei) -> Conviction:
    """Divide a claimant's stake: half is burnt; the fees of the shown votes and what the rewind wastes are
    kept; the rest is the finder's. Raises ValueError where more is kept than there is."""
    pool, fees = stake // 2, Wei(shown * verifier_fee)
    if wasted + fees > pool:
        raise ValueError(f"{pool} left for {wasted} wasted and fees of {fees}")
    return Conviction(burnt_half(stake), wasted, fees, Wei(pool - wasted - fees))
