"""When a deadline that costs somebody a stake has passed (docs/protocol.md, section 7.4).

Contract: values are never changed in place. Source: ``contracts/src/market/Clock.sol``.
"""

from __future__ import annotations

from dataclasses import dataclass

from assay.protocol.types import ClockView, Seconds
from spec.refusal import require

NEVER = Seconds(0)


@dataclass(frozen=True)
class Ticks:
    """What was ticked: deadlines before `before` have passed, and those before `ticked` once `lag` blocks
    have come since block `ticked_in`, and as many seconds have gone by."""

    lag: int
    before: Seconds = NEVER
    ticked: Seconds = NEVER
    ticked_in: int = 0

    def counts(self, now: Seconds, block: int) -> bool:
        """Whether the last tick does, so that another may be."""
        return block >= self.ticked_in + self.lag and now >= self.ticked + self.lag

    def time(self, now: Seconds, block: int) -> Seconds:
        """Deadlines before this time have passed."""
        return self.ticked if self.counts(now, block) else self.before

    def tick(self, now: Seconds, block: int) -> Ticks:
        """With this block's time, which counts `lag` blocks later. Raises Refused(TickedLately)."""
        require(self.counts(now, block), "TickedLately")
        return Ticks(self.lag, self.ticked, now, block)

    def view(self, now: Seconds, block: int) -> ClockView:
        """As ``IClock`` shows it."""
        return ClockView(self.time(now, block), self.ticked, self.ticked_in + self.lag, block)
