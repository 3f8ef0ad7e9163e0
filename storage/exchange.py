"""Fetch blocks by CID from peers' trustless gateways.

Contract:
- Every block is hashed before it is stored or returned. A peer that sends a wrong one is not asked
again for
  `ban_s` seconds; a peer that fails or stalls is left alone for a growing time.
- Every request has one deadline for everything (connecting, headers, body; for a
  CAR also a time without a new block and a least rate), a cap on the bytes it may
bring, no
  redirects, no cookies, no decompression, and no proxy from the environment.
- A CAR is taken block by block: only blocks that the caller wants are kept, and bytes that nobody asked
for end the
  transfer and the peer's good name.
- `BlockNotFound` names each peer asked and what became of it.

Does not guarantee: that a peer list is safe to contact; peers are URLs from strangers, so run nodes
without access to private HTTP services. Who may be on the list is the caller's decision.

Source: https://specs.ipfs.tech/http-gateways/trustless-gateway/
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from types import TracebackType
from typing import Any, TypeVar

import httpx

from assay.protocol.errors import (
    AssayError,
    BlockNotFound,
    BlockTooLarge,
    CorruptBlock,
    PeerUnreachable,
    Stop,
)
from assay.storage.blockstore import MAX_BLOCK_BYTES, BlockStore
from assay.storage.car import BadCar, CarParser
from assay.storage.cid import CID_BYTES, Cid

T = TypeVar("T")

_CAR_OVERHEAD_BYTES = CID_BYTES + 8
_NAMED_PEERS = 8


@dataclass(frozen=True, slots=True)
class ExchangeConfig:
    """Times in seconds.

    `rounds`: how often a fetch goes round the peers while some fail without saying "not here".
    `fetch_deadline_s`: after this long, a fetch asks no further peer for its block.
    """

    connect_timeout_s: float = 3.0
    block_deadline_s: float = 20.0
    fetch_deadline_s: float = 120.0
    car_stall_s: float = 20.0
    car_min_bytes_per_s: float = 100_000.0
    rounds: int = 2
    backoff_s: float = 0.2
    max_backoff_s: float = 30.0
    ban_s: float = 900.0
    parallel: int = 4


class BadPeerUrl(Stop):
    """A peer's address is not a plain http(s) base URL."""

    code = "bad-peer-url"


@dataclass(slots=True)
class _Peer:
    url: str
    failures: int = 0
    rest_until: float = 0.0
    banned_until: float = 0.0


class Exchange:
    """A client of many gateways. Thread-safe; runs its requests on one private event loop until
    `close`.

    `clock` gives monotonic seconds; `transport` replaces the network in tests.
    """

    def __init__(
        self,
        store: BlockStore,
        peers: Iterable[str] = (),
        config: ExchangeConfig | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.config = config or ExchangeConfig()
        self._store = store
        self._clock = clock
        self._turn = 0
        self._known: dict[str, _Peer] = {}
        self._peers: tuple[_Peer, ...] = ()
        self._client = httpx.AsyncClient(
            timeout=httpx.Timeout(self.config.block_deadline_s, connect=self.config.connect_timeout_s),
            follow_redirects=False,
            trust_env=False,
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            transport=transport,
            headers={"Accept-Encoding": "identity", "User-Agent": "assay"},
        )
        self._loop = asyncio.new_event_loop()
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
        self._loop.close()

    def set_peers(self, urls: Iterable[str]) -> list[str]:
        """Replace the peer list and return the entries left out because they are no plain http(s) base URL.

        One stranger's malformed entry must not cost the others. Kept and banned peers stay known.
        """
        cleaned: dict[str, None] = {}
        refused: list[str] = []
        for url in urls:
            try:
                cleaned[_clean_url(url)] = None
            except BadPeerUrl:
                refused.append(url)
        now = self._clock()
        banned = {url: peer for url, peer in self._known.items() if peer.banned_until > now}
        self._peers = tuple(self._known.get(url) or _Peer(url) for url in cleaned)
        self._known = banned | {peer.url: peer for peer in self._peers}
        return refused

    def peers(self) -> list[str]:
        """The current peer list."""
        return [peer.url for peer in self._peers]

    def banned(self) -> list[str]:
        """Peers of the current list that sent a corrupt block and are not asked for now."""
        return [peer.url for peer in self._peers if peer.banned_until > self._clock()]

    def fetch(self, cid: str) -> bytes:
        """Fetch, verify and store one block. Raises `BadCid`, `BlockNotFound`."""
        return self.fetch_block(Cid.parse(cid))

    def fetch_block(self, cid: Cid) -> bytes:
        """Like `fetch`, for a parsed CID."""
        return self._run(self._fetch(cid))

    def fetch_many(self, cids: Iterable[Cid]) -> None:
        """Fetch and store blocks, a few at a time. Raises `BlockNotFound` for the first one that nobody
        has."""
        self._run(self._fetch_many(list(dict.fromkeys(cids))))

    def fetch_from(self, peer_url: str, cid: str) -> bytes:
        """Fetch and verify one block from one peer, without storing it.

        Raises `BlockNotFound`, `CorruptBlock`, `BlockTooLarge`, `PeerUnreachable`, `BadPeerUrl`.
        """
        url = _clean_url(peer_url)
        return self._run(self._download(self._known.get(url, _Peer(url)), Cid.parse(cid)))

    def fetch_car(self, root: Cid, wanted: Iterable[Cid], allowed: Iterable[Cid], max_bytes: int) -> set[Cid]:
        """Stream the DAG from peers, keep the wanted blocks, and return those that nobody delivered.

        `allowed` are other blocks that the stream may rightly contain (inner nodes, blocks already
        here); `max_bytes` bounds the blocks' total size. Never raises for a peer's fault: what is
        missing can still be fetched singly.
        """
        missing = set(wanted)
        self._run(self._fetch_car(root, missing, missing | set(allowed), max_bytes))
        return missing

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _fetch_many(self, cids: list[Cid]) -> None:
        queue = iter(cids)

        async def work() -> None:
            for cid in queue:
                await self._fetch(cid)

        workers = [asyncio.ensure_future(work()) for _ in range(min(self.config.parallel, len(cids)))]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _fetch(self, cid: Cid) -> bytes:
        outcomes: dict[str, str] = {}
        cause: AssayError | None = None
        left, latest = self._candidates(), self._loop.time() + self.config.fetch_deadline_s
        for turn in range(self.config.rounds):
            if turn > 0 and left:
                await asyncio.sleep(self.config.backoff_s * 2.0 ** (turn - 1))
            asked, left = left, []
            for peer in asked:
                if self._loop.time() > latest:
                    break
                try:
                    data = await self._download(peer, cid)
                except AssayError as error:
                    outcomes[peer.url], cause = error.code, error
                    if isinstance(error, PeerUnreachable):
                        left.append(peer)
                else:
                    self._store.put_verified(data, cid, durable=False)
                    return data
        raise _not_found(cid, outcomes, self.banned()) from cause

    def _candidates(self) -> list[_Peer]:
        """Peers to ask, starting one further each time; those that failed lately come last."""
        now, peers = self._clock(), self._peers
        if not peers:
            return []
        self._turn += 1
        start = self._turn % len(peers)
        usable = [peer for peer in peers[start:] + peers[:start] if peer.banned_until <= now]
        return sorted(usable, key=lambda peer: peer.rest_until > now)

    async def _download(self, peer: _Peer, cid: Cid) -> bytes:
        try:
            async with (
                asyncio.timeout(self.config.block_deadline_s),
                self._open(peer, cid, "raw") as response,
            ):
                data = await _read_capped(peer.url, cid, response, MAX_BLOCK_BYTES)
        except (PeerUnreachable, TimeoutError, httpx.HTTPError) as error:
            raise self._unreachable(peer, cid, error) from error
        except BlockTooLarge:
            self._ban(peer)
            raise
        if not cid.matches(data):
            self._ban(peer)
            raise CorruptBlock(
                f"peer {peer.url} sent {len(data)} bytes that are not block {cid}; it is left alone for now",
                hint="fetch the block from another peer; remove this one from the list if it happens again",
            )
        peer.failures, peer.rest_until = 0, 0.0
        return data

    async def _fetch_car(self, root: Cid, missing: set[Cid], allowed: set[Cid], max_bytes: int) -> None:
        latest = self._loop.time() + self.config.fetch_deadline_s
        for peer in self._candidates():
            if not missing or self._loop.time() > latest:
                return
            try:
                await self._take_car(peer, root, missing, allowed, max_bytes)
            except (PeerUnreachable, TimeoutError, httpx.HTTPError) as error:
                self._unreachable(peer, root, error)
            except BadCar:
                self._ban(peer)
            except BlockNotFound:
                continue

    async def _take_car(
        self, peer: _Peer, root: Cid, missing: set[Cid], allowed: set[Cid], max_bytes: int
    ) -> None:
        parser, unseen = CarParser(), set(allowed)
        room = max_bytes + _CAR_OVERHEAD_BYTES * (len(allowed) + 4)
        stall_s = self.config.car_stall_s
        latest = self._loop.time() + stall_s + room / self.config.car_min_bytes_per_s
        async with (
            asyncio.timeout(stall_s) as deadline,
            self._open(peer, root, "car") as response,
        ):
            async for chunk in response.aiter_raw():
                room -= len(chunk)
                if room < 0:
                    raise BadCar(f"peer {peer.url} sent more for {root} than the DAG has")
                for cid, data in parser.feed(chunk):
                    if cid not in unseen:
                        raise BadCar(f"peer {peer.url} sent block {cid}, which nobody asked for")
                    unseen.remove(cid)
                    if cid in missing:
                        self._store.put_verified(data, cid, durable=False)
                        missing.remove(cid)
                    deadline.reschedule(min(latest, self._loop.time() + stall_s))
            parser.finish()
        peer.failures, peer.rest_until = 0, 0.0

    @asynccontextmanager
    async def _open(self, peer: _Peer, cid: Cid, wanted: str) -> AsyncIterator[httpx.Response]:
        url = f"{peer.url}/ipfs/{cid}"
        headers = {"Accept": f"application/vnd.ipld.{wanted}"}
        async with self._client.stream("GET", url, params={"format": wanted}, headers=headers) as response:
            if response.status_code in (400, 404, 406, 410, 413):
                peer.failures, peer.rest_until = 0, 0.0
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

    def _unreachable(self, peer: _Peer, cid: Cid, error: BaseException) -> PeerUnreachable:
        peer.failures += 1
        pause = min(self.config.max_backoff_s, self.config.backoff_s * 2.0 ** min(peer.failures, 16))
        peer.rest_until = self._clock() + pause
        return PeerUnreachable(
            f"peer {peer.url} gave no answer for {cid}: {type(error).__name__} {error}".rstrip(),
            hint="check that the peer's gateway runs and can be reached, or add other peers",
        )

    def _ban(self, peer: _Peer) -> None:
        peer.banned_until = self._clock() + self.config.ban_s


async def _read_capped(peer_url: str, cid: Cid, response: httpx.Response, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in response.aiter_raw():
        size += len(part)
        if size > max_bytes:
            raise BlockTooLarge(
                f"peer {peer_url} sent more than {max_bytes} bytes for block {cid}",
                hint="no valid block is that large; ask another peer",
            )
        parts.append(part)
    return b"".join(parts)


def _not_found(cid: Cid, outcomes: dict[str, str], banned: list[str]) -> BlockNotFound:
    named = [f"{url} ({outcome})" for url, outcome in outcomes.items()]
    tried = ", ".join(named[:_NAMED_PEERS]) or "none"
    if len(named) > _NAMED_PEERS:
        tried += f" and {len(named) - _NAMED_PEERS} more"
    silent = [url for url in banned if url not in outcomes][:_NAMED_PEERS]
    left_out = "".join(f"; not asked, sent corrupt blocks: {url}" for url in silent)
    return BlockNotFound(
        f"block {cid} is not stored here and no peer delivered it; peers tried: {tried}{left_out}",
        hint="add a peer that has the block, or try again once one is reachable",
    )


def _clean_url(url: str) -> str:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise BadPeerUrl(f"peer {url!r} is not a URL: {error}", hint=_URL_HINT) from error
    if parsed.scheme not in ("http", "https") or not parsed.host or parsed.userinfo:
        raise BadPeerUrl(f"peer {url!r} is not a plain http or https address", hint=_URL_HINT)
    if parsed.query or parsed.fragment:
        raise BadPeerUrl(f"peer {url!r} has a query or a fragment", hint=_URL_HINT)
    return str(parsed).rstrip("/")


_URL_HINT = "give the gateway's base URL, for example http://203.0.113.7:8080"
