"""Who gets what: convictions, lost challenges, compensation, settlement (docs/protocol.md, sections 4.8 and
5).

Contract: every function splits an amount exactly; what goes in comes out, to the last unit. Amounts never
become negative. Mirrored by ``contracts/src/market``; the twin test compares them after every event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from assay.protocol.types import Wei

NOTHING = Wei(0)


def burnt_half(amount: Wei) -> Wei:
    """The half of a slash that is burnt, rounded up, so that nobody gains by disputing himself."""
    return Wei(amount - amount // 2)


@dataclass(frozen=True)
class Conviction:
    """How the slashed stake of a convicted claim is divided."""

    slashed: Wei
    burnt: Wei
    compensation: Wei
    reward: Wei
    indemnity: Wei = NOTHING
    """What a forcer gets of the stakes of those that passed its forced error."""


def conviction(taken: Sequence[Wei], wasted_prices: Wei) -> Conviction:
    """Divide what was taken from the claimant and the verifiers that passed the claim (rule 5.1).

    `taken`: each account's slash, already cut to what was there. `wasted_prices`: sum of the prices of the
    task claims that the rewind makes stale, the convict's own included (whose share is burnt in the end).
    """
    slashed = Wei(sum(taken))
    burnt = burnt_half(slashed)
    pool = slashed - burnt
    compensation = Wei(min(pool // 2, wasted_prices))
    return Conviction(slashed, burnt, compensation, Wei(pool - compensation))


def forced_conviction(own: Wei, votes: Sequence[Wei], wasted_prices: Wei) -> Conviction:
    """The same for an error that the client has forced and revealed (rule 7.4).

    `own`: what was taken from the claimant, half its stake at most; all of it is pool. Of what the guilty
    `votes` paid, half is burnt and the rest is the forcer's.
    """
    passed = Wei(sum(votes))
    burnt = burnt_half(passed)
    compensation = Wei(min(own // 2, wasted_prices))
    reward, indemnity = Wei(own - compensation), Wei(passed - burnt)
    return Conviction(Wei(own + passed), burnt, compensation, reward, indemnity)


@dataclass(frozen=True)
class Shared:
    """A reward divided between the winner and each of the others that had announced as early (rule 5.4)."""

    winner: Wei
    share: Wei


def shared(reward: Wei, others: int) -> Shared:
    """In equal parts; what division leaves is the winner's."""
    share = Wei(reward // (others + 1)) if others else Wei(0)
    return Shared(Wei(reward - share * others), share)


@dataclass(frozen=True)
class Split:
    """An amount divided between the fire and one account."""

    burnt: Wei
    paid: Wei


def lost_bond(bond: Wei) -> Split:
    """A lost challenge's bond: burnt half, the rest to the defender (rule 5.3)."""
    return Split(burnt_half(bond), Wei(bond - burnt_half(bond)))


def convicted_vote(taken: Wei) -> Split:
    """A convicted vote's stake: burnt half, the rest to the challenger (rule 5.3)."""
    return Split(burnt_half(taken), Wei(taken - burnt_half(taken)))


@dataclass(frozen=True)
class CompensationPot:
    """What a rewind still holds for those whose work it wasted, and the sum of their prices (rule 5.2)."""

    left: Wei
    prices_left: Wei

    def take(self, price: Wei) -> tuple[Wei, CompensationPot]:
        """One wasted claim's share, and the pot after it. Raises ValueError for a price beyond what is
        owed."""
        if not 0 <= price <= self.prices_left:
            raise ValueError(f"a share for {price} of {self.prices_left} still owed")
        share = Wei(self.left * price // self.prices_left) if self.prices_left else Wei(0)
        return share, CompensationPot(Wei(self.left - share), Wei(self.prices_left - price))


def position(kind: int, round_: int) -> int:
    """A claim's place in its job's pipeline (rule 5.2)."""
    return 2 * round_ + kind


def is_stale(claim_position: int, rewinds_then: int, rewinds: Sequence[int]) -> bool:
    """Whether a rewind after the claim's commit went back to before its place. `rewinds_then`: rewinds
    before the commit; `rewinds[i]`: position of rewind i."""
    return any(claim_position > rewind for rewind in rewinds[rewinds_then:])
