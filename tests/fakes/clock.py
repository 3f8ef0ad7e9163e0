"""The Clock port over a `MarketState`; waiting moves the market's state on instead of sleeping."""

from __future__ import annotations

from assay.protocol.types import ClockView, Seconds
from tests.fakes.market import MarketState


def counted(now: int, block: int = 50) -> ClockView:
    """The market's clock where every deadline that is over has passed."""
    return ClockView(Seconds(now), Seconds(now), 0, block)


class FakeClock:
    """Time of the fake chain."""

    def __init__(self, market_state: MarketState) -> None:
        self.market_state = market_state
        self.stopped = False
        self.waits: list[float] = []

    def now(self) -> Seconds:
        return self.market_state.time

    def block(self) -> int:
        return self.market_state.block

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        if seconds:
            self.market_state.advance(max(1, int(seconds)))
        return not self.stopped
