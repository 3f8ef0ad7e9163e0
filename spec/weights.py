"""Weights of verifiers in draws, and the draw itself (docs/protocol.md 4.5).

Contract: a change of stake in epoch e of the chain's blocks counts in draws from epoch e + 2 on. So stake
moved once a seed block is known changes no draw whose seed is recorded within an epoch after it. Amounts are
in the smallest unit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice

from assay.protocol.encoding import encode
from assay.protocol.types import Address, Wei
from spec.ledger import NOTHING

DELAY_EPOCHS = 2


@dataclass(frozen=True)
class Weights:
    """Verifiers' stakes by the epochs in which they changed, as far back as draws need them."""

    changes: Mapping[Address, tuple[tuple[int, Wei], ...]] = field(default_factory=dict)
    """Epoch and stake since then, oldest first, of each account that ever counted, in order of first
    counting."""

    def noted(self, account: Address, stake: Wei, epoch: int) -> Weights:
        """The weights with the account's stake after an event of this epoch."""
        if stake == 0 and account not in self.changes:
            return self
        before = [change for change in self.changes.get(account, ()) if change[0] < epoch]
        seen = [i for i, (since, _) in enumerate(before) if since <= epoch - DELAY_EPOCHS]
        kept = before[seen[-1] :] if seen else before
        return Weights({**self.changes, account: (*kept, (epoch, stake))})

    def all_at(self, epoch: int) -> list[tuple[Address, Wei]]:
        """Every account's weight in a draw of this epoch, in order of first counting."""
        return [(account, self.at(account, epoch)) for account in self.changes]

    def at(self, account: Address, epoch: int) -> Wei:
        """The account's weight in a draw of this epoch: its stake at the end of the epoch before the last."""
        counted = NOTHING
        for since, stake in self.changes.get(account, ()):
            if since <= epoch - DELAY_EPOCHS:
                counted = stake
        return counted


def draw(
    weights: Sequence[tuple[Address, Wei]], seed: bytes, count: int, keccak: Callable[[bytes], bytes]
) -> list[Address]:
    """Draws `count` distinct accounts, or fewer if fewer have a weight.

    Each is drawn with probability proportional to its weight among those not drawn yet. The order of
    `weights` matters.
    """
    return list(islice(line(weights, seed, keccak), count))


def line(
    weights: Sequence[tuple[Address, Wei]], seed: bytes, keccak: Callable[[bytes], bytes]
) -> Iterator[Address]:
    """All accounts with a weight, in the order in which the seed draws them."""
    left = dict(weights)
    drawn = 0
    while (rest := sum(left.values())) > 0:
        target = int.from_bytes(keccak(encode(seed, drawn)), "big") % rest
        sums = accumulate(left.values())
        account = next(a for a, end in zip(left, sums, strict=True) if target < end)
        yield account
        del left[account]
        drawn += 1
