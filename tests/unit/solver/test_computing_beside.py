"""A solver whose segments another process computes: it decides, stores and commits meanwhile, and loses
nothing when that process ends."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from assay.node.artifacts import State
from assay.node.checkpoints import Checkpoint
from assay.node.engine import Engine
from assay.node.states import StateProvider
from assay.node.time_spent import TimeSpent
from assay.program.apart.executor import Apart
from assay.protocol.errors import Retry
from assay.protocol.ports import Blocks
from assay.protocol.types import JobId, Kind, Phase
from assay.solver import policy, storing
from assay.solver.service import SolverService
from assay.solver.storing import OpenTask, Storing
from assay.solver.trainer import TaskTrainer
from assay.solver.under_way import Computing
from drills.solvers import Plan
from tests.fakes.market_day import MarketDay

torch.set_num_threads(1)

LATER = {"max_unsettled": 4, "solver_stake": 267, "task_time": 100_000}


@pytest.fixture(scope="module")
def process() -> Iterator[Apart]:
    apart = Apart()
    yield apart
    apart.close()


@pytest.fixture
def apart(process: Apart, monkeypatch: pytest.MonkeyPatch) -> Apart:
    """The process, for steps of any size, with states that are stored beside."""
    monkeypatch.setattr("assay.node.engine.fit", lambda program: True)
    monkeypatch.setattr(TaskTrainer, "background_bytes", 0)
    return process


@pytest.fixture
def day(tmp_path: Path) -> MarketDay:
    return MarketDay(tmp_path / "day")


def lived(day: MarketDay, until: Callable[[], bool], turns: int = 5000) -> None:
    """Turns that last a little, so that threads and processes keep pace with the market's clock."""

    def over() -> bool:
        time.sleep(0.01)
        return until()

    assert day.run(over, turns, seconds=1), [s.status for s in day.services.values()]


def outputs(day: MarketDay, job_id: JobId) -> dict[tuple[Kind, int, int], bytes]:
    """Output roots of the settled claims."""
    views = day.markets["client"].claims(job_id)
    settled = [view.claim for view in views if view.status.phase == Phase.SETTLED]
    return {(claim.kind, claim.round, claim.shard): claim.output_root for claim in settled}


def led(day: MarketDay, shards: int = 1, **options: Any) -> dict[tuple[Kind, int, int], bytes]:
    """A job to its end, with threads that look and send; the roots of its claims."""
    job_id = day.post(rounds=3, shards=shards, **LATER)
    with ExitStack() as stack:
        for name in ("ann", "bob")[:shards]:
            solver = day.solver(name, **options)
            if options:
                solver.look_beside(stack.enter_context(ThreadPoolExecutor(1)))
                solver.sender = stack.enter_context(ThreadPoolExecutor(2))
        for name in ("v0", "v1"):
            day.verifier(name)
        lived(day, day.closed(job_id))
    assert day.market_state.burnt == 0
    return outputs(day, job_id)


@pytest.mark.long
@pytest.mark.parametrize("shards", [1, 2])
def test_the_claims_are_those_of_computing_here(apart: Apart, tmp_path: Path, shards: int) -> None:
    here = led(MarketDay(tmp_path / "here"), shards)
    day = MarketDay(tmp_path / "apart")
    assert led(day, shards, engine=Engine(apart=apart)) == here and len(here) == 3 * (shards + 1)
    assert apart.process is not None
    assert len(day.named("trained")) == 12 * shards, "nothing was trained twice"
    assert all("bugs" not in service.status.counters for service in day.services.values())


def test_the_next_round_is_begun_before_this_ones_states_are_stored(
    apart: Apart, day: MarketDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing is committed that is not stored."""
    stored, publish = threading.Event(), storing.publish_state
    last, begin = list[State](), Storing.begin

    def slow(blocks: Blocks, state: State, *known: Any) -> Checkpoint:
        if any(state is one for one in last):
            assert stored.wait(60)
        return publish(blocks, state, *known)

    def told(self: Storing, task: storing.OpenTask, *, kept: bool, anew: bool) -> None:
        last.extend([task.state] if anew else [])
        begin(self, task, kept=kept, anew=anew)

    monkeypatch.setattr(Storing, "begin", told)
    monkeypatch.setattr(storing, "publish_state", slow)
    job_id = day.post(rounds=2, shards=1, **LATER)
    ann = day.solver("ann", engine=Engine(apart=apart))
    with ThreadPoolExecutor(1) as looking, ThreadPoolExecutor(1) as sending:
        ann.look_beside(looking)
        ann.sender = sending
        lived(day, lambda: ann.status.counters.get("segments_ahead", 0) >= 1)
        assert not day.named("committed") and ann.market.current(job_id, Kind.TASK, 0, 0) is None
        stored.set()
        for name in ("v0", "v1"):
            day.verifier(name)
        lived(day, day.closed(job_id))
    assert len(day.named("trained")) == 8 and day.phases(job_id) == [Phase.SETTLED] * 4


def test_a_process_that_is_killed_costs_its_segment_alone(apart: Apart, day: MarketDay) -> None:
    job_id = day.post(rounds=2, shards=1, **LATER)
    ann = day.solver("ann", engine=Engine(apart=apart))
    killed = list[int]()
    with ThreadPoolExecutor(1) as looking:
        ann.look_beside(looking)
        for name in ("v0", "v1"):
            day.verifier(name)
        lived(day, lambda: len(day.named("trained")) >= 2)
        assert apart.process is not None
        killed.append(apart.process)
        os.kill(killed[0], signal.SIGKILL)
        lived(day, day.closed(job_id))
    assert any("computing-lost" in event.get("code", "") for event in day.named("retry"))
    assert apart.process not in (None, killed[0])
    assert day.phases(job_id) == [Phase.SETTLED] * 4 and day.market_state.burnt == 0
    assert len(day.named("trained")) == 8


@pytest.mark.long
def test_a_last_state_that_cannot_be_stored_is_not_claimed(
    apart: Apart, day: MarketDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the next round is trained from it already."""
    calls, publish, begun, failed = iter(range(100)), storing.publish_state, threading.Event(), list[int]()

    def failing(blocks: Blocks, state: State, *known: Any) -> Checkpoint:
        if (call := next(calls)) == 4:  # the input, and four segments' ends
            assert begun.wait(60)
            failed.append(call)
            raise Retry("the disk is full", hint="make room")
        return publish(blocks, state, *known)

    monkeypatch.setattr(storing, "publish_state", failing)
    job_id = day.post(rounds=2, shards=1, **LATER)
    ann = day.solver("ann", engine=Engine(apart=apart))
    with ThreadPoolExecutor(1) as looking, ThreadPoolExecutor(1) as sending:
        ann.look_beside(looking)
        ann.sender = sending
        for name in ("v0", "v1"):
            day.verifier(name)
        lived(day, lambda: ann.status.counters.get("segments_ahead", 0) >= 1)
        assert not day.named("committed")
        begun.set()
        lived(day, day.closed(job_id))
    assert failed == [4] and any("the disk is full" in e["error"] for e in day.named("retry"))
    assert day.phases(job_id) == [Phase.SETTLED] * 4 and day.market_state.burnt == 0
    assert "bugs" not in ann.status.counters


@pytest.mark.long
@pytest.mark.parametrize("call", [0, 4, 5])
def test_a_segment_whose_end_cannot_be_hashed_is_trained_again(
    apart: Apart, day: MarketDay, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    """And not the one after it from there, as the state has moved on."""
    calls, begin, failed = iter(range(100)), Storing.begin, list[int]()

    def failing(self: Storing, task: OpenTask, *, kept: bool, anew: bool) -> None:
        if next(calls) == call:
            failed.append(call)
            raise MemoryError
        begin(self, task, kept=kept, anew=anew)

    monkeypatch.setattr(Storing, "begin", failing)
    job_id = day.post(rounds=2, shards=1, **LATER)
    ann = day.solver("ann", engine=Engine(apart=apart))
    for name in ("v0", "v1"):
        day.verifier(name)
    lived(day, day.closed(job_id))
    assert failed == [call]
    assert day.phases(job_id) == [Phase.SETTLED] * 4 and day.market_state.burnt == 0
    assert "bugs" not in ann.status.counters


@pytest.mark.long
def test_shards_that_take_turns_lose_no_segment(apart: Apart, day: MarketDay) -> None:
    job_id = day.post(rounds=1, shards=2, **LATER)
    ann = day.solver("ann", engine=Engine(apart=apart))
    assert isinstance(ann, SolverService)
    ann.limits = replace(ann.limits, max_shards=2)
    shop = ann._shop(job_id)
    trains = [policy.TrainSegment(job_id, 0, shard, 0, "a test") for shard in (0, 1)]
    shop.open_task(0, 0, 0)
    assert shop.begin() and shop.at == (0, 0)
    ann.handlers()[policy.TrainSegment](trains[1])
    assert [(event["shard"], event["segment"]) for event in day.named("trained")] == [(0, 0)], "waited for"
    ann.handlers()[policy.TrainSegment](trains[1])
    told = [(event["shard"], event["segment"]) for event in day.named("trained")]
    assert told == [(0, 0), (1, 0)]
    for name in ("v0", "v1"):
        day.verifier(name)
    lived(day, day.closed(job_id))
    assert len(day.named("trained")) == 8, "and none was trained twice"


def test_a_planted_fault_is_computed_here(apart: Apart, day: MarketDay) -> None:
    """Or the process, which knows of none, would mend it."""
    from assay.program.fault import NodeFault
    from assay.solver.policy import Examine
    from drills.solvers import FaultySolver

    job_id = day.post(rounds=1, shards=1)
    made = list[SolverService]()

    def kind(*args: object, **options: object) -> SolverService:
        made.append(FaultySolver(*args, plan=Plan(0, 0, NodeFault(1, 5, 0)), **options))
        return made[0]

    solver = day.solver("mallory", kind, engine=Engine(apart=apart))
    solver.handlers()[Examine](Examine(job_id, "a test"))
    work = solver._shop(job_id).work
    assert day.named("fault-planted")
    assert not work.is_apart(Kind.TASK, 0, 0, 0) and work.is_apart(Kind.TASK, 1, 0, 0)


def test_a_segments_states_go_with_it() -> None:
    """Without waiting for Python's collector, which comes by seldom."""
    computing, state = Computing(TimeSpent()), [torch.zeros(3)]
    task = OpenTask(0, 0, b"", [], state)
    gc.collect()
    gc.disable()
    try:
        for apart in (False, True):
            computing.begin(task, lambda: [torch.ones(3)], apart)
            assert computing.over(10)
            found, end = computing.take()
            computing._thread.submit(int).result()  # which has let go of the one before
            held = weakref.ref(end[0]), weakref.ref(found)
            assert torch.equal(end[0], torch.ones(3)) and found.times.took_s >= 0
            del found, end
            assert held[0]() is None and held[1]() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("kind", [Kind.TASK, Kind.OUTER])
def test_memory_that_flips_a_bit_costs_no_stake(
    apart: Apart, day: MarketDay, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    """What a task or an outer step starts from is compared with what the claims before say."""
    job_id = day.post(rounds=2, shards=1, **LATER)
    day.solver("ann", engine=Engine(apart=apart))
    for name in ("v0", "v1"):
        day.verifier(name)
    given, flipped = StateProvider.input_state, list[int]()

    def damaged(self: StateProvider, of: Kind, round_: int, shard: int) -> State:
        state = given(self, of, round_, shard)
        ours = type(self) is StateProvider and self.market.me == day.markets["ann"].me
        if ours and of == kind and not flipped:
            flipped.append(1)
            state = [state[0].clone(), *state[1:]]
            state[0].view(-1).view(torch.int32)[0] ^= 1
        return state

    monkeypatch.setattr(StateProvider, "input_state", damaged)
    lived(day, day.closed(job_id))
    assert flipped
    assert [event["code"] for event in day.named("retry")] == ["progress-lost"]
    assert day.phases(job_id) == [Phase.SETTLED] * 4 and day.market_state.burnt == 0


def test_to_ask_what_is_stored_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    done = SimpleNamespace(place=(0, 0, b"r" * 32), publishing=True, is_stored=True)
    shop = TaskTrainer.__new__(TaskTrainer)
    shop._heeded = set()
    monkeypatch.setattr(shop, "_in_memory", lambda: [done])
    monkeypatch.setattr(shop, "_is_over", lambda task: True)
    assert shop.newly_stored() == shop.newly_stored() == {done.place}
    shop.heed({done.place})
    assert not shop.newly_stored()
