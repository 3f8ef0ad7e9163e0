"""A block store with a Kubo daemon: published blocks are in both, and missing ones are asked of the
daemon."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.blocks.blockstore import BlockStore
from assay.blocks.exchange import Exchange
from assay.blocks.kubo import KuboClient, KuboNodeBlocks
from assay.protocol.errors import BlockNotFound, PeerUnreachable
from tests.conformance.blocks.fake_kubo import FakeKubo

FILE = b"".join(i.to_bytes(4, "big") for i in range(1 << 18))
"""1 MiB: four leaves and a node."""


@pytest.fixture
def daemon() -> Iterator[FakeKubo]:
    with FakeKubo() as daemon:
        yield daemon


def beside(folder: Path, url: str) -> KuboNodeBlocks:
    store = BlockStore(folder)
    return KuboNodeBlocks(store, Exchange(store), KuboClient(url, timeout_s=5.0))


def test_what_is_added_is_in_both_and_pinned(tmp_path: Path, daemon: FakeKubo) -> None:
    blocks = beside(tmp_path, daemon.url)
    root, single = blocks.add_file(FILE), blocks.put(b"one block")
    assert blocks.store.read_file(root, len(FILE)) == FILE
    assert daemon.blocks[single] == b"one block" and daemon.pins == {root}
    assert set(daemon.blocks) == {str(cid) for cid in blocks.store.cids()}
    elsewhere = beside(tmp_path / "elsewhere", daemon.url)
    assert elsewhere.read_file(root, len(FILE)) == FILE
    elsewhere.exchange.close()
    blocks.exchange.close()


def test_a_file_that_the_daemon_has_is_not_sent_again(
    tmp_path: Path, daemon: FakeKubo, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = beside(tmp_path, daemon.url)
    blocks.add_file(FILE)
    sent: list[bytes] = []
    real = blocks.kubo.put
    monkeypatch.setattr(blocks.kubo, "put", lambda data, codec: sent.append(data) or real(data, codec))
    blocks.add_file(FILE)
    assert sent == []
    blocks.add_file(FILE + b"more")
    assert sent, "the fault would be seen"
    blocks.exchange.close()


def test_a_root_that_was_cut_off_is_sent_whole(tmp_path: Path, daemon: FakeKubo) -> None:
    """The root goes last: a daemon that has it has everything below it."""
    blocks = beside(tmp_path, daemon.url)
    order: list[str] = []
    real = daemon.call

    def call(method: str, query: dict[str, str], body: bytes) -> bytes:
        if method == "block/put" and len(order) == 3:
            raise ConnectionError
        answer = real(method, query, body)
        order.extend([method] if method == "block/put" else [])
        return answer

    daemon.call = call
    with pytest.raises(PeerUnreachable):
        blocks.add_file(FILE)
    root = blocks.store.add_file(FILE)
    assert len(order) == 3 and root not in daemon.blocks
    daemon.call = real
    assert blocks.add_file(FILE) == root
    assert set(daemon.blocks) == {str(cid) for cid in blocks.store.cids()}
    blocks.exchange.close()


def test_what_no_peer_has_comes_from_the_daemon_and_is_kept(tmp_path: Path, daemon: FakeKubo) -> None:
    first = beside(tmp_path / "a", daemon.url)
    root = first.add_file(FILE)
    second = beside(tmp_path / "b", daemon.url)
    assert second.read_file(root, len(FILE)) == FILE
    third = beside(tmp_path / "c", daemon.url)
    third.pin(root)
    daemon.blocks.clear()
    assert second.read_file(root, len(FILE)) == FILE and third.read_file(root, len(FILE)) == FILE
    with pytest.raises(BlockNotFound):
        second.get("bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy")
    for blocks in (first, second, third):
        blocks.exchange.close()


def test_without_the_daemon_nothing_counts_as_published(tmp_path: Path) -> None:
    blocks = beside(tmp_path, "http://127.0.0.1:9")
    with pytest.raises(PeerUnreachable):
        blocks.add_file(b"a file")
    blocks.exchange.close()
