"""A member's meter: where a step's time goes, what it waits for now, and what it tells the others."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.compute.inline import InlinePool
from assay.compute.member import TrainStage
from assay.compute.meter import TELL_S, Meter, StepTimes, Wait, unpack, utilisation
from assay.compute.orders import Cancelled
from assay.compute.peers import Crew, Peer
from assay.compute.streams import Outgoing
from tests.unit.compute.test_member import STEPS, Job, job, orders

__all__ = ["job"]
CREW = Crew(tuple(Peer("", 0, "", name) for name in ("alice", "bob", "carol")), 0, "", 600.0)


class Clock:
    """Seconds that pass while somebody waits."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Change(threading.Condition):
    """A condition that holds after so many seconds of a `Clock`."""

    def __init__(self, clock: Clock, after_s: float) -> None:
        super().__init__()
        self._clock, self._at_s = clock, clock.now_s + after_s

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        assert timeout is not None
        self._clock.now_s += min(timeout, max(self._at_s - self._clock.now_s, 0.0))
        return self._clock.now_s >= self._at_s


def test_a_steps_time_is_computing_or_a_wait_for_a_member() -> None:
    clock = Clock()
    meter = Meter(CREW, now=clock)
    meter.begin(0, 0, [0, 0, 0])
    clock.now_s += 3.0
    meter.wait(Change(clock, 4.5), lambda: None, Wait("tensor", 1, 0, 7))
    meter.wait(Change(clock, 1.0), lambda: None, Wait("tensor", 1, 0, 8))
    meter.wait(Change(clock, 1.5), lambda: None, Wait("queue", 2, 0, 9))
    meter.begin(1, 0, [0, 70, 30])
    times = unpack(meter.report(), 3)
    assert times == StepTimes(10.0, (0.0, 5.5, 0.0), (0.0, 0.0, 1.5), (0, 70, 30))
    assert utilisation(times) == pytest.approx(0.3)
    clock.now_s += 5.0
    meter.begin(2, 1, [0, 80, 30])
    assert unpack(meter.report(), 3) == StepTimes(5.0, (0.0,) * 3, (0.0,) * 3, (0, 10, 0))
    shown = meter.shown()
    assert shown["utilisation"] == pytest.approx(8 / 15, abs=1e-4) and shown["segment"] == 1
    assert shown["members"][0]["sent"] == (0, 40, 15) and shown["members"][1:] == [None, None]


def test_a_wait_is_told_each_second_and_no_more_when_it_is_over() -> None:
    clock, told = Clock(), list[dict[str, Any]]()
    meter = Meter(CREW, 8, lambda meter: told.append(meter.shown()["wait"]), now=clock)
    meter.wait(Change(clock, 0.5), lambda: None, Wait("tensor", 1, 3, 7))
    assert told == []
    meter.wait(Change(clock, 2 * TELL_S + 0.5), lambda: None, Wait("tensor", 1, 3, 8))
    due = {"what": "report", "member": 1, "step": 3, "node": 8}
    assert told == [{**due, "seconds": 1.0}, {**due, "seconds": 2.0}, {}]


def test_a_wait_ends_with_the_patience() -> None:
    clock = Clock()
    meter = Meter(CREW, now=clock)
    meter.wait(Change(clock, 60.0), lambda: None, Wait("tensor", 1), 2.5)
    assert clock.now_s == 102.5


def test_members_tell_each_other_how_they_have_spent_their_steps(job: Job, tmp_path: Path) -> None:
    pools = [InlinePool() for _ in range(3)]
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(lambda pool, order: pool.submit(order).result(), pools, orders(job, tmp_path)))
    shown = [pool.context.crew for pool in pools]
    for member, own in enumerate(shown):
        assert own["member"] == member and own["step"] == STEPS and own["wait"] == {}
        assert 0 < own["utilisation"] < 1
        assert all(times["sent"][at] == 0 for at, times in enumerate(own["members"]))
        for other, times in enumerate(own["members"]):
            # the others have told all but the last step, and every step has as many bytes
            assert times["sent"] == shown[other]["members"][other]["sent"]
            assert sum(times["waited"]) + sum(times["blocked"]) < times["seconds"]


def test_the_last_steps_are_known_while_a_run_that_follows_connects(job: Job, tmp_path: Path) -> None:
    """As after a task that is trained: its node offers its signatures again until the claim stands."""
    each = [
        replace(order, folder=tmp_path / str(i), save_every=2)
        for i, order in enumerate(orders(job, tmp_path, 2))
    ]
    pools = [InlinePool() for _ in each]
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda pool, order: pool.submit(order).result(), pools, each))
    before, waits = pools[0].context.crew, list[dict[str, Any]]()

    def progress(done: int, total: int) -> None:
        waits.append(dict(pools[0].context.crew))
        raise Cancelled("the claim stands")

    assert isinstance(pools[0].submit(each[0], progress=progress).exception(), Cancelled)
    assert waits[0]["wait"]["what"] == "connection" and waits[0]["step"] == STEPS
    assert pools[0].context.crew["members"] == before["members"] and None not in before["members"]


def test_a_task_that_is_not_wanted_any_more_ends_while_it_waits(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Member 1 sends nothing in the first step, and is not waited for until the patience is over."""
    real, silent = Outgoing.send, threading.Event()

    def send(self: Outgoing, *frame: Any) -> None:
        if threading.current_thread().name == "member-1":
            silent.wait(20.0)
        real(self, *frame)

    monkeypatch.setattr(Outgoing, "send", send)
    first, second = orders(job, tmp_path, 2)
    waits: list[dict[str, Any]] = []

    def trained(order: TrainStage) -> BaseException | None:
        pool = InlinePool()

        def progress(done: int, total: int) -> None:
            if pool.context.crew.get("wait", {}).get("what") == "tensor":
                waits.append(dict(pool.context.crew["wait"]))
                silent.set()
                raise Cancelled("it is not owed any more")

        error = pool.submit(order, progress=progress).exception()
        assert pool.context.crew["wait"] == {}, "a run that has ended waits for nobody"
        return error

    def other() -> None:
        threading.current_thread().name = "member-1"
        trained(second)

    thread = threading.Thread(target=other)
    thread.start()
    assert isinstance(trained(first), Cancelled)
    thread.join(30.0)
    (wait,) = waits[:1]
    assert wait["member"] == 1 and wait["step"] == 0 and wait["seconds"] >= TELL_S
