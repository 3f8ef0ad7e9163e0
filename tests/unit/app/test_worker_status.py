"""A node's status of its workers: as text, on its page, for Prometheus; and a stranger's, which may be
anything."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from assay.app.status_page import status_page
from assay.app.web import node_app
from assay.app.worker_status import in_short, in_words, listed, shown
from assay.blocks.blockstore import BlockStore
from assay.compute.pool import WorkerStatus
from assay.node.report import Status

BUSY = WorkerStatus(
    device="cuda:0",
    order="Train",
    done=3,
    total=16,
    since_s=time.monotonic(),
    seconds_a_step=0.2134,
    resident_bytes=812_300_000,
    device_bytes=3_100_000_000,
    orders=4,
)
LOST = WorkerStatus(device="cpu", losses=1, trouble="its process ended by SIGKILL")
SLOW = WorkerStatus("cuda:1", slower=("products take longer, by cuBLAS", "a form was thrown away"))


def test_a_worker_is_told_in_words() -> None:
    busy, lost = shown([replace(BUSY, since_s=time.monotonic()), LOST])
    assert in_short(busy) == "cuda:0: Train 3/16" and in_short(lost) == "cpu: idle"
    assert in_words(busy) == "Train 3/16, 0.213 s a step, 812.3 MB, 3.1 GB of the device"
    assert in_words(lost) == "idle, 1 lost: its process ended by SIGKILL"
    assert 0 <= busy["order_seconds"] < 60 and lost["order_seconds"] == 0


def test_what_is_slower_than_it_could_be_is_told() -> None:
    (slow,) = shown([SLOW])
    assert slow["slower"] == list(SLOW.slower)
    assert in_words(slow) == "idle, slower: products take longer, by cuBLAS, slower: a form was thrown away"


@pytest.mark.parametrize("value", ["abc", 7, None, {"a": 1}])
def test_a_stranger_s_reasons_are_left_out_where_they_are_none(value: Any) -> None:
    assert in_words({"order": "Train", "slower": value}) == "Train"


@pytest.mark.parametrize("workers", [None, 7, "abc", {}, [1, "x", None], [[]]])
def test_what_is_no_list_of_workers_is_none(workers: Any) -> None:
    assert listed({"workers": workers}) == []


@pytest.mark.parametrize("value", ["1e9", -5, float("nan"), float("inf"), True, None, [], 10**400])
def test_a_strangers_numbers_are_left_out_where_they_are_none(value: Any) -> None:
    names = ("total", "seconds_a_step", "resident_bytes", "device_bytes", "losses")
    assert in_words({"order": "Train", **dict.fromkeys(names, value)}) == "Train"
    assert in_short({"total": value}) == "?: idle"


def test_the_page_and_the_metrics_have_each_worker(tmp_path: Path) -> None:
    status = Status("solver", workers=shown([BUSY, LOST]))
    client = TestClient(node_app(BlockStore(tmp_path), lambda: status, "solver"))
    page = client.get("/").text
    assert "cuda:0: Train 3/16, 0.213 s a step" in page and "cpu: idle, 1 lost" in page
    assert [worker["device"] for worker in client.get("/status").json()["workers"]] == ["cuda:0", "cpu"]
    metrics = client.get("/metrics").text
    of = dict(re.findall(r'^(assay_worker_\w+\{device="cuda:0",.*\}) (.*)$', metrics, re.MULTILINE))
    named = {
        name: float(of[f'assay_worker_{name}{{device="cuda:0",role="solver",worker="0"}}'])
        for name in (
            "busy",
            "done",
            "total",
            "seconds_a_step",
            "resident_bytes",
            "device_bytes",
            "orders",
            "losses",
        )
    }
    assert named["busy"] == 1 and (named["done"], named["total"]) == (3, 16)
    assert named["resident_bytes"] == 812_300_000 and named["device_bytes"] == 3_100_000_000
    assert 'assay_worker_busy{device="cpu",role="solver",worker="1"} 0.0' in metrics
    assert 'assay_worker_losses{device="cpu",role="solver",worker="1"} 1.0' in metrics


def test_the_page_escapes_what_a_worker_said() -> None:
    workers = [{"device": "cpu", "order": "", "losses": 1, "trouble": "<script>"}]
    page = status_page("solver", {"workers": workers})
    assert "<script>" not in page and "&lt;script&gt;" in page
