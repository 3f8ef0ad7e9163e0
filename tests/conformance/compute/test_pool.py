"""What every pool does with orders, whatever its workers are."""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path

import pytest

from assay.compute import pool as pools
from assay.compute.orders import Cancelled, DeviceLost, OutOfMemory, Priority, WorkerConfig, WorkerLost
from assay.compute.pool import Pool
from assay.compute.process import ProcessWorker
from assay.compute.ray import RayPool
from assay.compute.replay import Replayed, order_of, replayed
from assay.dispute.replay import Replay
from assay.protocol.errors import Ask, Stop
from tests.fakes import orders
from tests.fakes.orders import Echo, Steps
from tests.fakes.programs import training_sample

WAIT_S = 60.0
Make = Callable[[int], Pool]


@pytest.fixture(params=["local", pytest.param("ray", marks=pytest.mark.slow)])
def make(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    monkeypatch.setattr(pools, "FIRST_PAUSE_S", 0.01)
    made: list[Pool] = []

    def make(width: int) -> Pool:
        if request.param == "ray":
            pytest.importorskip("ray", reason="Ray is not installed: pip install 'assay-market[ray]'")
            made.append(RayPool("local", width))
        else:
            made.append(Pool([ProcessWorker(WorkerConfig(threads=1)) for _ in range(width)]))
        return made[-1]

    yield make
    for pool in made:
        pool.close()


def until(path: Path) -> None:
    deadline = time.monotonic() + WAIT_S
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_order_comes_to_its_result_and_what_it_raises_is_raised(make: Make) -> None:
    pool = make(1)
    assert pool.submit(Echo("a")).result(WAIT_S) == "a"
    with pytest.raises(Stop, match="no such job"):
        pool.submit(orders.Raise(Stop("no such job", hint="-", code="x"))).result(WAIT_S)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        pool.submit(orders.Raise(ZeroDivisionError("by 0"))).result(WAIT_S)
    with pytest.raises(RuntimeError, match="cannot be sent"):
        pool.submit(orders.Unsendable()).result(WAIT_S)
    assert pool.submit(Echo("b")).result(WAIT_S) == "b"
    assert pool.status()[0].losses == 0


def test_a_worker_that_is_killed_costs_a_try(make: Make, tmp_path: Path) -> None:
    pool = make(1)
    assert pool.submit(orders.Die(tmp_path / "twice", 2)).result(WAIT_S) == "after 2"
    with pytest.raises(WorkerLost, match="3 workers that ran Die were lost"):
        pool.submit(orders.Die(tmp_path / "ever", 99)).result(WAIT_S)
    assert len((tmp_path / "ever").read_bytes()) == pools.TRIES
    assert pool.submit(Echo("a")).result(WAIT_S) == "a"
    assert pool.status()[0].losses == 2 + pools.TRIES and pool.status()[0].trouble == ""


def test_memory_that_runs_out_is_no_loss_and_empties_the_cache(make: Make) -> None:
    pool = make(1)
    with pytest.raises(OutOfMemory, match="cpu"):
        pool.submit(orders.Allocate(1 << 50)).result(WAIT_S)
    assert pool.submit(orders.Allocate(0)).result(WAIT_S) == 0
    assert pool.status()[0].losses == 0


def test_a_device_that_vanishes_costs_a_try_and_a_process(make: Make) -> None:
    pool = make(1)
    before = pool.submit(orders.Pid()).result(WAIT_S)
    with pytest.raises(WorkerLost, match="device is lost"):
        pool.submit(orders.Raise(RuntimeError("CUDA error: unspecified launch failure"))).result(WAIT_S)
    with pytest.raises(WorkerLost, match="device is lost"):
        pool.submit(orders.Raise(DeviceLost("gone", hint="-"))).result(WAIT_S)
    assert pool.submit(orders.Pid()).result(WAIT_S) != before


def test_a_waiting_order_that_is_cancelled_never_runs(make: Make, tmp_path: Path) -> None:
    pool = make(1)
    first = pool.submit(Steps(20, 0.05, tmp_path / "begun"))
    waits = pool.submit(Echo("never", tmp_path / "ran"))
    until(tmp_path / "begun")
    assert waits.cancel() and pool.waiting() == 0
    with pytest.raises(CancelledError):
        waits.result(WAIT_S)
    assert first.result(WAIT_S) == 20
    assert pool.submit(Echo("after")).result(WAIT_S) == "after" and not (tmp_path / "ran").exists()


def test_a_running_order_that_is_cancelled_ends_between_two_steps(make: Make, tmp_path: Path) -> None:
    pool = make(1)
    pid = pool.submit(orders.Pid()).result(WAIT_S)
    long = pool.submit(Steps(10_000, 0.01, tmp_path / "begun"))
    until(tmp_path / "begun")
    begun_s = time.monotonic()
    assert long.cancel()
    with pytest.raises(Cancelled):
        long.result(WAIT_S)
    assert time.monotonic() - begun_s < pools.CANCEL_S
    assert pool.submit(orders.Pid()).result(WAIT_S) == pid, "its worker goes on"


def test_an_order_that_does_not_listen_loses_its_worker(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.compute.process.CANCEL_S", 0.2)
    pool = make(1)
    stuck = pool.submit(orders.Stuck(tmp_path / "begun"))
    until(tmp_path / "begun")
    assert stuck.cancel()
    with pytest.raises(Cancelled):
        stuck.result(WAIT_S)
    assert not stuck.cancel(), "it is over"
    assert pool.submit(Echo("a")).result(WAIT_S) == "a"


def test_the_highest_priority_goes_first_and_then_the_oldest(make: Make, tmp_path: Path) -> None:
    pool, note = make(1), tmp_path / "note"
    first = pool.submit(Steps(20, 0.05, tmp_path / "begun"))
    until(tmp_path / "begun")
    names = dict(zip(("ahead", "train", "vote", "game"), reversed(Priority), strict=True))
    tasks = [pool.submit(Echo(name, note), priority) for name, priority in names.items()]
    tasks.append(pool.submit(Echo("train again", note)))
    first.result(WAIT_S)
    assert [task.result(WAIT_S) for task in tasks] == [*names, "train again"]
    assert note.read_text().split("\n")[:-1] == ["game", "vote", "train", "train again", "ahead"]


def test_orders_of_one_affinity_go_to_one_worker(make: Make) -> None:
    pool = make(2)
    tasks = [pool.submit(orders.Pid(mark)) for _ in range(8) for mark in ("a", "b")]
    pids = [task.result(WAIT_S) for task in tasks]
    assert len(set(pids)) == 2
    changes = sum(x != y for x, y in zip(pids[2::2], pids[4::2], strict=False))
    assert changes <= 2, "mostly the same worker"


def test_steps_are_told(make: Make) -> None:
    told: list[tuple[int, int]] = []
    pool = make(1)
    assert pool.submit(Steps(3, 0.3), progress=lambda *steps: told.append(steps)).result(WAIT_S) == 3
    assert told[-1] == (3, 3) and len(told) >= 3
    assert pool.status()[0].seconds_a_step > 0.2

    def fails(done: int, total: int) -> None:
        raise ValueError

    assert pool.submit(Steps(3, 0.0), progress=fails).result(WAIT_S) == 3


def test_an_order_of_many_bytes_arrives(make: Make) -> None:
    assert make(1).submit(orders.Large(bytes(64 << 20))).result(WAIT_S) == 64 << 20


def test_a_worker_gets_no_variable_of_this_program(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_PASSWORD", "secret")
    monkeypatch.setenv("ETH_RPC_URL", "http://key@node")
    monkeypatch.setenv("OTHER", "1")
    names = make(1).submit(orders.Environment()).result(WAIT_S)
    assert "OTHER" in names and not {"ASSAY_PASSWORD", "ETH_RPC_URL"} & set(names)


@pytest.mark.long
def test_a_replay_has_the_bits_of_a_replay_here(make: Make) -> None:
    sample, key, seed = training_sample(), b"k" * 32, b"replays".ljust(32, b"\0")

    def replay(first: int) -> Replay:
        return Replay(sample.program, sample.state, sample.dataset, seed, 1, first)

    found = list(replayed(make(2), [order_of(replay(first), 3, key) for first in range(5)]))
    traces = [replay(first).trace(2, key).root for first in range(5)]
    assert found == [Replayed(replay(first).root(3), trace) for first, trace in enumerate(traces)]


def test_a_pool_that_is_closed_ends_everything(make: Make, tmp_path: Path) -> None:
    pool = make(1)
    pid = pool.submit(orders.Pid()).result(WAIT_S)
    runs, waits = pool.submit(orders.Stuck(tmp_path / "begun")), pool.submit(Echo("a"))
    until(tmp_path / "begun")
    pool.close()
    with pytest.raises(Cancelled):
        runs.result(WAIT_S)
    with pytest.raises(CancelledError):
        waits.result(WAIT_S)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit(Echo("b"))


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="Ray is installed")
def test_without_ray_its_address_is_refused_with_what_to_install() -> None:
    with pytest.raises(Ask, match="Ray is not installed") as refused:
        RayPool("local")
    assert "pip install 'assay-market[ray]'" in refused.value.hint
