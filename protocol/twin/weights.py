"""What each verifier counts for in draws, and the draw itself (docs/protocol.md 4.5).

Contract: a change of stake made in epoch e of the chain's blocks counts in draws from epoch e + 2 on, so
what is moved once a seed block is known changes no draw whose seed is recorded within an epoch's length
after it. Amounts are the smallest unit's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from assay.protocol.encoding import encode
from assay.protocol.twin.ledger import NOTHING
from assay.protocol.types import Address, Wei

DELAY_EPOCHS = 2


@dataclass(frozen=True)
class Weights:
    """Verifiers' stakes by the epochs in which they changed, as far back as a draw still sees."""

    changes: Mapping[Address, tuple[tuple[int, Wei], ...]] = field(default_factory=dict)
    """Of each account: epoch and stake since, oldest first."""

    def noted(self, account: Address, stake: Wei, epoch: int) -> Weights:
        """With the account's stake as it is after an event of this epoch."""
        before = [change for change in self.changes.get(account, ()) if change[0] < epoch]
        seen = [i for i, (since, _) in enumerate(before) if since <= epoch - DELAY_EPOCHS]
        kept = before[seen[-1] :] if seen else before
        return Weights({**self.changes, account: (*kept, (epoch, stake))})

    def at(self, account: Address, epoch: int) -> Wei:
        """What the account counts for in a draw in this epoch: its stake at the end of the epoch before the
        last."""
        counted = NOTHING
        for since, stake in self.changes.get(account, ()):
            if since <= epoch - DELAY_EPOCHS:
                counted = stake
        return counted


def draw(
    weights: Sequence[tuple[Address, Wei]], seed: bytes, count: int, keccak: Callable[[bytes], bytes]
) -> list[Address]:
    """`count` distinct accounts (fewer if fewer have a weight), each drawn with probability proportional
    to its weight among those not drawn yet. The order of `weights` matters."""
    left = dict(weights)
    drawn: list[Address] = []
    while len(drawn) < count and (rest := sum(left.values())) > 0:
        target = int.from_bytes(keccak(encode(seed, len(drawn))), "big") % rest
        for account, weight in left.items():
            if target < weight:
                drawn.append(account)
                break
            target -= weight
        del left[drawn[-1]]
    return drawn
