"""The pauser, and what is paused (docs/protocol.md 7.2; the Guardian contract's pure twin).

Contract: only new jobs, new stakes and the taking of shards ask it; nothing under way does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from assay.protocol.types import ZERO_ADDRESS, Address, Business
from spec.refusal import require


@dataclass(frozen=True)
class Guardian:
    """The pauser, and what is paused."""

    pauser: Address = ZERO_ADDRESS
    paused: frozenset[Business] = frozenset()

    def require_open(self, business: Business) -> None:
        """Requires that this business is not paused. Refused: BusinessPaused."""
        require(business not in self.paused, "BusinessPaused", business.name)

    def with_pause(self, by: Address, business: Business, paused: bool) -> Guardian:
        """The guardian with one kind of business paused or resumed. Refused: NotPauser."""
        require(by == self.pauser, "NotPauser")
        return replace(self, paused=self.paused | {business} if paused else self.paused - {business})

    def handed_over(self, by: Address, to: Address) -> Guardian:
        """The guardian with another pauser, or with none if nothing is paused. Refused: NotPauser,
        StillPaused."""
        require(by == self.pauser, "NotPauser")
        require(to != ZERO_ADDRESS or not self.paused, "StillPaused")
        return replace(self, pauser=to)
