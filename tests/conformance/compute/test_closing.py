"""A pool that is closed cancels what runs, and ends what runs on."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from assay.compute import pool as pools
from assay.compute.orders import Cancelled, WorkerConfig
from assay.compute.pool import Pool
from assay.compute.process import ProcessWorker
from tests.fakes import orders

WAIT_S = 60.0


def until(path: Path) -> None:
    deadline = time.monotonic() + WAIT_S
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_order_that_runs_ends_between_two_steps_and_has_time_for_what_it_leaves(tmp_path: Path) -> None:
    pool = Pool([ProcessWorker(WorkerConfig(threads=1)) for _ in range(2)])
    runs = pool.submit(orders.Leaves(tmp_path / "left", tmp_path / "begun"))
    until(tmp_path / "begun")
    begun_s = time.monotonic()
    pool.close()
    assert time.monotonic() - begun_s < pools.CANCEL_S, "an idle worker is not waited for"
    with pytest.raises(Cancelled):
        runs.result(WAIT_S)
    assert (tmp_path / "left").exists()


def test_an_order_that_runs_on_is_ended_in_the_midst_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "CANCEL_S", 0.2)
    pool = Pool([ProcessWorker(WorkerConfig(threads=1))])
    runs = pool.submit(orders.Stuck(tmp_path / "begun"))
    until(tmp_path / "begun")
    begun_s = time.monotonic()
    pool.close()
    assert 0.2 <= time.monotonic() - begun_s < 5.0
    with pytest.raises(Cancelled):
        runs.result(WAIT_S)
