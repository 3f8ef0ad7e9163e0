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
    """State of the market's clock.

    Deadlines before `before` have passed. Those before `ticked` pass once `lag` blocks and `lag` seconds have
    gone by since block `ticked_in`.
    """

    lag: int
    before: Seconds = NEVER
    ticked: Seconds = NEVER
    ticked_in: int = 0

    def counts(self, now: Seconds, block: int) -> bool:
        """True if the last tick counts, so that another one is allowed."""
        return block >= self.ticked_in + self.lag and now >= self.ticked + self.lag

    def time(self, now: Seconds, block: int) -> Seconds:
        """Deadlines before this time have passed."""
        return self.ticked if self.counts(now, block) else self.before

    def tick(self, now: Seconds, block: int) -> Ticks:
        """The clock after a tick with this block's time. Raises Refused(TickedLately)."""
        require(self.counts(now, block), "TickedLately")
        return Ticks(self.lag, self.ticked, now, block)

    def view(self, now: Seconds, block: int) -> ClockView:
        """The clock as ``IClock`` returns it."""
        return ClockView(self.time(now, block), self.ticked, self.ticked_in + self.lag, block)
