"""Fetch blocks by CID from peers' trustless gateways.

Contract:
- Every block is hashed before it is stored or returned. Whom to ask, in which order, and whom to leave alone
  says `Peers`.
- A block is asked of the best peer first; of the next when that one has not got it, or as soon as it takes
  longer than usual; of up to `fanout` at once. The first right answer wins and ends the other requests.
- Peers with nothing at stake have budgets of their own in each fetch: `stranger_s` seconds, and
  `stranger_bytes` of wrong bytes. Whoever has something at stake is asked even after that.
- Every request has one deadline for everything (connecting, headers, body), a least rate of bytes after
  `grace_s`, for a CAR also a time without a new block, a cap on the bytes it may bring, no redirects, no
  cookies, no decompression, and no proxy from the environment.
- The blocks of one file have a `file_time` together: however many they are, a file that comes slower than the
  least rate for longer than one grace period is not had (`BlockNotFound`). What came of it stays stored.
- A CAR is taken block by block: only blocks that the caller wants are kept, and bytes that nobody asked for
  end the transfer and the peer's good name.
- Whatever asking a peer raises, of any type, is that peer's failure and nobody else's.
- `BlockNotFound` names peers asked and what became of it.

Does not guarantee: that a peer list is safe to contact: who may be on it is the caller's decision, and which
addresses are reached is the transport's (``blocks.public_net``).

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

from assay.blocks.arrival import Arrival
from assay.blocks.blockstore import BlockStore
from assay.blocks.car import BadCar
from assay.blocks.cid import Cid
from assay.blocks.peers import Peer, PeerInfo, Peers
from assay.blocks.race import FileTime, FileTimes, Hold, Pace, Race, RaceConfig, Spent, read_capped
from assay.protocol.errors import (
    AssayError,
    BlockNotFound,
    BlockTooLarge,
    CorruptBlock,
    PeerUnreachable,
)

T = TypeVar("T")
PublisherOf = Callable[[bytes], str | None]
"""A block's digest to the URL of whoever published it, where the chain knows."""

EMPTY_BLOCK = "bafkqaaa"
"""By which the Trustless Gateway specification probes a gateway."""
_AT_ONCE = 128
_TAKERS = 4
"""Threads that hash and store what a CAR brings, so that other transfers go on meanwhile."""
_RESOLVERS = 64
"""Threads that look up names: one that never answers holds one for half a minute."""
_NAMED_PEERS = 8
"""Peers that an error names."""

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ExchangeConfig:
    """How long a fetch waits, how many peers it asks at once, and what it puts up with. Times in seconds.

    `rounds`: how often a fetch goes round the peers while some fail without saying "not here".
    `fetch_deadline_s`: after this long, a fetch asks no further peer for its block. `patience_s`: a peer that
    has not answered for three times its usual pace, within these bounds, gets company. `file_grace_s`: for
    which a whole file may come slower than `min_bytes_per_s`, all waits for its blocks together; longer than
    `stranger_s`, so that whoever has something at stake is asked for the first of them. `file_again_s`: for
    how long a file that took longer is not asked for again, where all that is fetched has one time together.
    `car_peers`: how many are asked for a CAR before the blocks are fetched one by one.
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
    """What came could not be kept: no peer is to blame."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Exchange:
    """A client of many gateways. Thread-safe; runs its requests on one private event loop until
    `close`.

    `clock` gives monotonic seconds; `transport` replaces the network in tests.
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
        """Who delivered last: asked first for the rest of a file."""
        self.times = FileTimes(conf.file_grace_s, conf.min_bytes_per_s, conf.file_again_s, clock)
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
        """Close connections and stop the event loop. Idempotent."""
        if self._loop.is_closed():
            return
        self._run(self._client.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._takers.shutdown()
        self._loop.close()

    @property
    def hold(self) -> Hold | None:
        """What all fetches of this thread may take together, where whoever waits for them has something else
        to do."""
        return getattr(self._held, "hold", None)

    @hold.setter
    def hold(self, hold: Hold | None) -> None:
        self._held.hold = hold

    def set_peers(self, peers: Iterable[str | PeerInfo], publisher: PublisherOf | None = None) -> list[str]:
        """Replace the peer list and return the entries left out because they are no plain http(s) base URL.

        `publisher`: who has said on chain that it published the block of a digest, asked for it before
        others; called in the thread that fetches.
        """
        given = list(peers)
        if publisher is not None:
            self._publisher = publisher

        async def replace() -> list[str]:
            return self._peers.replace(given)

        return self._run(replace())

    def banned(self) -> list[str]:
        """Peers of the current list that sent a corrupt block and are not asked for now."""
        return self._peers.banned()

    def answers(self, url: str, within_s: float) -> bool:
        """Whether a peer has delivered of late, or gives any HTTP answer when it is asked for the empty
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

    def fetch_block(self, cid: Cid, within: FileTime | None = None) -> bytes:
        """Fetch, verify and store one block, of a file that has this time. Raises `BlockNotFound`."""
        work = self._fetch_one(cid, self._publisher(cid.digest), within)
        return self._run(work, self.hold)

    def fetch_many(self, cids: Iterable[Cid], within: FileTime | None = None) -> None:
        """Fetch and store blocks, a few at a time, of a file that has this time (None: without one). Raises
        `BlockNotFound` for the first one that nobody has."""
        self._run(self._fetch_many(list(dict.fromkeys(cids)), within), self.hold)

    def fetch_car(
        self,
        root: Cid,
        wanted: Iterable[Cid],
        allowed: Iterable[Cid],
        max_bytes: int,
        take: Callable[[Cid, bytes], None] = lambda cid, data: None,
    ) -> set[Cid]:
        """Stream the DAG from peers, keep the wanted blocks, and return those that nobody delivered.

        `allowed` are other blocks that the stream may rightly contain (inner nodes, blocks already here);
        `max_bytes` bounds the blocks' total size. `take` is called with each wanted block once it is verified
        and stored, one after the other, in a thread of the transfers'. Never raises for a peer's fault: what
        is missing can still be fetched singly.
        """
        missing = set(wanted)
        self._run(self._fetch_car(root, missing, missing | set(allowed), max_bytes, take), self.hold)
        return missing

    def _run(self, work: Coroutine[Any, Any, T], hold: Hold | None = None) -> T:
        bound = work if hold is None else hold.bound(work)
        return asyncio.run_coroutine_threadsafe(bound, self._loop).result()

    async def _fetch_one(self, cid: Cid, publisher: str | None, within: FileTime | None) -> bytes:
        if within is None:
            return await self._fetch(cid, publisher)
        try:
            async with within.waiting():
                data = await self._fetch(cid, publisher)
        except TimeoutError as error:
            raise _too_slow(cid) from error
        within.came(len(data))
        return data

    async def _fetch_many(self, cids: list[Cid], within: FileTime | None) -> None:
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
            """Whether nothing more is to be had from a peer in this fetch."""
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
                f"peer {peer.url} sent {len(data)} bytes that are not block {cid}; it is left alone for now",
                hint="fetch the block from another peer; remove this one from the list if it happens again",
            )
        self._latest = peer.url
        self._peers.delivered(peer, self._loop.time() - began)
        return data

    def _first_byte_s(self, peer: Peer) -> float:
        """How long a peer may take until the first byte of its answer."""
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
        """Keep what has come; whether there was a whole block. Raises BadCar, and _Ours where it could not be
        kept."""
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
        """Blame a peer for what asking it has brought about; what nobody expects of one is logged whole."""
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
    """The time of the file that the block is of is over."""
    return BlockNotFound(
        f"the file of block {cid} comes slower than files have to; what came of it is kept",
        hint="try again later, or add a peer that has it",
    )


def _not_found(cid: Cid, outcomes: dict[str, str], banned: list[str]) -> BlockNotFound:
    """Nobody has the block. `outcomes`: why, by URL; `banned`: who was not asked."""
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
