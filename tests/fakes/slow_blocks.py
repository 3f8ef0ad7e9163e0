"""The Blocks port with files that arrive slowly, by the market's clock, while other services run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType

from assay.protocol.errors import BlockNotFound, Deferred
from tests.fakes.blocks import FakeBlocks, Network

STEP_S = 4


class SlowBlocks(FakeBlocks):
    """Blocks in which each `slow` file takes `each_s` seconds.

    `meanwhile` is called every `STEP_S`, so that other services run and the clock advances.
    """

    def __init__(self, network: Network, each_s: int, meanwhile: Callable[[], object]) -> None:
        super().__init__(network)
        self.each_s, self.meanwhile = each_s, meanwhile
        self.slow: Callable[[str], bool] = lambda cid: False
        self.left_s: dict[str, int] = {}
        """Of files that were begun, what is left until they are here."""
        self.waited_s = 0
        self.hold: list[int] | None = None

    def within(self, seconds: float) -> AbstractContextManager[None]:
        return _Within(self, [int(seconds)])

    def read_file(self, cid: str, max_bytes: int) -> bytes:
        if self.slow(cid):
            self._wait(cid)
        return super().read_file(cid, max_bytes)

    def _wait(self, cid: str) -> None:
        self.left_s.setdefault(cid, self.each_s)
        while self.left_s[cid] > 0:
            if self.hold is not None and self.hold[0] <= 0:
                raise Deferred("no more time", hint="it is tried again")
            self.meanwhile()
            self.left_s[cid] -= STEP_S
            self.waited_s += STEP_S
            if self.hold is not None:
                self.hold[0] -= STEP_S


class DrippingBlocks(SlowBlocks):
    """Blocks in which each `slow` file never comes.

    A request for one fails after `each_s`, and so does the next. Files that are requested at the same time
    wait one after the other.
    """

    def __init__(self, network: Network, each_s: int, meanwhile: Callable[[], object]) -> None:
        super().__init__(network, each_s, meanwhile)
        self.asked: list[str] = []
        self._turn = threading.RLock()

    def _wait(self, cid: str) -> None:
        with self._turn:
            self.asked.append(cid)
            super()._wait(cid)
            del self.left_s[cid]
            raise BlockNotFound(f"{cid} comes too slowly", hint="try again later")


class _Within(AbstractContextManager[None]):
    def __init__(self, blocks: SlowBlocks, left_s: list[int]) -> None:
        self.blocks, self.left_s = blocks, left_s

    def __enter__(self) -> None:
        self.blocks.hold = self.left_s

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.blocks.hold = None
