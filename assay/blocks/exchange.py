"""Fetches blocks by CID from peers' trustless gateways.

Contract:
- Every block is hashed before it is stored or returned. `Peers` decides whom to ask, in which order, and whom
  to skip.
- A block is requested from the best peer first; from the next when that one lacks it, or takes longer than
  usual; from up to `fanout` at once. The first right answer wins and cancels the other requests.
- Peers without stake have budgets in each fetch: `stranger_s` seconds, and `stranger_bytes` of wrong bytes.
  Peers with stake are asked even after that.
- Every request has one deadline for everything (connecting, headers, body), a minimum rate after `grace_s`,
  for a CAR also a timeout without a new block, and a size limit. It uses no redirects, cookies,
  decompression, or proxies from the environment.
- The blocks of one file share a `file_time`: a file that stays below the minimum rate for longer than one
  grace period is not available (`BlockNotFound`). Blocks received so far stay stored.
- A CAR is processed block by block: only wanted blocks are kept, and unrequested bytes end the transfer and
  count against the peer.
- Any exception from asking a peer counts as that peer's failure only.
- `BlockNotFound` names the peers asked and what each answered.

Not guaranteed: that a peer list is safe to contact: the caller decides who is on it, and the transport which
addresses are reached (``blocks.public_net``).

Source: https://specs.ipfs.tech/http-gateways/trustless-gateway/
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from types import TracebackType
from typing import Any, TypeVar

import httpx

from assay.blocks.blockstore import BlockStore
from assay.blocks.car import BadCar
from assay.blocks.car_receiver import Arrival
from assay.blocks.hedged_requests import (
    FileDeadline,
    FileDeadlines,
    Hold,
    Pace,
    Race,
    RaceConfig,
    Spent,
    read_capped,
)
from assay.blocks.peers import Peer, PeerInfo, Peers
from assay.protocol.cid import Cid
from assay.protocol.errors import (
    AssayError,
    BlockNotFound,
    BlockTooLarge,
    CorruptBlock,
    PeerUnreachable,
)

T = TypeVar("T")
PublisherOf = Callable[[bytes], str | None]
"""Maps a block's digest to the URL of its publisher, if the chain knows it."""

EMPTY_BLOCK = "bafkqaaa"
"""Block with which the Trustless Gateway specification probes a gateway."""
_AT_ONCE = 128
_TAKERS = 4
"""Threads that hash and store a CAR's blocks, so that other transfers go on meanwhile."""
_RESOLVERS = 64
"""Threads for name resolution: a server that never answers blocks one for half a minute."""
_NAMED_PEERS = 8
"""Maximum number of peers named in an error."""

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ExchangeConfig:
    """Timeouts, parallelism and tolerances of fetches. Times in seconds.

    `rounds`: how often a fetch retries the peers while some fail without saying "not here".
    `fetch_deadline_s`: time after which a fetch asks no further peer. `patience_s`: bounds of the wait, three
    times a peer's usual pace, before another peer is asked too. `file_grace_s`: time for which a whole file
    may be slower than `min_bytes_per_s`, over all its waits; longer than `stranger_s`, so that peers with
    stake are asked for the first blocks. `file_again_s`: time for which a slow file is not requested again
    while all fetches share one time limit. `car_peers`: number of peers asked for a CAR before blocks are
    fetched one by one.
    """

    connect_timeout_s: float = 3.0
    block_deadline_s: float = 20.0
    fetch_deadline_s: float = 120.0
    grace_s: float = 2.0
    min_bytes_per_s: float = 16_384.0
    file_grace_s: float = 30.0
    file_again_s: float = 60.0
    patience_s: tuple[float, float] = (0.05, 2.0)
    fanout: int = 32
    stranger_s: float = 20.0
    stranger_bytes: int = 128 << 20
    car_stall_s: float = 2.0
    car_min_bytes_per_s: float = 100_000.0
    car_peers: int = 3
    rounds: int = 2
    backoff_s: float = 0.2
    max_backoff_s: float = 3600.0
    ban_s: float = 900.0
    max_ban_s: float = 86_400.0
    parallel: int = 4


class _Ours(Exception):
    """Received data could not be stored: no peer is to blame."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Exchange:
    """A client of many gateways. Thread-safe; runs its requests on a private event loop until `close`.

    `clock` returns monotonic seconds; `transport` replaces the network in tests.
    """

    def __init__(
        self,
        store: BlockStore,
        peers: Iterable[str | PeerInfo] = (),
        config: ExchangeConfig | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.config = conf = config or ExchangeConfig()
        self._store = store
        self._peers = Peers(
            clock,
            ban_s=conf.ban_s,
            max_ban_s=conf.max_ban_s,
            rest_s=conf.backoff_s,
            max_rest_s=conf.max_backoff_s,
        )
        self._publisher: PublisherOf = lambda digest: None
        self._latest: str | None = None
        """Peer that delivered last; it is asked first for the rest of a file."""
        self.times = FileDeadlines(conf.file_grace_s, conf.min_bytes_per_s, conf.file_again_s, clock)
        self._held = threading.local()
        self._client = httpx.AsyncClient(
            timeout=httpx.Timeout(conf.block_deadline_s, connect=conf.connect_timeout_s),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=_AT_ONCE),
            follow_redirects=False,
            trust_env=False,
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            transport=transport,
            headers={"Accept-Encoding": "identity", "User-Agent": "assay"},
        )
        self._race = RaceConfig(conf.fanout, conf.patience_s, conf.grace_s)
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._loop = asyncio.new_event_loop()
        self._takers = ThreadPoolExecutor(_TAKERS, thread_name_prefix="blocks")
        self._loop.set_default_executor(ThreadPoolExecutor(_RESOLVERS, thread_name_prefix="names"))
        self._thread = threading.Thread(target=self._loop.run_forever, name="exchange", daemon=True)
        self._thread.start()
        self.set_peers(peers)

    def __enter__(self) -> Exchange:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes connections and stops the event loop. Idempotent."""
        if self._loop.is_closed():
            return
        self._run(self._client.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._takers.shutdown()
        self._loop.close()

    @property
    def hold(self) -> Hold | None:
        """The shared time limit of this thread's fetches, if any."""
        return getattr(self._held, "hold", None)

    @hold.setter
    def hold(self, hold: Hold | None) -> None:
        self._held.hold = hold

    def set_peers(self, peers: Iterable[str | PeerInfo], publisher: PublisherOf | None = None) -> list[str]:
        """Replaces the peer list; returns entries left out because they are no plain http(s) base URL.

        `publisher`: returns the peer that published a digest on chain, which is asked first; called in the
        fetching thread.
        """
        given = list(peers)
        if publisher is not None:
            self._publisher = publisher

        async def replace() -> list[str]:
            return self._peers.replace(given)

        return self._run(replace())

    def banned(self) -> list[str]:
        """Peers of the list that sent a corrupt block and are not asked now."""
        return self._peers.banned()

    def answers(self, url: str, within_s: float) -> bool:
        """True if a peer has delivered recently, or gives any HTTP answer to a request for the empty
        block."""

        async def ask() -> bool:
            try:
                peer = self._peers.peer(url)
                if peer.delivers:
                    return True
                async with asyncio.timeout(within_s):
                    await self._client.head(f"{peer.url}/ipfs/{EMPTY_BLOCK}", params={"format": "raw"})
            except Exception:  # noqa: BLE001 - whatever asking one peer brings about is its failure
                return False
            return True

        return self._run(ask())

    def fetch_block(self, cid: Cid, within: FileDeadline | None = None) -> bytes:
        """Fetches, verifies and stores one block within the file's time. Raises `BlockNotFound`."""
        work = self._fetch_one(cid, self._publisher(cid.digest), within)
        return self._run(work, self.hold)

    def fetch_many(self, cids: Iterable[Cid], within: FileDeadline | None = None) -> None:
        """Fetches and stores blocks, a few at a time, within the file's time (None: no limit).

        Raises `BlockNotFound` for the first one that nobody has.
        """
        self._run(self._fetch_many(list(dict.fromkeys(cids)), within), self.hold)

    def fetch_car(
        self,
        root: Cid,
        wanted: Iterable[Cid],
        allowed: Iterable[Cid],
        max_bytes: int,
        take: Callable[[Cid, bytes], None] = lambda cid, data: None,
    ) -> set[Cid]:
        """Streams a DAG from peers and stores the wanted blocks; returns those not delivered.

        `allowed`: other blocks that the stream may contain (inner nodes, blocks already stored); `max_bytes`:
        limit of the blocks' total size. `take` is called with each wanted block once it is verified and
        stored, one after the other, in a transfer thread. Never raises for a peer's fault: missing blocks can
        still be fetched singly.
        """
        missing = set(wanted)
        self._run(self._fetch_car(root, missing, missing | set(allowed), max_bytes, take), self.hold)
        return missing

    def _run(self, work: Coroutine[Any, Any, T], hold: Hold | None = None) -> T:
        bound = work if hold is None else hold.bound(work)
        return asyncio.run_coroutine_threadsafe(bound, self._loop).result()

    async def _fetch_one(self, cid: Cid, publisher: str | None, within: FileDeadline | None) -> bytes:
        if within is None:
            return await self._fetch(cid, publisher)
        try:
            async with within.waiting():
                data = await self._fetch(cid, publisher)
        except TimeoutError as error:
            raise _too_slow(cid) from error
        within.came(len(data))
        return data

    async def _fetch_many(self, cids: list[Cid], within: FileDeadline | None) -> None:
        if not cids:
            return
        queue = iter(cids)

        async def work() -> None:
            for cid in queue:
                data = await self._fetch(cid, self._latest)
                if within is not None:
                    within.came(len(data))

        workers = [asyncio.ensure_future(work()) for _ in range(min(self.config.parallel, len(cids)))]
        try:
            async with within.waiting() if within is not None else nullcontext():
                await asyncio.gather(*workers)
        except TimeoutError as error:
            raise _too_slow(cids[-1]) from error
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _fetch(self, cid: Cid, publisher: str | None = None) -> bytes:
        outcomes: dict[str, AssayError] = {}
        spent, began = Spent(), self._loop.time()

        def closed(peer: Peer) -> bool:
            """True if nothing more is to be expected from a peer in this fetch."""
            taken = self._loop.time() - began
            if taken > self.config.fetch_deadline_s:
                return True
            used_up = taken > self.config.stranger_s or spent.wasted_bytes > self.config.stranger_bytes
            return used_up and not peer.vouched

        asked = self._peers.order(publisher)
        for turn in range(self.config.rounds):
            if turn > 0 and asked:
                await asyncio.sleep(self.config.backoff_s * 2.0 ** (turn - 1))
            race = Race(self._race, lambda peer: self._download(peer, cid, spent), closed, self._peers.failed)
            data = await race.run(asked)
            outcomes |= race.outcomes
            if data is not None:
                self._store.put_verified(data, cid, durable=False)
                return data
            failed = [p for p in asked if isinstance(race.outcomes.get(p.url), PeerUnreachable)]
            asked = sorted(failed, key=lambda peer: not peer.vouched)[: self.config.fanout]
        cause = list(outcomes.values())[-1] if outcomes else None
        told = {url: error.code for url, error in outcomes.items()}
        raise _not_found(cid, told, self.banned()) from cause

    async def _download(self, peer: Peer, cid: Cid, spent: Spent) -> bytes:
        async with self._room:
            began = self._loop.time()
            last = began + self.config.block_deadline_s
            pace = Pace(last, self.config.grace_s, self.config.min_bytes_per_s)
            first_s = self._first_byte_s(peer)
            received = Spent()
            try:
                async with (
                    asyncio.timeout_at(min(last, began + first_s)) as deadline,
                    self._open(peer, cid, "raw") as response,
                ):
                    data = await read_capped(peer.url, cid, response, received, deadline, pace)
            except BlockNotFound:
                raise
            except BlockTooLarge:
                spent.wasted_bytes += received.wasted_bytes
                self._peers.lied(peer)
                raise
            except Exception as error:  # whatever asking a peer brings about is its failure
                spent.wasted_bytes += received.wasted_bytes
                raise self._unreachable(peer, cid, error) from error
        if not cid.matches(data):
            spent.wasted_bytes += len(data)
            self._peers.lied(peer)
            raise CorruptBlock(
                f"peer {peer.url} sent {len(data)} bytes that are not block {cid}; they were discarded, and"
                " the peer is banned for a while",
                hint="fetch the block from another peer; remove this one from the list if it happens again",
            )
        self._latest = peer.url
        self._peers.delivered(peer, self._loop.time() - began)
        return data

    def _first_byte_s(self, peer: Peer) -> float:
        """Timeout for the first byte of a peer's answer."""
        if peer.delivers:
            return self.config.block_deadline_s
        return self.config.grace_s * (3 if peer.vouched else 1)

    async def _fetch_car(
        self,
        root: Cid,
        missing: set[Cid],
        allowed: set[Cid],
        max_bytes: int,
        take: Callable[[Cid, bytes], None],
    ) -> None:
        latest = self._loop.time() + self.config.fetch_deadline_s
        for peer in self._peers.order(self._latest)[: self.config.car_peers]:
            if not missing or self._loop.time() > latest:
                return
            try:
                await self._take_car(peer, root, missing, allowed, max_bytes, take)
            except BadCar:
                self._peers.lied(peer)
            except BlockNotFound:
                continue
            except _Ours as ours:
                raise ours.error from ours
            except Exception as error:  # noqa: BLE001 - as of a single block
                self._unreachable(peer, root, error)

    async def _take_car(
        self,
        peer: Peer,
        root: Cid,
        missing: set[Cid],
        allowed: set[Cid],
        max_bytes: int,
        take: Callable[[Cid, bytes], None],
    ) -> None:
        arrival = Arrival(peer.url, self._store, missing, allowed, max_bytes, take, self._loop.time)
        began, stall_s = self._loop.time(), self.config.car_stall_s
        try:
            async with asyncio.timeout(stall_s) as deadline, self._open(peer, root, "car") as response:
                async for chunk in response.aiter_raw():
                    if not arrival.came(chunk):
                        continue
                    waits_until, paused_at = deadline.when() or began, self._loop.time()
                    deadline.reschedule(None)  # while we hash and write, the peer's clock stands still
                    some = await self._absorbed(arrival)
                    paused = self._loop.time() - paused_at
                    began += paused
                    if some:
                        earned = began + stall_s + arrival.received_bytes / self.config.car_min_bytes_per_s
                        waits_until = min(earned, self._loop.time() + stall_s)
                    else:
                        waits_until += paused
                    deadline.reschedule(waits_until)
                deadline.reschedule(None)
                await self._absorbed(arrival)
        except (BadCar, BlockNotFound, _Ours):
            raise
        except Exception:
            await self._absorbed(arrival)  # what came stays stored
            raise
        except asyncio.CancelledError:  # the same, which nobody waits for
            with suppress(RuntimeError):
                self._takers.submit(arrival.absorb)
            raise
        arrival.finish()

    async def _absorbed(self, arrival: Arrival) -> bool:
        """Stores complete blocks; True if there were any. Raises BadCar, and _Ours if storing failed."""
        try:
            return await self._loop.run_in_executor(self._takers, arrival.absorb)
        except BadCar:
            raise
        except (OSError, MemoryError, AssayError) as error:
            raise _Ours(error) from error

    @asynccontextmanager
    async def _open(self, peer: Peer, cid: Cid, wanted: str) -> AsyncIterator[httpx.Response]:
        url = f"{peer.url}/ipfs/{cid}"
        headers = {"Accept": f"application/vnd.ipld.{wanted}"}
        async with self._client.stream("GET", url, params={"format": wanted}, headers=headers) as response:
            if response.status_code in (400, 404, 406, 410, 413):
                if wanted == "raw":
                    self._peers.absent(peer)
                raise BlockNotFound(
                    f"peer {peer.url} does not have {cid} as {wanted}", hint="ask another peer"
                )
            if (
                response.status_code != 200
                or response.headers.get("content-encoding", "identity") != "identity"
            ):
                raise PeerUnreachable(
                    f"peer {peer.url} answered {response.status_code} for {cid}", hint="ask another peer"
                )
            yield response

    def _unreachable(self, peer: Peer, cid: Cid, error: Exception) -> PeerUnreachable:
        """Records a peer's failure; an unexpected exception is logged with its traceback."""
        self._peers.failed(peer)
        if isinstance(error, PeerUnreachable):
            return error
        if not isinstance(error, (TimeoutError, httpx.HTTPError)):
            _LOG.warning("asking peer %s failed as no peer should fail", peer.url, exc_info=error)
        return PeerUnreachable(
            f"peer {peer.url} gave no answer for {cid}: {type(error).__name__} {error}".rstrip(),
            hint="check that the peer's gateway runs and can be reached, or add other peers",
        )


def _too_slow(cid: Cid) -> BlockNotFound:
    """The error for a block whose file's time is over."""
    return BlockNotFound(
        f"the file of block {cid} comes slower than files have to; what came of it is kept",
        hint="try again later, or add a peer that has it",
    )


def _not_found(cid: Cid, outcomes: dict[str, str], banned: list[str]) -> BlockNotFound:
    """The error for a block that nobody has. `outcomes`: answers by URL; `banned`: peers not asked."""
    named = [f"{url} ({outcome})" for url, outcome in outcomes.items()]
    tried = ", ".join(named[:_NAMED_PEERS]) or "none"
    if len(named) > _NAMED_PEERS:
        tried += f" and {len(named) - _NAMED_PEERS} more"
    silent = [url for url in banned if url not in outcomes][:_NAMED_PEERS]
    left_out = "".join(f"; not asked, sent corrupt blocks: {url}" for url in silent)
    return BlockNotFound(
        f"block {cid} is not stored here and no peer delivered it; peers tried: {tried}{left_out}",
        hint="try again once a node that has it is reachable; what you posted yourself, `assay job serve`"
        " serves",
    )
