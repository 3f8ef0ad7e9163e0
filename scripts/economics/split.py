"""How the rules divide money: the only names that the simulation takes from ``protocol.twin.settlement``.

Contract: exact to the last unit. `convict` is rule 5.1 as ``settlement`` will have it; this module is one
import then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from assay.protocol.twin.settlement import alike, burnt_half, convicted_vote, lost_bond
from assay.protocol.types import Wei

__all__ = ["Conviction", "alike", "convict", "convicted_vote", "lost_bond"]


@dataclass(frozen=True)
class Conviction:
    """How what is taken with a convicted claim is divided."""

    slashed: Wei
    burnt: Wei
    compensation: Wei
    fees: Wei
    reward: Wei


def convict(
    solver_stake: Wei, fallen_votes: Sequence[Wei], votes: int, verifier_fee: Wei, wasted: Wei
) -> Conviction:
    """Divide a claimant's stake, and those of votes that fall with it: half is burnt; the fees of the votes
    that stand and what the rewind wastes are kept; the rest is the finder's. Raises ValueError where more is
    kept than there is."""
    slashed, fees = Wei(solver_stake + sum(fallen_votes)), Wei(votes * verifier_fee)
    burnt = burnt_half(slashed)
    if wasted + fees > slashed - burnt:
        raise ValueError(f"{slashed - burnt} left for {wasted} wasted and fees of {fees}")
    return Conviction(slashed, burnt, wasted, fees, Wei(slashed - burnt - wasted - fees))
