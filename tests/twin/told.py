"""A story (``tests.fakes.story``) played on the pure market and on the deployed one.

Contract: the contracts do the same as the pure market in each event of a scene. A scene that continues twice
from one moment (`replace`) cannot be played so.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from assay.protocol.types import ZERO_DIGEST, Address, ClaimId
from spec import events as e
from spec.refusal import Refused
from tests.fakes.story import WHISTLER, Story, begun
from tests.twin.deployed import ITS_OWN
from tests.twin.scene import Scene
from tests.twin.twin import Twin


@dataclass
class Told(Story):
    """A story on both sides."""

    twin: Twin | None = None

    def tell(self, event: e.Event, by: Address, after_s: int = 1) -> None:
        assert self.twin is not None
        ahead = self.time + after_s - self.twin.time
        if ahead > 1:
            self.twin.wait(ahead - 1, 2)
        before = self.twin.refused.copy()
        accepted = self.twin.act(event, by)
        self.time, self.block, self.market_state = self.twin.time, self.twin.block, self.twin.market_state
        if not accepted:
            (refused,) = (self.twin.refused - before).elements()
            raise Refused(refused.split()[-1])

    def halt(self, seconds: int) -> None:
        """The next block, after so many seconds without one."""
        self.rest(1, seconds)

    def rest(self, blocks: int, seconds: int = 0) -> None:
        """As ``Story.rest``."""
        assert self.twin is not None
        self.twin.wait(seconds or blocks, blocks)
        self.time, self.block = self.twin.time, self.twin.block

    def seed(self, claim_id: ClaimId) -> None:
        assert self.twin is not None
        self.twin.wait(1, 3)
        self.time += 1
        self.tell(e.RecordSeed(self.claim(claim_id), ZERO_DIGEST, ITS_OWN), WHISTLER)


def begin_on(twin: Twin, **changes: Any) -> Told:
    """As ``tests.fakes.story.begin``."""
    told = Told(twin.market_state, Scene(random.Random(1)), time=twin.time, block=twin.block, twin=twin)
    return begun(told, **changes)
