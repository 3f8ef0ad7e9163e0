"""Bytes are counted where they pass: in, out, for training and for proof."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from starlette.testclient import TestClient

from assay.app.node_status import totals_by_node, traffic_words
from assay.app.web import node_app
from assay.blocks.blockstore import BlockStore
from assay.blocks.exchange import Exchange
from assay.blocks.traffic import FILE, PROOF, PURPOSE_HEADER, CountingTransport, Traffic, read_totals
from assay.protocol.cid import RAW, Cid


def served(folder: Path, data: bytes) -> tuple[Traffic, httpx.AsyncBaseTransport]:
    """A node that holds one block, and the way to it."""
    store, traffic = BlockStore(folder / "store"), Traffic(folder / FILE)
    store.put(data)
    return traffic, httpx.ASGITransport(app=node_app(store, dict, "solver", traffic))


@pytest.mark.parametrize("purpose", ["training", "proof"])
def test_a_block_counts_once_at_each_end(tmp_path: Path, purpose: str) -> None:
    data = bytes(range(256)) * 40
    theirs, way = served(tmp_path / "a", data)
    mine = Traffic(tmp_path / "b" / FILE)
    mine.purpose = purpose
    store = BlockStore(tmp_path / "b" / "store")
    with Exchange(store, ["http://a"], transport=CountingTransport(way, mine)) as exchange:
        assert exchange.fetch_block(Cid.of(data, RAW)) == data
    zero = dict.fromkeys(mine.totals(), 0)
    assert mine.totals() == {**zero, f"in_{purpose}": len(data)}
    assert theirs.totals() == {**zero, f"out_{purpose}": len(data)}


def test_a_status_page_is_not_counted_and_a_strange_purpose_is_training(tmp_path: Path) -> None:
    data = b"x" * 100
    store, traffic = BlockStore(tmp_path / "store"), Traffic(tmp_path / FILE)
    cid = store.put(data)
    client = TestClient(node_app(store, dict, "solver", traffic))
    assert client.get("/status").status_code == 200 and not any(traffic.totals().values())
    client.get(f"/ipfs/{cid}?format=raw", headers={PURPOSE_HEADER: "none of yours"})
    assert traffic.totals()["out_training"] == 100 and traffic.totals()["out_proof"] == 0


def test_totals_outlast_a_restart_and_a_damaged_file_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "nodes" / "solver-1" / FILE
    traffic = Traffic(path)
    traffic.count("in", PROOF, 7)
    traffic.save()
    again = Traffic(path)
    again.count("in", PROOF, 5)
    again.save()
    assert totals_by_node(tmp_path)["solver-1"]["in_proof"] == 12
    assert "in for proof 0.0 MB" in traffic_words(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"12", b"13"))
    assert read_totals(path)["in_proof"] == 0
