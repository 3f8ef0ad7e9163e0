"""One suite for the `Blocks` port: the embedded store, a node with an HTTP peer, and Kubo's RPC.

Where the adapter has a peer, blocks are published at the peer and read through the adapter.
"""

from __future__ import annotations

import io
import os
import threading
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.blocks import unixfs
from assay.blocks.blockstore import MAX_BLOCK_BYTES, BlockStore
from assay.blocks.car import CarParser
from assay.blocks.exchange import Exchange, ExchangeConfig
from assay.blocks.node import NodeBlocks
from assay.protocol.cid import DAG_PB, RAW, Cid
from assay.protocol.errors import BadCid, BlockNotFound, BlockTooLarge, CorruptBlock, Stop
from tests.conformance.blocks.rigs import Rig

ABSENT = str(Cid.of(b"never stored anywhere"))
SHARED_FIXTURE = settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@SHARED_FIXTURE
@given(data=st.binary(max_size=2000), codec=st.sampled_from([RAW, DAG_PB]))
def test_a_block_comes_back(rig: Rig, data: bytes, codec: int) -> None:
    cid = rig.publisher.put(data, codec)
    assert cid == str(Cid.of(data, codec))
    assert rig.reader.get(cid) == data
    assert rig.reader.has(cid)


def test_own_blocks_need_no_peer(rig: Rig) -> None:
    cid = rig.reader.put(b"own")
    assert rig.reader.has(cid) and rig.reader.get(cid) == b"own"


def test_has_is_local(rig: Rig) -> None:
    cid = rig.publisher.put(b"published")
    assert rig.reader.has(cid) is not rig.remote
    assert not rig.reader.has(ABSENT)


def test_absent_block(rig: Rig) -> None:
    with pytest.raises(BlockNotFound, match=ABSENT) as caught:
        rig.reader.get(ABSENT)
    assert caught.value.hint


def test_absent_file_and_pin(rig: Rig) -> None:
    with pytest.raises(BlockNotFound):
        rig.reader.read_file(ABSENT, 10)
    with pytest.raises(BlockNotFound):
        rig.reader.pin(ABSENT)


@pytest.mark.parametrize("text", ["", "x", "QmbWqxBEKC3P8tqsKc98xmWNzrzDtRLMiMPL8wBuTGsMnR", ABSENT.upper()])
def test_bad_cid(rig: Rig, text: str) -> None:
    for call in (rig.reader.get, rig.reader.has, rig.reader.pin, lambda cid: rig.reader.read_file(cid, 1)):
        with pytest.raises(BadCid):
            call(text)


def test_block_sizes(rig: Rig) -> None:
    largest = os.urandom(MAX_BLOCK_BYTES)
    assert rig.reader.get(rig.publisher.put(largest)) == largest
    with pytest.raises(BlockTooLarge):
        rig.reader.put(largest + b"x")


@pytest.mark.parametrize("size", [0, 1, 262143, 262144, 262145, 524288, 3_000_001])
def test_files_have_kubos_cids_and_come_back(rig: Rig, size: int) -> None:
    data = (os.urandom(997) * (size // 997 + 1))[:size]
    cid = rig.publisher.add_file(io.BytesIO(data))
    assert cid == str(unixfs.add_file(data, lambda _data, _cid: None))
    assert rig.reader.read_file(cid, size) == data
    assert rig.reader.read_file(cid, size) == data


def test_file_limits(rig: Rig) -> None:
    for size in (1000, 600_000):
        cid = rig.publisher.add_file(bytes(size))
        with pytest.raises(BlockTooLarge):
            rig.reader.read_file(cid, size - 1)
        assert rig.reader.read_file(cid, size) == bytes(size)


def test_hostile_file_is_refused(rig: Rig) -> None:
    cid = rig.publisher.put(b"\x12\x00", DAG_PB)
    with pytest.raises(Stop):
        rig.reader.read_file(cid, 1000)


def test_pin_makes_a_file_local(rig: Rig) -> None:
    data = os.urandom(700_000)
    cid = rig.publisher.add_file(data)
    rig.reader.pin(cid)
    rig.reader.pin(cid)
    assert rig.reader.has(cid) and rig.reader.has(str(Cid.of(data[:262144])))


# Over real sockets ----------------------------------------------------------------


def test_gateway_serves_a_car_that_verifies(served: tuple[BlockStore, str]) -> None:
    store, url = served
    data = os.urandom(2_000_000)
    cid = store.add_file(data)
    with httpx.Client(trust_env=False) as client:
        parser = CarParser()
        blocks = dict(parser.feed(client.get(f"{url}/ipfs/{cid}?format=car").content))
        parser.finish()
        head = client.head(f"{url}/ipfs/{cid}?format=raw")
        assert head.status_code == 200 and head.content == b""
    assert unixfs.read_file(Cid.parse(cid), blocks.__getitem__, unixfs.Limits(len(data))) == data


def test_car_cut_by_a_corrupt_leaf_is_noticed_by_the_client(
    served: tuple[BlockStore, str], tmp_path: Path
) -> None:
    store, url = served
    data = os.urandom(12 * 262144)
    cid = store.add_file(data)
    lost = str(Cid.of(data[-262144:]))
    next((store.root / "blocks").glob(f"*/{lost}")).write_bytes(data[-262144:-1] + bytes([data[-1] ^ 1]))
    near = BlockStore(tmp_path / "near")
    config = ExchangeConfig(backoff_s=0.0)
    with Exchange(near, [url], config) as exchange:
        with pytest.raises(BlockNotFound, match=lost):
            NodeBlocks(near, exchange).read_file(cid, len(data))
        assert near.usage().blocks == 12, "eleven leaves and the root arrived before the cut"
        store.put(data[-262144:])
        assert NodeBlocks(near, exchange).read_file(cid, len(data)) == data


def test_dead_peer_is_passed_over(served: tuple[BlockStore, str], tmp_path: Path) -> None:
    store, url = served
    near = BlockStore(tmp_path / "near")
    with Exchange(near, ["http://127.0.0.1:9", url], ExchangeConfig(backoff_s=0.0)) as exchange:
        for data in (b"block", b"another"):
            assert NodeBlocks(near, exchange).get(store.put(data)) == data
        with pytest.raises(BlockNotFound, match=r"127\.0\.0\.1:9 \(peer-unreachable\)"):
            exchange.fetch_block(Cid.parse(ABSENT))


def test_readers_in_threads_share_one_node(served: tuple[BlockStore, str], tmp_path: Path) -> None:
    store, url = served
    data = os.urandom(1_500_000)
    cid = store.add_file(data)
    near = BlockStore(tmp_path / "near")
    results: list[bool] = []
    with Exchange(near, [url]) as exchange:
        node = NodeBlocks(near, exchange)
        threads = [
            threading.Thread(target=lambda: results.append(node.read_file(cid, len(data)) == data))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == [True] * 4


def test_blocks_that_rot_are_noticed(rig: Rig) -> None:
    """Every adapter refuses a block that its store changed: here by one bit, under the old name."""
    cid = rig.publisher.put(b"block")
    rig.damage(cid, b"blocK")
    with pytest.raises((CorruptBlock, BlockNotFound)):
        rig.reader.get(cid)
