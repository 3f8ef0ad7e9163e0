"""The Clock port over a `World`; waiting moves the world on instead of sleeping."""

from __future__ import annotations

from assay.protocol.types import Seconds
from tests.fakes.market import World


class FakeClock:
    """Time of the fake chain."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.stopped = False
        self.waits: list[float] = []

    def now(self) -> Seconds:
        return self.world.time

    def block(self) -> int:
        return self.world.block

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        self.world.advance(max(1, int(seconds)))
        return not self.stopped
