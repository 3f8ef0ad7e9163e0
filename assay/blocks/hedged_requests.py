"""Hedged requests: asks several peers for one block, best first; the first right answer wins.

Contract: one peer is asked at first; the next as soon as one has failed or takes longer than usual; never
more than `fanout` at once. A peer that was slow when another one won is blamed; one that was asked only a
moment before is not.

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
from assay.blocks.peers import Peer
from assay.protocol.cid import Cid
from assay.protocol.errors import AssayError, BlockTooLarge, Deferred

T = TypeVar("T")

_USUAL = 3.0
"""Multiple of a peer's usual pace after which another peer is asked."""


@dataclass(slots=True)
class Spent:
    """Counts useless bytes."""

    wasted_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Pace:
    """Minimum rate, from `grace_s` after the first byte on, and a deadline on the loop's clock."""

    last_s: float
    grace_s: float
    bytes_per_s: float

    def until(self, first_s: float, received_bytes: int) -> float:
        """Deadline of a transfer with this many bytes since `first_s`, unless more arrive."""
        return min(self.last_s, first_s + self.grace_s + received_bytes / self.bytes_per_s)


class FileDeadline:
    """Time limit of all fetches for one file: a grace period plus the time of its bytes at the minimum rate.

    Counts only while somebody waits. For one event loop and one fetch at a time.
    """

    def __init__(self, grace_s: float, bytes_per_s: float) -> None:
        self.resumed = False
        """True if it continues a file that was put off."""
        self.over_until_s = 0.0
        """Once it is over: time until which no new one begins within a hold."""
        self._left_s, self._bytes_per_s = grace_s, bytes_per_s
        self._deadline: asyncio.Timeout | None = None

    @property
    def is_over(self) -> bool:
        """True if the time is used up."""
        return self._left_s <= 0

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """Counts time within the block. Raises TimeoutError once the time is over, also at once."""
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
        """Extends the time for received bytes."""
        more_s = size_bytes / self._bytes_per_s
        self._left_s += more_s
        if self._deadline is not None and not self._deadline.expired():
            self._deadline.reschedule((self._deadline.when() or 0.0) + more_s)


class FileDeadlines:
    """Time limits by file, kept while a fetch is put off, so that a slow file is detected however short the
    pieces of its fetch.

    Once over, the file is not waited for within a hold until `again_s` later, so that others get their turn;
    local blocks are still read. Thread-safe.
    """

    KEPT = 4096

    def __init__(
        self, grace_s: float, bytes_per_s: float, again_s: float, clock: Callable[[], float] = monotonic
    ) -> None:
        self._grace_s, self._bytes_per_s = grace_s, bytes_per_s
        self._again_s, self._clock = again_s, clock
        self._kept: dict[Cid, FileDeadline] = {}

    @contextmanager
    def of(self, root: Cid, held: bool = False) -> Iterator[FileDeadline]:
        """Yields the file's time limit; `held`: within a hold."""
        time = self._kept.pop(root, None)
        if time is None or (time.is_over and (not held or self._clock() >= time.over_until_s)):
            time = FileDeadline(self._grace_s, self._bytes_per_s)
        put_off = False
        try:
            yield time
        except Deferred:
            put_off = True
            raise
        finally:
            if put_off or time.is_over:
                self._keep(root, time)

    def _keep(self, root: Cid, time: FileDeadline) -> None:
        time.resumed = True
        if time.is_over and not time.over_until_s:
            time.over_until_s = self._clock() + self._again_s
        self._kept[root] = time
        for oldest in list(self._kept)[: -self.KEPT]:
            self._kept.pop(oldest, None)


class Hold:
    """Shared time limit of several fetches; concurrent waits count once. For one event loop."""

    def __init__(self, seconds: float) -> None:
        self._left_s, self._since_s, self._waiting = seconds, 0.0, 0

    async def bound(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs the work. Raises Deferred once the time is over."""
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
            raise Deferred(
                "this pass of the node has no time left to fetch from others; the blocks received so far are"
                " kept",
                hint="the node fetches the rest in its next pass; if this repeats, check how fast its"
                " connection is",
            ) from error
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._left_s -= loop.time() - self._since_s


@dataclass(frozen=True, slots=True)
class RaceConfig:
    """Maximum parallel peers; bounds of the wait before the next peer is asked; time a peer may take without
    blame. In seconds."""

    fanout: int
    patience_s: tuple[float, float]
    grace_s: float


class Race:
    """One round of requests. Runs on the caller's event loop."""

    def __init__(
        self,
        config: RaceConfig,
        ask: Callable[[Peer], Coroutine[Any, Any, bytes]],
        closed: Callable[[Peer], bool],
        blame: Callable[[Peer], None],
    ) -> None:
        self.outcomes: dict[str, AssayError] = {}
        """Reason by URL why each peer has not delivered."""
        self._config, self._ask, self._closed, self._blame = config, ask, closed, blame
        self._loop = asyncio.get_running_loop()
        self._running: dict[asyncio.Task[bytes], tuple[Peer, float]] = {}

    async def run(self, peers: Iterable[Peer]) -> bytes | None:
        """The first answer of these peers; None if all failed. Skips peers that are `closed` when their turn
        comes."""
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
        """Cancels requests that are no longer needed."""
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
    """Reads a block's bytes, counted in `received` until they are known to be right. Raises BlockTooLarge."""
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
