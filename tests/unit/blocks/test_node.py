"""A node's blocks: local first, then peers; hostile files are refused before their leaves are fetched."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace

import httpx
import pytest
from starlette.applications import Starlette

from assay.blocks import unixfs
from assay.blocks.blockstore import BlockStore
from assay.blocks.dagpb import BadDag, Link, Node, encode_file, encode_node
from assay.blocks.exchange import Exchange, ExchangeConfig
from assay.blocks.gateway import gateway_route
from assay.blocks.node import NodeBlocks
from assay.blocks.peers import PeerInfo
from assay.compute.node_calls import Home
from assay.protocol.cid import DAG_PB, RAW, Cid
from assay.protocol.errors import BlockNotFound, Deferred
from assay.protocol.ports import TimeLimited
from tests.fakes.blocks import path_of


class Counting(httpx.AsyncBaseTransport):
    """The gateway of one store in this process; remembers the requests."""

    def __init__(self, store: BlockStore) -> None:
        app = Starlette(routes=[gateway_route(store)])
        self._inner = httpx.ASGITransport(app, raise_app_exceptions=False)
        self.asked: list[tuple[str, str]] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.asked.append((request.url.params["format"], request.url.path.removeprefix("/ipfs/")))
        return await self._inner.handle_async_request(request)


@pytest.fixture
def far(tmp_path: Path) -> BlockStore:
    return BlockStore(tmp_path / "far")


@pytest.fixture
def wire(far: BlockStore) -> Counting:
    return Counting(far)


@pytest.fixture
def node(tmp_path: Path, wire: Counting) -> Iterator[NodeBlocks]:
    store = BlockStore(tmp_path / "near")
    with Exchange(store, ["http://far"], ExchangeConfig(backoff_s=0.0), transport=wire) as exchange:
        yield NodeBlocks(store, exchange)


def file_in(store: BlockStore, data: bytes) -> str:
    return str(unixfs.add_file(data, store.put_verified, chunk_bytes=4, max_links=3))


def test_local_block_needs_no_peer(node: NodeBlocks, wire: Counting) -> None:
    assert node.get(node.put(b"here")) == b"here"
    assert wire.asked == []


def test_block_is_fetched_once(node: NodeBlocks, far: BlockStore, wire: Counting) -> None:
    cid = far.put(b"there")
    assert not node.has(cid)
    assert node.get(cid) == node.get(cid) == b"there"
    assert node.has(cid) and len(wire.asked) == 1


def test_a_file_that_a_worker_wants_is_not_in_memory_as_a_whole(node: NodeBlocks, far: BlockStore) -> None:
    """A stranger's data of some gigabytes, to which one block unfolds that repeats, would be in the node's
    memory once for each worker."""
    size = 64 << 20
    cid, home = far.add_file(bytes(size)), Home(SimpleNamespace(), node)
    tracemalloc.start()
    try:
        home.call("blocks", "fetch", (cid, size))
        assert tracemalloc.get_traced_memory()[1] < size // 4
    finally:
        tracemalloc.stop()
    assert node.store.holds(cid)


def test_corrupt_local_block_is_replaced_from_a_peer(node: NodeBlocks, far: BlockStore) -> None:
    cid = far.put(b"block")
    node.get(cid)
    path_of(node.store, cid).write_bytes(b"blocK")
    assert node.get(cid) == b"block"
    assert node.store.get(cid) == b"block" and len(node.store.quarantined()) == 1


def test_whole_file_comes_as_one_car(node: NodeBlocks, far: BlockStore, wire: Counting) -> None:
    data = bytes(range(100))
    cid = file_in(far, data)
    assert node.read_file(cid, 100) == data
    assert [path for wanted, path in wire.asked if wanted == "car"] == [cid]
    assert all(Cid.parse(path).codec == DAG_PB for wanted, path in wire.asked if wanted == "raw")
    assert sorted(node.store.cids()) == sorted(far.cids())
    wire.asked.clear()
    assert node.read_file(cid, 100) == data and wire.asked == []


def test_few_missing_leaves_come_singly(node: NodeBlocks, far: BlockStore, wire: Counting) -> None:
    data = bytes(range(100))
    cid = file_in(far, data)
    node.read_file(cid, 100)
    wire.asked.clear()
    lost = str(Cid.of(bytes(range(8, 12))))
    path_of(node.store, lost).unlink()
    assert node.read_file(cid, 100) == data
    assert wire.asked == [("raw", lost)]


def test_car_that_breaks_off_is_completed_singly(node: NodeBlocks, far: BlockStore, tmp_path: Path) -> None:
    """The peer's copy of one leaf is corrupt, so its CAR fails; a second peer has just that leaf."""
    data = bytes(range(100))
    cid = file_in(far, data)
    lost = bytes(range(48, 52))
    path_of(far, str(Cid.of(lost))).write_bytes(b"junk")
    other = BlockStore(tmp_path / "other")
    other.put(lost)
    wires = {"far": Counting(far), "other": Counting(other)}

    class Both(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            return await wires[request.url.host].handle_async_request(request)

    config = ExchangeConfig(backoff_s=0.0)
    with Exchange(node.store, ["http://far", "http://other"], config, transport=Both()) as exchange:
        assert NodeBlocks(node.store, exchange).read_file(cid, 100) == data


def test_hostile_file_is_refused_before_its_leaves_are_fetched(
    node: NodeBlocks, far: BlockStore, wire: Counting
) -> None:
    leaves = [far.put(bytes([i]) * 4) for i in range(20)]
    links = tuple(Link(Cid.parse(leaf), "", 4) for leaf in leaves)
    lying = far.put(encode_node(Node(links[:-1], encode_file((4,) * 20))), DAG_PB)
    large = far.put(encode_node(Node(links, encode_file((4,) * 20))), DAG_PB)
    with pytest.raises(BadDag):
        node.read_file(lying, 1000)
    with pytest.raises(unixfs.FileTooLarge):
        node.read_file(large, 79)
    assert wire.asked == [("raw", lying), ("raw", large)]
    assert node.read_file(large, 80) == b"".join(bytes([i]) * 4 for i in range(20))


def test_pin_fetches_the_whole_dag_and_survives_gc(node: NodeBlocks, far: BlockStore) -> None:
    cid = file_in(far, bytes(range(60)))
    loose = node.put(b"loose")
    node.pin(cid)
    assert node.store.gc(grace_s=-10.0).blocks == 1
    assert sorted(node.store.cids()) == sorted(far.cids()) and not node.has(loose)


def test_pin_of_an_incomplete_dag_fails(node: NodeBlocks, far: BlockStore) -> None:
    cid = file_in(far, bytes(range(60)))
    path_of(far, str(Cid.of(bytes(range(8, 12))))).unlink()
    with pytest.raises(BlockNotFound):
        node.pin(cid)
    assert node.store.pins() == []


def test_peers_can_be_replaced(node: NodeBlocks, far: BlockStore) -> None:
    cid = far.put(b"there", RAW)
    node.exchange.set_peers([])
    with pytest.raises(BlockNotFound):
        node.get(cid)
    node.exchange.set_peers(["http://far"])
    assert node.get(cid) == b"there"


@pytest.mark.parametrize("least", [1e-3, 1e6])
def test_attack_T34_a_files_blocks_have_one_time_together(
    far: BlockStore, wire: Counting, tmp_path: Path, least: float
) -> None:
    """Twenty leaves, each within its own limit. A file slower than the minimum rate is given up, and its
    received blocks are there at the next request."""

    async def late(request: httpx.Request) -> httpx.Response:
        if request.url.params["format"] == "car":
            return httpx.Response(404)
        await asyncio.sleep(0.05)
        return await wire.handle_async_request(request)

    data = bytes(range(80))
    cid, near = file_in(far, data), BlockStore(tmp_path / "near")
    config = ExchangeConfig(parallel=1, file_grace_s=0.4, min_bytes_per_s=least, block_deadline_s=5.0)
    with Exchange(near, ["http://far"], config, transport=httpx.MockTransport(late)) as exchange:
        node = NodeBlocks(near, exchange)
        if least < 1:
            assert node.read_file(cid, 100) == data, "the bytes that come give it time"
            return
        with pytest.raises(BlockNotFound, match="slower than files"):
            node.read_file(cid, 100)
        for _ in range(20):
            try:
                assert node.read_file(cid, 100) == data
                return
            except BlockNotFound:
                continue
    raise AssertionError("it never came to an end")


class Late(httpx.AsyncBaseTransport):
    """Each block comes so many seconds late, and no stream of several; some never do."""

    def __init__(self, wire: Counting, seconds: float) -> None:
        self.wire, self.seconds, self.lost = wire, seconds, set[str]()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.params["format"] == "car":
            return httpx.Response(404)
        lost = request.url.path.removeprefix("/ipfs/") in self.lost
        await asyncio.sleep(30.0 if lost else self.seconds)
        return await self.wire.handle_async_request(request)


@pytest.fixture
def late(tmp_path: Path, wire: Counting) -> Iterator[NodeBlocks]:
    """A node whose peer gives a block every 50 ms, each file of 20 within its limit."""
    store = BlockStore(tmp_path / "late")
    config = ExchangeConfig(parallel=1, file_grace_s=60.0, block_deadline_s=60.0, grace_s=60.0)
    with Exchange(store, ["http://far"], config, transport=Late(wire, 0.05)) as exchange:
        yield NodeBlocks(store, exchange)


@pytest.mark.long
def test_attack_T38_all_files_of_a_look_have_one_time_together(late: NodeBlocks, far: BlockStore) -> None:
    """Each file alone is within its limit. All together are deferred, and their received blocks are there
    at the next request."""
    files = {file_in(far, bytes(range(at, at + 40))): bytes(range(at, at + 40)) for at in (0, 40, 80)}
    hold = late.within(1.2)
    with pytest.raises(Deferred, match="blocks received so far are kept"):
        for cid in files:
            with hold:
                late.read_file(cid, 100)
    with hold, pytest.raises(Deferred):
        late.read_file(list(files)[-1], 100)
    tries = 0
    for cid, data in files.items():
        while True:
            tries += 1
            try:
                with late.within(0.5):
                    assert late.read_file(cid, 100) == data
                break
            except Deferred:
                assert tries < 30
    assert late.read_file(next(iter(files)), 100) == files[next(iter(files))], "without a hold as ever"


@pytest.mark.parametrize("how", ["get", "read_file", "holes"])
def test_attack_T38_what_never_comes_is_missing_however_short_the_looks(
    far: BlockStore, wire: Counting, tmp_path: Path, how: str
) -> None:
    """A peer that answers nothing for one block: nobody waits for it for ever in pieces of time, as then no
    state would be recomputed and none demanded."""
    data, near, slow = bytes(range(40)), BlockStore(tmp_path / "near"), Late(wire, 0.0)
    cid, lost = file_in(far, data), str(Cid.of(bytes(range(8, 12))))
    slow.lost = {lost}
    config = ExchangeConfig(parallel=1, file_grace_s=0.6, block_deadline_s=60.0, grace_s=60.0)
    with Exchange(near, ["http://far"], config, transport=slow) as exchange:
        node = NodeBlocks(near, exchange)
        ask = {
            "get": lambda: node.get(lost),
            "read_file": lambda: node.read_file(cid, 40),
            "holes": lambda: node.holes(cid, 40, Random(1), 40),
        }[how]
        for _ in range(8):
            try:
                with node.within(0.25):
                    assert ask() == [range(8, 12)] and how == "holes"
                return
            except Deferred:
                continue
            except BlockNotFound:
                assert how != "holes"
                return
    raise AssertionError("it was put off for ever")


@pytest.mark.long
def test_a_file_that_was_put_off_is_not_streamed_anew(
    far: BlockStore, wire: Counting, tmp_path: Path
) -> None:
    """A stream skips blocks that are here already; otherwise one that is cut each time would never finish."""
    data, near = bytes(range(100)), BlockStore(tmp_path / "near")
    cid, stuck = file_in(far, data), [True]

    async def answer(request: httpx.Request) -> httpx.Response:
        if request.url.params["format"] == "car" and stuck[0]:
            wire.asked.append(("car", cid))
            await asyncio.sleep(30.0)
        return await wire.handle_async_request(request)

    config = ExchangeConfig(car_stall_s=60.0)
    with Exchange(near, ["http://far"], config, transport=httpx.MockTransport(answer)) as exchange:
        node = NodeBlocks(near, exchange)
        with node.within(3.0), pytest.raises(Deferred):
            node.read_file(cid, 100)
        stuck[0] = False
        with node.within(5.0):
            assert node.read_file(cid, 100) == data
    assert [wanted for wanted, _ in wire.asked].count("car") == 1


def test_a_nodes_blocks_can_be_hurried(node: NodeBlocks) -> None:
    assert isinstance(node, TimeLimited)


class Drip(httpx.AsyncByteStream):
    """Bytes just fast enough, of a block that never ends."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            yield bytes(400)
            await asyncio.sleep(0.002)


def test_attack_T42_files_that_never_come_are_all_found_missing(tmp_path: Path) -> None:
    """Five such files, of which no two fit into one poll: the first is not tried again before the last was
    tried."""
    asked: list[str] = []

    async def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        return httpx.Response(200, stream=Drip())

    cids = [str(Cid.of(bytes([n]) * 300)) for n in range(5)]
    config = ExchangeConfig(
        file_grace_s=0.3,
        file_again_s=6.0,
        block_deadline_s=0.2,
        grace_s=0.02,
        stranger_s=0.2,
        car_stall_s=0.02,
    )
    clock = [0.0]
    peers = [PeerInfo("http://mallory", stake=100, publishes=True)]
    transport = httpx.MockTransport(answer)
    near = BlockStore(tmp_path / "near")
    with Exchange(near, peers, config, clock=lambda: clock[0], transport=transport) as exchange:
        node = NodeBlocks(near, exchange)

        def look(seconds: float) -> list[str]:
            missing = []
            with node.within(seconds):
                for cid in cids:
                    try:
                        node.read_file(cid, 300)
                    except BlockNotFound:
                        missing.append(cid)
            return missing

        for _ in range(20):
            try:
                missing = look(0.2)
                break
            except Deferred:
                missing = []
        assert missing == cids
        before = len(asked)
        assert look(0.2) == cids and len(asked) == before, "nobody is asked meanwhile"
        near.put(bytes([3]) * 300)
        assert look(0.2) == [cid for cid in cids if cid != cids[3]], "what is here is read"
        clock[0] += 7.0
        with pytest.raises(Deferred):
            look(0.2)
        assert len(asked) > before, "they may have come by now"


def test_a_file_is_held_once_all_of_its_blocks_are_here(node: NodeBlocks, far: BlockStore) -> None:
    cid = file_in(far, bytes(range(40)))
    assert not node.holds(cid)
    node.get(cid)
    assert node.has(cid) and not node.holds(cid), "its root alone"
    node.read_file(cid, 40)
    assert node.holds(cid)
    leaf = next(below for below, data in node.store.walk(Cid.parse(cid)) if data is None)
    path_of(node.store, str(leaf)).unlink()
    assert not node.holds(cid)
