"""Fetching from peers: honest, absent, slow, lying and flooding ones."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.blocks.blockstore import MAX_BLOCK_BYTES, BlockStore
from assay.blocks.car import encode_block, encode_header
from assay.blocks.exchange import Exchange, ExchangeConfig
from assay.blocks.hedged_requests import Hold
from assay.blocks.peers import PeerInfo
from assay.protocol.cid import DAG_PB, Cid
from assay.protocol.errors import (
    BlockNotFound,
    Deferred,
)
from tests.fakes.any_error import ENDS, ERRORS, name_of

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
        assert client.fetch_block(CID) == DATA
    assert store.get(str(CID)) == DATA
    assert str(seen[0].url) == f"http://a/ipfs/{CID}?format=raw"
    assert seen[0].headers["accept"] == "application/vnd.ipld.raw"
    assert seen[0].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("bad", [absent, refuses, hangs, streams(trickle), sends(b"lie"), sends(b"", 500)])
def test_another_peer_helps_out(store: BlockStore, bad: Peer) -> None:
    net = Net(a=bad, b=bad, c=honest)
    with exchange(store, net) as client:
        assert client.fetch_block(CID) == DATA
    assert "c" in net.asked and len(net.asked) <= 3


def test_not_found_names_every_peer_and_its_outcome(store: BlockStore) -> None:
    net = Net(a=absent, b=refuses, c=sends(b"lie"), d=hangs)
    with exchange(store, net) as client, pytest.raises(BlockNotFound) as caught:
        client.fetch_block(CID)
    message = str(caught.value)
    assert str(CID) in message
    for part in ("http://a (block-not-found)", "http://b (peer-unreachable)", "http://c (corrupt-block)"):
        assert part in message
    assert "http://d (peer-unreachable)" in message
    assert caught.value.hint


def test_without_peers_nothing_is_found(store: BlockStore) -> None:
    with exchange(store, Net()) as client, pytest.raises(BlockNotFound, match="peers tried: none"):
        client.fetch_block(CID)


def test_unreachable_peers_get_a_second_round_and_absent_ones_do_not(store: BlockStore) -> None:
    tries: list[int] = []

    async def recovers(request: httpx.Request) -> httpx.Response:
        tries.append(1)
        return httpx.Response(200, content=once(DATA)) if len(tries) > 1 else httpx.Response(503)

    net = Net(a=absent, b=recovers)
    with exchange(store, net) as client:
        assert client.fetch_block(CID) == DATA
    assert sorted(net.asked) == ["a", "b", "b"]


def test_many_dead_peers_do_not_hold_a_fetch_for_ever(store: BlockStore) -> None:
    config = ExchangeConfig(block_deadline_s=0.05, grace_s=0.05, fetch_deadline_s=0.12, rounds=1, fanout=4)
    net = Net(**{f"p{i}": hangs for i in range(200)})
    with (
        Exchange(store, net.urls(), config, transport=httpx.MockTransport(net)) as client,
        pytest.raises(BlockNotFound, match="peer-unreachable"),
    ):
        client.fetch_block(CID)
    assert 1 <= len(net.asked) <= 4 * 4


def test_not_found_stays_readable_with_many_peers(store: BlockStore) -> None:
    net = Net(**{f"p{i}": absent for i in range(50)})
    with exchange(store, net) as client, pytest.raises(BlockNotFound, match="and 42 more"):
        client.fetch_block(CID)


def test_peer_that_failed_is_asked_last(store: BlockStore) -> None:
    config = ExchangeConfig(backoff_s=10.0, rounds=1)
    net, clock = Net(a=refuses, b=absent), Clock()

    def fetch(times: int) -> int:
        net.asked.clear()
        for _ in range(times):
            with suppress(BlockNotFound):
                client.fetch_block(CID)
        return net.asked.index("a")

    with Exchange(store, net.urls(), config, clock=clock, transport=httpx.MockTransport(net)) as client:
        fetch(2)
        assert [fetch(1) for _ in range(4)] == [1, 1, 1, 1]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, len(DATA) * 8 - 1))
def test_any_flipped_bit_of_a_served_block_is_noticed(store: BlockStore, bit: int) -> None:
    changed = bytearray(DATA)
    changed[bit // 8] ^= 1 << bit % 8
    with exchange(store, Net(a=sends(bytes(changed)))) as client:
        with pytest.raises(BlockNotFound, match=r"http://a \(corrupt-block\)"):
            client.fetch_block(CID)
        assert client.banned() == ["http://a"]
    assert store.usage().blocks == 0


def test_liar_is_not_asked_again_until_the_ban_ends(store: BlockStore) -> None:
    net, clock = Net(a=sends(b"lie")), Clock()
    with exchange(store, net, clock) as client:
        for _ in range(3):
            with pytest.raises(BlockNotFound):
                client.fetch_block(CID)
        assert net.asked == ["a"]
        client.set_peers([])
        client.set_peers(["http://a/"])
        with pytest.raises(BlockNotFound, match="not asked, sent corrupt blocks: http://a"):
            client.fetch_block(CID)
        assert net.asked == ["a"], "leaving the list and coming back does not lift a ban"
        clock.now += FAST.ban_s + 1
        net.peers["a"] = honest
        assert client.fetch_block(CID) == DATA


def test_flood_is_cut_at_the_largest_block(store: BlockStore) -> None:
    sent: list[int] = []

    async def flood() -> AsyncIterator[bytes]:
        while True:
            sent.append(65536)
            yield bytes(65536)

    with exchange(store, Net(a=streams(flood))) as client:
        with pytest.raises(BlockNotFound, match=r"http://a \(block-too-large\)"):
            client.fetch_block(CID)
        assert sum(sent) <= MAX_BLOCK_BYTES + 2 * 65536
        assert client.banned() == ["http://a"]


@pytest.mark.parametrize("peer", [refuses, hangs, streams(trickle), sends(b"", 503)])
def test_unreachable_peer_is_reported(store: BlockStore, peer: Peer) -> None:
    told = pytest.raises(BlockNotFound, match=r"http://a \(peer-unreachable\)")
    with exchange(store, Net(a=peer)) as client, told:
        client.fetch_block(CID)


def test_redirects_and_compressed_answers_are_not_followed(store: BlockStore) -> None:
    net = Net(
        a=sends(b"", 302, {"Location": f"http://b/ipfs/{CID}?format=raw"}),
        b=honest,
        c=sends(DATA, 200, {"Content-Encoding": "gzip"}),
    )
    with exchange(store, net) as client:
        for name in ("a", "c"):
            net.asked.clear()
            client.set_peers([f"http://{name}"])
            with pytest.raises(BlockNotFound, match=rf"http://{name} \(peer-unreachable\)"):
                client.fetch_block(CID)
            assert set(net.asked) == {name}


def test_cookies_are_not_kept(store: BlockStore) -> None:
    seen: list[str | None] = []

    async def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("cookie"))
        return httpx.Response(200, content=once(DATA), headers={"Set-Cookie": "id=1; Path=/"})

    with exchange(store, Net(a=answer)) as client:
        client.fetch_block(CID)
        client.fetch_block(CID)
    assert seen == [None, None]


@pytest.mark.parametrize(
    "url",
    [
        *("", "a", "ftp://a", "file:///etc/passwd", "http://", "http://u:p@a", "http://a/?x=1", "http://a:b"),
        *("http://xn--a", "http://a:99999", "http://a:0", "http://a/\x00"),
    ],
)
def test_strange_peer_urls_are_refused(store: BlockStore, url: str) -> None:
    net = Net(b=absent, c=absent)
    with exchange(store, net) as client:
        assert client.set_peers(["http://b", url, "http://c"]) == [url]
        with pytest.raises(BlockNotFound):
            client.fetch_block(CID)
    assert set(net.asked) == {"b", "c"}, "a malformed entry does not cost the others"


def test_peer_list_is_cleaned(store: BlockStore) -> None:
    net = Net(a=absent, b=absent)
    with exchange(store, net) as client:
        client.set_peers(["http://a/", "http://a", "https://b/x/"])
        with pytest.raises(BlockNotFound):
            client.fetch_block(CID)
    assert sorted(net.asked) == ["a", "b"]


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


def raises(error: BaseException) -> Peer:
    async def answer(request: httpx.Request) -> httpx.Response:
        raise error

    return answer


def fails_late(error: BaseException) -> Peer:
    """While its answer is read."""

    async def chunks() -> AsyncIterator[bytes]:
        yield DATA[:1]
        raise error

    return streams(chunks)


@pytest.mark.parametrize("peer", [raises, fails_late])
@pytest.mark.parametrize("error", ERRORS, ids=name_of)
def test_attack_T46_whatever_asking_one_peer_raises_is_its_failure(
    store: BlockStore, error: Exception, peer: Callable[[BaseException], Peer]
) -> None:
    net = Net(**{f"bad-{number}": peer(error) for number in range(16)}, good=honest)
    clock = Clock()
    with exchange(store, net, clock) as client:
        client.set_peers([*(PeerInfo(url, 10) for url in net.urls()[:16]), *net.urls()[16:]])
        assert client.fetch_block(CID) == DATA
        asked = set(net.asked)
        assert asked > {"good"} and client._peers.order()[0].url == "http://good"
        resting = [client._peers.peer(f"http://{name}") for name in asked - {"good"}]
        assert all(peer.record.failures for peer in resting)


@pytest.mark.parametrize("peer", [raises, fails_late])
@pytest.mark.parametrize("error", ERRORS, ids=name_of)
def test_attack_T46_whatever_streaming_from_one_peer_raises_is_its_failure(
    store: BlockStore, error: Exception, peer: Callable[[BaseException], Peer]
) -> None:
    with exchange(store, Net(bad=peer(error), good=sends(CAR))) as client:
        client.set_peers([PeerInfo("http://bad", 10), "http://good"])
        assert client.fetch_car(ROOT, CIDS, [ROOT], 1000) == set()
        assert client._peers.peer("http://bad").record.failures == 1


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), MemoryError()], ids=name_of)
def test_what_cannot_be_kept_is_no_peers_failure(
    store: BlockStore, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def full(*given: object, **named: object) -> None:
        raise error

    monkeypatch.setattr(BlockStore, "put_verified", full)
    with exchange(store, Net(good=sends(CAR))) as client:
        with pytest.raises(type(error)):
            client.fetch_car(ROOT, CIDS, [ROOT], 1000)
        assert client._peers.peer("http://good").record.failures == 0


def test_what_ends_what_is_under_way_is_no_peers_failure(store: BlockStore) -> None:
    with exchange(store, Net(bad=raises(ENDS[2]))) as client:
        with pytest.raises(BaseException) as met:
            client.fetch_block(CID)
        assert client._peers.peer("http://bad").record.failures == 0
    assert "Cancelled" in type(met.value).__name__


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
    """Intact blocks are kept, the others are reported missing, and another peer can complete the file."""
    with exchange(store, Net(a=peer)) as client:
        missing = client.fetch_car(ROOT, CIDS, [ROOT], 100)
        held = {Cid.parse(cid) for cid in store.cids()}
        assert held == CIDS - missing
        assert client.banned() == (["http://a"] if banned else [])
    with exchange(store, Net(b=sends(CAR))) as client:
        assert client.fetch_car(ROOT, missing, CIDS, 100) == set()


def test_what_came_last_of_a_car_that_stalls_is_kept(store: BlockStore) -> None:
    """Bytes that follow others at once wait for more: they are hashed and stored where none come."""
    threads = list[str]()

    async def stalls() -> AsyncIterator[bytes]:
        first, second = (encode_block(Cid.of(data), data) for data in WANTED[:2])
        yield encode_header(ROOT) + first
        yield second
        await asyncio.sleep(30)

    def take(cid: Cid, data: bytes) -> None:
        threads.append(threading.current_thread().name.partition("_")[0])

    with exchange(store, Net(a=streams(stalls))) as client:
        assert client.fetch_car(ROOT, CIDS, [ROOT], 100, take) == CIDS - {Cid.of(d) for d in WANTED[:2]}
    assert threads == ["blocks"] * 2, "the loop of the transfers is left free"


def test_attack_T38_a_hold_ends_whatever_came_last(store: BlockStore) -> None:
    """A peer that sends junk before a hold ends is not replaced by another one, since there is no time
    left."""
    junk = list[bytes]()

    async def sends_junk() -> AsyncIterator[bytes]:
        yield encode_header(ROOT) + encode_block(Cid.of(WANTED[0]), WANTED[0])
        junk.append(b"\xff" * 40)
        yield junk[0]
        await asyncio.sleep(30)

    config = replace(FAST, car_stall_s=60.0)
    net = Net(a=streams(sends_junk), b=sends(CAR))
    peers = [PeerInfo("http://a", stake=100, publishes=True), PeerInfo("http://b")]
    with Exchange(store, peers, config, transport=httpx.MockTransport(net)) as client:
        client.hold = Hold(0.3)
        with pytest.raises(Deferred):
            client.fetch_car(ROOT, CIDS, [ROOT], 100)
    assert junk and net.asked == ["a"] and store.has(str(Cid.of(WANTED[0])))


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


# Sybils -------------------------------------------------------------


async def floods() -> AsyncIterator[bytes]:
    while True:
        yield bytes(1 << 20)


SYBILS = (streams(trickle), sends(b"lie"), hangs, absent, refuses, streams(floods), sends(b"", 503))


def sybil_net(count: int) -> Net:
    """So many false peers, and an honest one that has every block of BLOCKS in their midst."""

    async def has_all(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=once(BLOCKS[request.url.path.rsplit("/", 1)[1]]))

    false = {f"s{i}": SYBILS[i % len(SYBILS)] for i in range(count)}
    names = list(false)
    return Net(
        **{name: false[name] for name in names[::2]}, honest=has_all, **{n: false[n] for n in names[1::2]}
    )


BLOCKS = {str(Cid.of(bytes([i, 7]))): bytes([i, 7]) for i in range(60)}
QUICK = ExchangeConfig(block_deadline_s=0.3, grace_s=0.05, patience_s=(0.02, 0.02), backoff_s=0.01)


@pytest.mark.parametrize("known", ["publisher", "stake", "nothing"])
def test_a_thousand_false_peers_beside_an_honest_one(store: BlockStore, known: str) -> None:
    """A thousand endpoints that cost nothing: only peers with stake or an earlier delivery are asked."""
    net = sybil_net(1000)
    infos = [PeerInfo(url, int(known == "stake" and url == "http://honest")) for url in net.urls()]
    asked_alone = 0
    with Exchange(store, infos, QUICK, transport=httpx.MockTransport(net)) as client:
        client.set_peers(infos, lambda digest: "http://honest" if known == "publisher" else None)
        for _ in range(5):  # until the floods that use up the budget of strangers are banned
            with suppress(BlockNotFound):
                client.fetch_block(Cid.parse(next(iter(BLOCKS))))
        for number, (cid, data) in enumerate(BLOCKS.items()):
            before = len(net.asked)
            assert client.fetch_block(Cid.parse(cid)) == data
            asked_alone += net.asked[before:] == ["honest"]
            if known != "nothing":
                assert asked_alone == number + 1, "never one of a thousand false peers"
    assert asked_alone >= len(BLOCKS) - 1
    if known == "nothing":
        assert len(net.asked) > len(BLOCKS) + 50, "the false peers were really asked"


def test_strangers_have_budgets_and_the_staked_are_asked_all_the_same(store: BlockStore) -> None:
    """Strangers that use up a budget do not affect peers with stake, except by their rests."""
    net = Net(**{f"s{i}": streams(floods) for i in range(50)}, staked=refuses)
    config = replace(QUICK, stranger_bytes=5 * MAX_BLOCK_BYTES, fanout=2, rounds=1)
    infos = [PeerInfo(url, int("staked" in url)) for url in net.urls()]
    with Exchange(store, infos, config, transport=httpx.MockTransport(net)) as client:
        with pytest.raises(BlockNotFound):
            client.fetch_block(CID)
        net.asked.clear()
        net.peers["staked"] = honest
        assert client.fetch_block(CID) == DATA
    assert net.asked[-1] == "staked" and len(net.asked) <= 8


def test_a_slow_drip_is_left_for_longer_each_time(store: BlockStore) -> None:
    clock = Clock()
    with Exchange(
        store,
        ["http://a"],
        replace(QUICK, rounds=1),
        clock=clock,
        transport=httpx.MockTransport(Net(a=streams(trickle))),
    ) as client:
        rests = []
        for _ in range(4):
            with pytest.raises(BlockNotFound):
                client.fetch_block(CID)
            rests.append(client._peers.peer("http://a").record.rest_until)
    assert rests == [0.02, 0.04, 0.08, 0.16]


def test_who_was_slow_when_another_won_is_blamed(store: BlockStore) -> None:
    async def late(request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(0.2)
        return httpx.Response(200, content=once(DATA))

    config = replace(QUICK, block_deadline_s=5.0, grace_s=0.1)
    infos = [PeerInfo("http://drip", 9), PeerInfo("http://late", 1)]
    net = Net(drip=hangs, late=late)
    with Exchange(store, infos, config, transport=httpx.MockTransport(net)) as client:
        assert client.fetch_block(CID) == DATA
        assert net.asked == ["drip", "late"]
        assert client._peers.peer("http://drip").record.failures == 1
        assert client._peers.peer("http://late").record.failures == 0


def test_a_slow_but_steady_peer_is_let_finish(store: BlockStore) -> None:
    data = bytes(range(256)) * 32

    async def steady() -> AsyncIterator[bytes]:
        for at in range(0, len(data), 1024):
            await asyncio.sleep(0.02)
            yield data[at : at + 1024]

    config = replace(QUICK, block_deadline_s=5.0)
    with Exchange(
        store, ["http://a"], config, transport=httpx.MockTransport(Net(a=streams(steady)))
    ) as client:
        assert client.fetch_block(Cid.of(data)) == data


def test_a_car_of_drips_is_given_up_for_single_blocks(store: BlockStore) -> None:
    """One block at a time, each just before the stall: the least rate ends it."""

    async def drips() -> AsyncIterator[bytes]:
        yield encode_header(ROOT)
        for data in WANTED:
            await asyncio.sleep(0.07)
            yield encode_block(Cid.of(data), data)

    with exchange(store, Net(a=streams(drips))) as client:
        assert client.fetch_car(ROOT, CIDS, [ROOT], 100) == CIDS - {Cid.of(b"one")}


def test_a_disk_that_is_slow_is_not_the_peers_fault(store: BlockStore) -> None:
    """Received blocks are hashed and written in parallel with the transfer, and the stall timer stops
    meanwhile."""
    threads = set()

    async def parts() -> AsyncIterator[bytes]:
        for at in range(0, len(CAR), 10):
            yield CAR[at : at + 10]

    def slow(cid: Cid, data: bytes) -> None:
        threads.add(threading.current_thread().name.partition("_")[0])
        time.sleep(1.5 * FAST.car_stall_s)

    with exchange(store, Net(a=streams(parts))) as client:
        assert client.fetch_car(ROOT, CIDS, [ROOT], 100, slow) == set()
        assert client.banned() == [] and client._peers.peer("http://a").record.failures == 0
    assert threads == {"blocks"}, "the loop of the transfers is left free"
