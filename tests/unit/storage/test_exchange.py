"""Fetching from peers: honest, absent, slow, lying and flooding ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.protocol.errors import BadCid, BlockNotFound, BlockTooLarge, CorruptBlock, PeerUnreachable
from assay.storage.blockstore import MAX_BLOCK_BYTES, BlockStore
from assay.storage.car import encode_block, encode_header
from assay.storage.cid import DAG_PB, Cid
from assay.storage.exchange import BadPeerUrl, Exchange, ExchangeConfig

FAST = ExchangeConfig(block_deadline_s=0.1, car_stall_s=0.1, backoff_s=0.0, rounds=2)
DATA = b"the block"
CID = Cid.of(DATA)
Peer = Callable[[httpx.Request], Awaitable[httpx.Response]]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Net:
    """Peers by host name; records who was asked."""

    def __init__(self, **peers: Peer) -> None:
        self.peers = peers
        self.asked: list[str] = []

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request.url.host)
        return await self.peers[request.url.host](request)

    def urls(self) -> list[str]:
        return [f"http://{name}" for name in self.peers]


async def once(content: bytes) -> AsyncIterator[bytes]:
    yield content


def sends(content: bytes, status: int = 200, headers: dict[str, str] | None = None) -> Peer:
    async def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(status, content=once(content), headers=headers)

    return answer


def streams(chunks: Callable[[], AsyncIterator[bytes]]) -> Peer:
    async def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=chunks())

    return answer


async def refuses(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("connection refused")


async def hangs(request: httpx.Request) -> httpx.Response:
    await asyncio.Event().wait()
    raise AssertionError("never reached")


async def trickle() -> AsyncIterator[bytes]:
    yield DATA[:1]
    await asyncio.Event().wait()


honest, absent = sends(DATA), sends(b"", 404)


@contextmanager
def exchange(store: BlockStore, net: Net, clock: Clock | None = None) -> Iterator[Exchange]:
    with Exchange(
        store, net.urls(), FAST, clock=clock or Clock(), transport=httpx.MockTransport(net)
    ) as opened:
        yield opened


@pytest.fixture
def store(tmp_path: Path) -> BlockStore:
    return BlockStore(tmp_path)


def test_block_is_fetched_verified_and_stored(store: BlockStore) -> None:
    seen: list[httpx.Request] = []

    async def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, content=once(DATA))

    with exchange(store, Net(a=answer)) as client:
        assert client.fetch(str(CID)) == DATA
    assert store.get(str(CID)) == DATA
    assert str(seen[0].url) == f"http://a/ipfs/{CID}?format=raw"
    assert seen[0].headers["accept"] == "application/vnd.ipld.raw"
    assert seen[0].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("bad", [absent, refuses, hangs, streams(trickle), sends(b"lie"), sends(b"", 500)])
def test_another_peer_helps_out(store: BlockStore, bad: Peer) -> None:
    net = Net(a=bad, b=bad, c=honest)
    with exchange(store, net) as client:
        assert client.fetch(str(CID)) == DATA
    assert set(net.asked) <= {"a", "b", "c"} and net.asked[-1] == "c"


def test_not_found_names_every_peer_and_its_outcome(store: BlockStore) -> None:
    net = Net(a=absent, b=refuses, c=sends(b"lie"), d=hangs)
    with exchange(store, net) as client, pytest.raises(BlockNotFound) as caught:
        client.fetch(str(CID))
    message = str(caught.value)
    assert str(CID) in message
    for part in ("http://a (block-not-found)", "http://b (peer-unreachable)", "http://c (corrupt-block)"):
        assert part in message
    assert "http://d (peer-unreachable)" in message
    assert caught.value.hint


def test_without_peers_nothing_is_found(store: BlockStore) -> None:
    with exchange(store, Net()) as client, pytest.raises(BlockNotFound, match="peers tried: none"):
        client.fetch(str(CID))


def test_unreachable_peers_get_a_second_round_and_absent_ones_do_not(store: BlockStore) -> None:
    tries: list[int] = []

    async def recovers(request: httpx.Request) -> httpx.Response:
        tries.append(1)
        return httpx.Response(200, content=once(DATA)) if len(tries) > 1 else httpx.Response(503)

    net = Net(a=absent, b=recovers)
    with exchange(store, net) as client:
        assert client.fetch(str(CID)) == DATA
    assert sorted(net.asked) == ["a", "b", "b"]


def test_many_dead_peers_do_not_hold_a_fetch_for_ever(store: BlockStore) -> None:
    config = ExchangeConfig(block_deadline_s=0.05, fetch_deadline_s=0.12, rounds=1)
    net = Net(**{f"p{i}": hangs for i in range(200)})
    with (
        Exchange(store, net.urls(), config, transport=httpx.MockTransport(net)) as client,
        pytest.raises(BlockNotFound, match="peer-unreachable"),
    ):
        client.fetch(str(CID))
    assert 1 <= len(net.asked) <= 4


def test_not_found_stays_readable_with_many_peers(store: BlockStore) -> None:
    net = Net(**{f"p{i}": absent for i in range(50)})
    with exchange(store, net) as client, pytest.raises(BlockNotFound, match="and 42 more"):
        client.fetch(str(CID))


def test_peers_take_turns(store: BlockStore) -> None:
    net = Net(a=honest, b=honest, c=honest)
    with exchange(store, net) as client:
        for _ in range(6):
            client.fetch(str(CID))
    assert sorted(net.asked) == ["a", "a", "b", "b", "c", "c"]


def test_peer_that_failed_is_asked_last_until_it_has_rested(store: BlockStore) -> None:
    config = ExchangeConfig(backoff_s=10.0, rounds=1)
    net, clock = Net(a=refuses, b=honest), Clock()
    with Exchange(store, net.urls(), config, clock=clock, transport=httpx.MockTransport(net)) as client:
        for _ in range(6):
            client.fetch(str(CID))
        assert net.asked.count("a") == 1
        clock.now += 1000.0
        for _ in range(2):
            client.fetch(str(CID))
        assert net.asked.count("a") == 2


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, len(DATA) * 8 - 1))
def test_any_flipped_bit_of_a_served_block_is_noticed(store: BlockStore, bit: int) -> None:
    changed = bytearray(DATA)
    changed[bit // 8] ^= 1 << bit % 8
    with exchange(store, Net(a=sends(bytes(changed)))) as client:
        with pytest.raises(CorruptBlock):
            client.fetch_from("http://a", str(CID))
        with pytest.raises(BlockNotFound):
            client.fetch(str(CID))
        assert client.banned() == ["http://a"]
    assert store.usage().blocks == 0


def test_liar_is_not_asked_again_until_the_ban_ends(store: BlockStore) -> None:
    net, clock = Net(a=sends(b"lie")), Clock()
    with exchange(store, net, clock) as client:
        for _ in range(3):
            with pytest.raises(BlockNotFound):
                client.fetch(str(CID))
        assert net.asked == ["a"]
        client.set_peers([])
        client.set_peers(["http://a/"])
        with pytest.raises(BlockNotFound, match="not asked, sent corrupt blocks: http://a"):
            client.fetch(str(CID))
        assert net.asked == ["a"], "leaving the list and coming back does not lift a ban"
        clock.now += FAST.ban_s + 1
        net.peers["a"] = honest
        assert client.fetch(str(CID)) == DATA


def test_flood_is_cut_at_the_largest_block(store: BlockStore) -> None:
    sent: list[int] = []

    async def flood() -> AsyncIterator[bytes]:
        while True:
            sent.append(65536)
            yield bytes(65536)

    with exchange(store, Net(a=streams(flood))) as client:
        with pytest.raises(BlockTooLarge):
            client.fetch_from("http://a", str(CID))
        assert sum(sent) <= MAX_BLOCK_BYTES + 2 * 65536
        assert client.banned() == ["http://a"]


@pytest.mark.parametrize("peer", [refuses, hangs, streams(trickle), sends(b"", 503)])
def test_unreachable_peer_is_reported(store: BlockStore, peer: Peer) -> None:
    with exchange(store, Net(a=peer)) as client, pytest.raises(PeerUnreachable, match="http://a"):
        client.fetch_from("http://a", str(CID))


def test_redirects_and_compressed_answers_are_not_followed(store: BlockStore) -> None:
    net = Net(
        a=sends(b"", 302, {"Location": f"http://b/ipfs/{CID}?format=raw"}),
        b=honest,
        c=sends(DATA, 200, {"Content-Encoding": "gzip"}),
    )
    with exchange(store, net) as client:
        for peer in ("http://a", "http://c"):
            with pytest.raises(PeerUnreachable):
                client.fetch_from(peer, str(CID))
    assert net.asked == ["a", "c"]


def test_cookies_are_not_kept(store: BlockStore) -> None:
    seen: list[str | None] = []

    async def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("cookie"))
        return httpx.Response(200, content=once(DATA), headers={"Set-Cookie": "id=1; Path=/"})

    with exchange(store, Net(a=answer)) as client:
        client.fetch(str(CID))
        client.fetch(str(CID))
    assert seen == [None, None]


@pytest.mark.parametrize(
    "url",
    ["", "a", "ftp://a", "file:///etc/passwd", "http://", "http://u:p@a", "http://a/?x=1", "http://a:b"],
)
def test_strange_peer_urls_are_refused(store: BlockStore, url: str) -> None:
    with exchange(store, Net()) as client:
        with pytest.raises(BadPeerUrl):
            client.fetch_from(url, str(CID))
        assert client.set_peers(["http://b", url, "http://c"]) == [url]
        assert client.peers() == ["http://b", "http://c"], "a malformed entry does not cost the others"


def test_peer_list_is_cleaned(store: BlockStore) -> None:
    with exchange(store, Net()) as client:
        client.set_peers(["http://a/", "http://a", "https://b/x/"])
        assert client.peers() == ["http://a", "https://b/x"]
        with pytest.raises(BadCid):
            client.fetch("nonsense")


def test_many_blocks_are_fetched_each_once(store: BlockStore) -> None:
    blocks = {str(Cid.of(bytes([i]))): bytes([i]) for i in range(40)}
    asked: list[str] = []

    async def answer(request: httpx.Request) -> httpx.Response:
        cid = request.url.path.rsplit("/", 1)[1]
        asked.append(cid)
        return httpx.Response(200, content=once(blocks[cid]))

    with exchange(store, Net(a=answer)) as client:
        client.fetch_many([Cid.parse(cid) for cid in blocks] * 2)
        client.fetch_many([])
    assert sorted(asked) == sorted(blocks) == sorted(store.cids())


def test_first_missing_block_of_many_is_reported(store: BlockStore) -> None:
    with exchange(store, Net(a=absent)) as client, pytest.raises(BlockNotFound):
        client.fetch_many([Cid.of(bytes([i])) for i in range(40)])


# CAR ----------------------------------------------------------------

ROOT = Cid.of(b"root", DAG_PB)
WANTED = [b"one", b"two", b"three"]
CIDS = {Cid.of(data) for data in WANTED}
CAR = encode_header(ROOT) + b"".join(encode_block(Cid.of(data), data) for data in WANTED)


async def endless() -> AsyncIterator[bytes]:
    yield encode_header(ROOT)
    while True:
        yield encode_block(Cid.of(b"one"), b"one")


async def stalled() -> AsyncIterator[bytes]:
    yield CAR[:-10]
    await asyncio.Event().wait()


def test_car_brings_wanted_blocks(store: BlockStore) -> None:
    with exchange(store, Net(a=absent, b=sends(CAR))) as client:
        assert client.fetch_car(ROOT, CIDS, [ROOT], 100) == set()
    assert {Cid.parse(cid) for cid in store.cids()} == CIDS


def test_car_keeps_only_what_was_wanted(store: BlockStore) -> None:
    with exchange(store, Net(a=sends(CAR))) as client:
        assert client.fetch_car(ROOT, [Cid.of(b"two")], CIDS, 100) == set()
    assert list(store.cids()) == [str(Cid.of(b"two"))]


@pytest.mark.parametrize(
    ("peer", "banned"),
    [
        (sends(CAR.replace(b"two", b"twO")), True),
        (sends(CAR[:-1]), True),
        (sends(CAR + encode_block(Cid.of(b"junk"), b"junk")), True),
        (streams(endless), True),
        (sends(b"not a car at all, but something else"), True),
        (streams(stalled), False),
        (refuses, False),
        (hangs, False),
        (absent, False),
    ],
    ids=["flipped", "cut", "unasked", "endless", "garbage", "stalled", "refuses", "hangs", "absent"],
)
def test_car_from_a_bad_peer_loses_nothing(store: BlockStore, peer: Peer, banned: bool) -> None:
    """What arrived intact is kept, the rest is reported missing, and another peer can complete it."""
    with exchange(store, Net(a=peer)) as client:
        missing = client.fetch_car(ROOT, CIDS, [ROOT], 100)
        held = {Cid.parse(cid) for cid in store.cids()}
        assert held == CIDS - missing
        assert client.banned() == (["http://a"] if banned else [])
    with exchange(store, Net(b=sends(CAR))) as client:
        assert client.fetch_car(ROOT, missing, CIDS, 100) == set()


def test_car_is_capped_in_bytes(store: BlockStore) -> None:
    big = [bytes([i]) * 1000 for i in range(10)]
    stream = encode_header(ROOT) + b"".join(encode_block(Cid.of(data), data) for data in big)
    with exchange(store, Net(a=sends(stream))) as client:
        missing = client.fetch_car(ROOT, {Cid.of(data) for data in big}, [], 5000)
        assert missing and client.banned() == ["http://a"]


def test_close_is_idempotent(store: BlockStore) -> None:
    client = Exchange(store)
    client.close()
    client.close()
