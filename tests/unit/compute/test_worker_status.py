"""A pool's status of its workers: device, order, memory, speed, and the fate of each process."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from assay.compute import pool as pools
from assay.compute import worker as workers
from assay.compute.orders import Order, WorkerConfig, WorkerContext, WorkerLost
from assay.compute.pool import Loss, Pool, Usage, WorkerStatus
from assay.compute.process import ProcessWorker, Stepped
from assay.compute.worker import Line, _Told, device_bytes
from tests.fakes import orders
from tests.fakes.orders import Steps

WAIT_S = 60.0


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    """Workers on two devices that need not be there, as nothing of PyTorch is used."""
    monkeypatch.setattr(pools, "FIRST_PAUSE_S", 0.01)
    with Pool([ProcessWorker(WorkerConfig(device, threads=1)) for device in ("cuda:0", "cuda:1")]) as pool:
        yield pool


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def of(pool: Pool, device: str) -> WorkerStatus:
    return next(status for status in pool.status() if status.device == device)


def test_each_device_has_a_worker_that_says_what_it_runs(two: Pool, tmp_path: Path) -> None:
    assert [(s.device, s.order, s.resident_bytes) for s in two.status()] == [
        ("cuda:0", "", 0),
        ("cuda:1", "", 0),
    ]
    begun = [tmp_path / "a", tmp_path / "b"]
    tasks = [two.submit(Steps(4, 0.3, path)) for path in begun]
    until(lambda: all(path.exists() for path in begun))
    assert two.is_busy()
    until(lambda: all(status.total == 4 for status in two.status()))
    assert [status.order for status in two.status()] == ["Steps", "Steps"], "both run at the same time"
    assert [task.result(WAIT_S) for task in tasks] == [4, 4]
    until(lambda: not two.is_busy())
    for status in two.status():
        assert (status.order, status.orders, status.losses) == ("", 1, 0)
        assert 0.3 <= status.seconds_a_step < 10
        assert 5_000_000 < status.resident_bytes < 1 << 32
        assert status.device_bytes == 0


def test_an_order_that_is_for_a_device_runs_there(two: Pool) -> None:
    pids = {on: two.submit(orders.On(on)).result(WAIT_S) for on in ("cuda:1", "cuda:0", "cuda:1")}
    assert pids["cuda:0"] != pids["cuda:1"]
    assert of(two, "cuda:1").orders == 2 and of(two, "cuda:0").orders == 1


def test_the_pace_is_of_the_last_run_of_steps() -> None:
    """A task tells its segments one after another; what lies between them is no step."""
    with Pool([ProcessWorker(WorkerConfig(threads=1))]) as pool:
        pool.submit(Segments()).result(WAIT_S)
        assert 0.2 <= pool.status()[0].seconds_a_step < 0.4


class Segments(Order[None]):
    """Two runs of steps, with a pause between."""

    def run(self, context: WorkerContext) -> None:
        for seconds in (0.0, 0.2):
            for done in range(4):
                context.progress(done, 4)
                time.sleep(seconds)
            time.sleep(0.5)


def told(context: WorkerContext) -> tuple[_Told, list[Stepped]]:
    """A worker's progress, and what of it the node gets."""
    sent: list[Stepped] = []
    line = SimpleNamespace(send=sent.append, cancelled=threading.Event())
    return _Told(cast(Line, line), context), sent


def test_a_count_that_is_told_again_is_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A crew's member tells its step again while it waits."""
    now = {"s": 7.0}
    monkeypatch.setattr(workers, "time", SimpleNamespace(monotonic=lambda: now["s"]))
    progress, _ = told(WorkerContext(WorkerConfig()))
    for done, after_s in ((0, 1.0), (1, 1.0), (1, 2.0), (1, 1.0), (2, 0.0)):
        progress(done, 4)
        now["s"] += after_s
    assert progress.usage().seconds_a_step == 2.5, "1 s, then 4 s"


def test_a_wait_that_is_over_is_told_at_once() -> None:
    context = WorkerContext(WorkerConfig())
    progress, sent = told(context)
    for wait in ({}, {}, {"seconds": 41.0}, {"seconds": 41.1}, {}, {}):
        context.crew = {"wait": wait}
        progress(1, 4)
    assert [step.usage.crew["wait"] for step in sent] == [{}, {"seconds": 41.0}, {}]


def test_a_lost_worker_is_told_of_with_its_device_and_what_it_ran(two: Pool, tmp_path: Path) -> None:
    losses: list[Loss] = []
    two.on_loss = losses.append
    with pytest.raises(WorkerLost):
        two.submit(orders.Die(tmp_path / "ever", 99)).result(WAIT_S)
    assert len(losses) == pools.TRIES and {loss.order for loss in losses} == {"Die"}
    assert [loss.again for loss in losses] == [True, True, False]
    assert all("SIGKILL" in loss.why for loss in losses)
    assert sum(status.losses for status in two.status()) == pools.TRIES
    assert any("SIGKILL" in status.trouble for status in two.status())


def test_who_is_told_of_a_loss_may_fail(two: Pool, tmp_path: Path) -> None:
    def fails(loss: Loss) -> None:
        raise ValueError

    two.on_loss = fails
    assert two.submit(orders.Die(tmp_path / "once", 1)).result(WAIT_S) == "after 1"


def test_a_process_that_has_ended_takes_nothing(two: Pool) -> None:
    pid = two.submit(orders.On("cuda:0")).result(WAIT_S)
    assert of(two, "cuda:0").resident_bytes > 0
    os.kill(pid, signal.SIGKILL)
    until(lambda: of(two, "cuda:0").resident_bytes == 0)


def test_a_pool_that_is_closed_tells_of_no_loss(tmp_path: Path) -> None:
    losses: list[Loss] = []
    pool = Pool([ProcessWorker(WorkerConfig(threads=1))])
    pool.on_loss = losses.append
    pool.submit(orders.Stuck(tmp_path / "begun"))
    until((tmp_path / "begun").exists)
    pool.close()
    assert losses == []


def test_what_a_gpu_has_given_is_told_once_it_was_used(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cuda:
        used = False

        def is_initialized(self) -> bool:
            return self.used

        def memory_reserved(self, device: str) -> int:
            return {"cuda:1": 3 << 20}[device]

    class Torch:
        cuda = Cuda()

    monkeypatch.setitem(__import__("sys").modules, "torch", Torch())
    assert device_bytes("cuda:1") == 0
    Torch.cuda.used = True
    assert device_bytes("cuda:1") == 3 << 20 and device_bytes("cpu") == 0
    assert Stepped(1, 2).usage == Usage()
