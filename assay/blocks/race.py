"""Asking several peers for one thing, the best first: the first right answer wins.

Contract: one peer is asked at first; the next as soon as one has failed or takes longer than usual; never
more than `fanout` at once. A peer that was slow when another one won is blamed for it; whoever was asked only
a moment before is not.

Source: hedged requests, Dean and Barroso, The Tail at Scale, 2013.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any, TypeVar

import httpx

from assay.blocks.blockstore import MAX_BLOCK_BYTES
from assay.blocks.cid import Cid
from assay.blocks.peers import Peer
from assay.protocol.errors import AssayError, BlockTooLarge, PutOff

T = TypeVar("T")

_USUAL = 3.0
"""A peer that takes this many times its usual pace gets company."""


@dataclass(slots=True)
class Spent:
    """Bytes that came and were of no use."""

    wasted_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Pace:
    """A least rate of bytes, from `grace_s` after the first on; and a last moment on the loop's clock."""

    last_s: float
    grace_s: float
    bytes_per_s: float

    def until(self, first_s: float, received_bytes: int) -> float:
        """When a transfer that brought so much since `first_s` ends unless more comes."""
        return min(self.last_s, first_s + self.grace_s + received_bytes / self.bytes_per_s)


class FileTime:
    """What all fetches for one file may take: a grace period, and what their bytes take at a least rate.

    Counts only while somebody waits. Used on one event loop, by one fetch at a time.
    """

    def __init__(self, grace_s: float, bytes_per_s: float) -> None:
        self.resumed = False
        """Whether it goes on with a file that was put off."""
        self.over_until_s = 0.0
        """Once it is over: until when, by the clock of `FileTimes`, no new one begins within a hold."""
        self._left_s, self._bytes_per_s = grace_s, bytes_per_s
        self._deadline: asyncio.Timeout | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing more of the file is waited for."""
        return self._left_s <= 0

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """Wait for blocks of the file. Raises TimeoutError once its time is over, before anybody is asked if
        it was already."""
        if self.is_over:
            raise TimeoutError
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(self._left_s) as self._deadline:
                yield
        finally:
            self._deadline = None
            self._left_s -= loop.time() - began

    def came(self, size_bytes: int) -> None:
        """So much of the file has come, which gives it more time."""
        more_s = size_bytes / self._bytes_per_s
        self._left_s += more_s
        if self._deadline is not None and not self._deadline.expired():
            self._deadline.reschedule((self._deadline.when() or 0.0) + more_s)


class FileTimes:
    """The time of each file. One that was put off goes on with what is left of its own: a file that comes too
    slowly is found to, however short the pieces are in which it is fetched. Within a hold nothing of it is
    waited for until `again_s` later, so that others come to their turn; what of it is here is read.
    Thread-safe."""

    KEPT = 4096

    def __init__(
        self, grace_s: float, bytes_per_s: float, again_s: float, clock: Callable[[], float] = monotonic
    ) -> None:
        self._grace_s, self._bytes_per_s = grace_s, bytes_per_s
        self._again_s, self._clock = again_s, clock
        self._kept: dict[Cid, FileTime] = {}

    @contextmanager
    def of(self, root: Cid, held: bool = False) -> Iterator[FileTime]:
        """What the blocks of the file may take together, fetched within; `held`: within a hold."""
        time = self._kept.pop(root, None)
        if time is None or (time.is_over and (not held or self._clock() >= time.over_until_s)):
            time = FileTime(self._grace_s, self._bytes_per_s)
        put_off = False
        try:
            yield time
        except PutOff:
            put_off = True
            raise
        finally:
            if put_off or time.is_over:
                self._keep(root, time)

    def _keep(self, root: Cid, time: FileTime) -> None:
        time.resumed = True
        if time.is_over and not time.over_until_s:
            time.over_until_s = self._clock() + self._again_s
        self._kept[root] = time
        for oldest in list(self._kept)[: -self.KEPT]:
            self._kept.pop(oldest, None)


class Hold:
    """How long fetches may hold up whoever waits for them, all of them together; waits at the same time count
    once. Used on one event loop."""

    def __init__(self, seconds: float) -> None:
        self._left_s, self._since_s, self._waiting = seconds, 0.0, 0

    async def bound(self, work: Coroutine[Any, Any, T]) -> T:
        """What the work gives. Raises PutOff once the time is over."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            self._since_s = loop.time()
        self._waiting += 1
        deadline = asyncio.timeout_at(self._since_s + self._left_s)
        try:
            async with deadline:
                return await work
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise PutOff(
                "no more time is left for what others serve before the node looks after its own again;"
                " what came is kept",
                hint="it is tried again by itself; if that goes on, see how fast this node's connection is",
            ) from error
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._left_s -= loop.time() - self._since_s


@dataclass(frozen=True, slots=True)
class RaceConfig:
    """Peers asked at once at most; bounds of the wait for one before the next is asked too; how long a peer
    may take without blame. In seconds."""

    fanout: int
    patience_s: tuple[float, float]
    grace_s: float


class Race:
    """One round of asking. Runs on the event loop of its caller."""

    def __init__(
        self,
        config: RaceConfig,
        ask: Callable[[Peer], Coroutine[Any, Any, bytes]],
        closed: Callable[[Peer], bool],
        blame: Callable[[Peer], None],
    ) -> None:
        self.outcomes: dict[str, AssayError] = {}
        """By URL, why each peer that was asked has not delivered."""
        self._config, self._ask, self._closed, self._blame = config, ask, closed, blame
        self._loop = asyncio.get_running_loop()
        self._running: dict[asyncio.Task[bytes], tuple[Peer, float]] = {}

    async def run(self, peers: Iterable[Peer]) -> bytes | None:
        """What the first of these peers has that has it; None once all have failed. Passes over those that
        are `closed` when their turn comes."""
        left, width = iter(peers), 1
        try:
            while True:
                while len(self._running) < width and (peer := next(left, None)) is not None:
                    if not self._closed(peer):
                        task = asyncio.ensure_future(self._ask(peer))
                        self._running[task] = peer, self._loop.time()
                if not self._running:
                    return None
                done, _ = await asyncio.wait(
                    self._running, timeout=self._patience(), return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    peer = self._running.pop(task)[0]
                    try:
                        return task.result()
                    except AssayError as error:
                        self.outcomes[peer.url] = error
                known = any(peer.delivers for peer, _ in self._running.values())
                more = len(self._running) + 1 if known and not done else 2 * width
                width = min(self._config.fanout, more)
        finally:
            await self._abandon()

    def _patience(self) -> float:
        least, most = self._config.patience_s
        return min(most, max(least, _USUAL * min(peer.pace_s for peer, _ in self._running.values())))

    async def _abandon(self) -> None:
        """End the requests that are not needed any more."""
        for task, (peer, since) in self._running.items():
            if task.cancel() and self._loop.time() - since > self._config.grace_s:
                self._blame(peer)
        await asyncio.gather(*self._running, return_exceptions=True)


async def read_capped(
    peer_url: str,
    cid: Cid,
    response: httpx.Response,
    received: Spent,
    deadline: asyncio.Timeout,
    pace: Pace,
) -> bytes:
    """A block's bytes, counted in `received` until they are known to be right. Raises BlockTooLarge."""
    parts: list[bytes] = []
    first_s = 0.0
    async for part in response.aiter_raw():
        first_s = first_s or asyncio.get_running_loop().time()
        received.wasted_bytes += len(part)
        if received.wasted_bytes > MAX_BLOCK_BYTES:
            raise BlockTooLarge(
                f"peer {peer_url} sent more than {MAX_BLOCK_BYTES} bytes for block {cid}",
                hint="no valid block is that large; ask another peer",
            )
        parts.append(part)
        deadline.reschedule(pace.until(first_s, received.wasted_bytes))
    return b"".join(parts)
