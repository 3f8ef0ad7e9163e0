"""Division of amounts: convictions, lost challenges, compensation, settlement (protocol 4.8 and 5).

Contract: every function splits an amount exactly, to the last unit, and no part is negative. Mirrored by
``contracts/src/market``; the twin test compares them after every event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from assay.protocol.types import Wei

NOTHING = Wei(0)


def burnt_half(amount: Wei) -> Wei:
    """Half of a slash, rounded up, which is burnt so that nobody gains by disputing itself."""
    return Wei(amount - amount // 2)


@dataclass(frozen=True)
class Conviction:
    """How the slashed stake of a convicted claim is divided. `fees`: held back for the votes that stand."""

    slashed: Wei
    burnt: Wei
    compensation: Wei
    fees: Wei
    reward: Wei


def convict(
    solver_stake: Wei, fallen_votes: Sequence[Wei], votes: int, verifier_fee: Wei, wasted: Wei
) -> Conviction:
    """Divides what was taken from the claimant, and from votes that fall with the claim (rule 5.1).

    `fallen_votes`: the stake of each. `votes`: how many stand. `wasted`: worth of the claims that the rewind
    makes stale, the convict's own included (whose price is burnt in the end). Raises ValueError if that and
    the fees exceed what is left, which `post` rules out by its bound on the stake (rule 3.1).
    """
    slashed = Wei(solver_stake + sum(fallen_votes))
    burnt, fees = burnt_half(slashed), Wei(votes * verifier_fee)
    reward = slashed - burnt - fees - wasted
    if reward < 0:
        raise ValueError(f"{slashed - burnt} left for {wasted} wasted and {fees} of fees")
    return Conviction(slashed, burnt, wasted, fees, Wei(reward))


def alike(reward: Wei, finders: int) -> tuple[Wei, Wei]:
    """Equal parts of a reward (rule 5.4): the first finder's, with the remainder, and each other's."""
    each = Wei(reward // finders)
    return Wei(reward - each * (finders - 1)), each


@dataclass(frozen=True)
class Split:
    """An amount divided between burning and one account."""

    burnt: Wei
    paid: Wei


def lost_bond(bond: Wei) -> Split:
    """Divides a lost challenge's bond: half is burnt, the defender gets the rest (rule 5.3)."""
    return Split(burnt_half(bond), Wei(bond - burnt_half(bond)))


def convicted_vote(taken: Wei) -> Split:
    """Divides a convicted vote's stake: half is burnt, the challenger gets the rest (rule 5.3)."""
    return Split(burnt_half(taken), Wei(taken - burnt_half(taken)))


def position(kind: int, round_: int) -> int:
    """A claim's place in its job's pipeline (rule 5.2)."""
    return 2 * round_ + kind


def is_stale(claim_position: int, rewinds_then: int, rewinds: Sequence[int]) -> bool:
    """True if a rewind since the claim's commit went back to before its place.

    `rewinds_then`: number of rewinds before the commit; `rewinds[i]`: position of rewind i.
    """
    return any(claim_position > rewind for rewind in rewinds[rewinds_then:])
