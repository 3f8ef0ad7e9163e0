"""A solver whose tasks workers train: states are stored meanwhile, and a worker that dies costs little."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.compute.node_calls import Home
from assay.compute.orders import WorkerConfig
from assay.compute.pool import Pool
from assay.compute.process import ProcessWorker
from assay.node.artifacts import State
from assay.node.checkpoints import Checkpoint
from assay.node.job_cache import MOST_JOBS
from assay.node.orders import Examine
from assay.node.states import StateProvider
from assay.node.work import Work
from assay.protocol.errors import Retry
from assay.protocol.ports import Blocks
from assay.protocol.types import JobId, Kind, Phase
from assay.solver import policy, state_publisher
from assay.solver.orders import Train
from assay.solver.state_publisher import OpenTask, Storing
from assay.solver.trainer import TaskTrainer
from tests.fakes.manual_pool import LateExecutor, ManualPool
from tests.fakes.market_day import MarketDay
from tests.fakes.opened import opened_jobs

LATER = {"max_unsettled": 4, "solver_stake": 267, "task_time": 100_000}
WAIT_S = 20


@pytest.fixture(autouse=True)
def _stored_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """States of any size are stored in parallel with training."""
    monkeypatch.setattr(TaskTrainer, "background_bytes", 0)


def opened_jobs_of(pool: ManualPool) -> dict[JobId, Any]:
    """The jobs that its worker has open."""
    return dict(pool._worker.context.cache.get("jobs", {}))


def lived(day: MarketDay, until: Callable[[], bool], seconds: int = 4) -> None:
    """Turns that last a little, so that threads and processes keep pace with the market's clock."""

    def over() -> bool:
        time.sleep(0.01)
        return until()

    assert day.run(over, turns=5000, seconds=seconds), [s.status for s in day.services.values()]


def outputs(day: MarketDay, job_id: JobId) -> dict[tuple[Kind, int, int], bytes]:
    """Output roots of the settled claims."""
    views = day.markets["client"].claims(job_id)
    settled = [view.claim for view in views if view.status.phase == Phase.SETTLED]
    return {(claim.kind, claim.round, claim.shard): claim.output_root for claim in settled}


class Processes:
    """One worker process for each of some solvers, while a `with` block lasts."""

    def __init__(self) -> None:
        self.workers: list[ProcessWorker] = []

    def __call__(self, home: Home) -> Pool:
        self.workers.append(ProcessWorker(WorkerConfig(threads=1, me=home.market.me), home))
        return Pool(self.workers[-1:])


def led(day: MarketDay, shards: int = 1, **options: Any) -> dict[tuple[Kind, int, int], bytes]:
    """A job to its end, with threads that send; the roots of its claims."""
    job_id = day.post(rounds=3, shards=shards, **LATER)
    with ExitStack() as stack:
        for name in ("ann", "bob")[:shards]:
            solver = day.solver(name, **options)
            stack.callback(solver.pool.close)
            solver.actions.sender = stack.enter_context(ThreadPoolExecutor(2)) if options else None
        day.verifiers()
        lived(day, day.closed(job_id), seconds=1)
    assert day.market_state.burnt == 0
    return outputs(day, job_id)


@pytest.mark.long
@pytest.mark.parametrize("shards", [1, 2])
def test_the_claims_are_those_of_computing_here(tmp_path: Path, shards: int) -> None:
    here = led(MarketDay(tmp_path / "here"), shards)
    day, processes = MarketDay(tmp_path / "there"), Processes()
    assert led(day, shards, pool=processes) == here and len(here) == 3 * (shards + 1)
    assert len(processes.workers) == shards
    assert len(day.named("trained")) == 12 * shards, "nothing was trained twice"
    assert all("bugs" not in service.status.counters for service in day.services.values())


@pytest.mark.long
def test_a_process_that_is_killed_costs_its_segment_alone(day: MarketDay) -> None:
    job_id = day.post(rounds=2, shards=1, **LATER)
    processes = Processes()
    ann = day.solver("ann", pool=processes)
    try:
        day.verifiers()
        lived(day, lambda: len(day.named("trained")) >= 2, seconds=1)
        killed = processes.workers[0].pid
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        lived(day, day.closed(job_id), seconds=1)
        assert processes.workers[0].pid not in (None, killed)
    finally:
        ann.pool.close()
    assert day.phases(job_id) == [Phase.SETTLED] * 4 and day.market_state.burnt == 0
    assert 7 <= len(day.named("trained")) <= 9, "one event may be lost, or told just before, as it dies"
    assert "bugs" not in ann.status.counters


def test_a_worker_that_dies_in_a_segment_costs_that_segment_alone(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each segment has two steps: it dies in the second one of the third segment. States are stored before
    the next segment: stored meanwhile, that of the one before may be lost, too."""
    monkeypatch.setattr(TaskTrainer, "background_bytes", 1 << 60)
    job_id = day.post(rounds=1, shards=1, **LATER)
    ann, run, ran = day.solver("ann", pool=ManualPool), Work.run, list[tuple[Kind, int]]()
    pool = ann.pool
    assert isinstance(pool, ManualPool)

    def running(work: Work, kind: Kind, round_: int, shard: int, segment: int, *more: Any) -> State:
        ran.append((kind, segment))
        return run(work, kind, round_, shard, segment, *more)

    monkeypatch.setattr(Work, "run", running)
    while not any(isinstance(order, Train) for order in pool.orders()):
        ann.tick()
        if not any(isinstance(order, Train) for order in pool.orders()):
            pool.step()
    pool.step(dies_after=5)
    assert pool.ended() == 1 and ran == [(Kind.TASK, i) for i in (0, 1, 2)]
    day.verifiers()

    def closed() -> bool:
        pool.step()
        return day.closed(job_id)()

    lived(day, closed)
    assert [i for kind, i in ran if kind == Kind.TASK and i < 4][:5] == [0, 1, 2, 2, 3]
    assert [event["segment"] for event in day.named("trained")] == [0, 1, 2, 3]
    assert day.phases(job_id) == [Phase.SETTLED] * 2 and "bugs" not in ann.status.counters


def when_ahead(monkeypatch: pytest.MonkeyPatch, then: Callable[[], None]) -> None:
    """Do something once, when the second round's first segment has been computed."""
    run, done = Work.run, list[int]()

    def running(work: Work, kind: Kind, round_: int, *more: Any) -> State:
        end = run(work, kind, round_, *more)
        if (kind, round_) == (Kind.TASK, 1) and not done:
            done.append(1)
            then()
        return end

    monkeypatch.setattr(Work, "run", running)


def test_the_next_round_is_begun_before_this_ones_states_are_stored(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing is committed that is not stored."""
    stored, publish = threading.Event(), state_publisher.publish_state
    last, begin = list[State](), Storing.begin

    def slow(blocks: Blocks, state: State, *known: Any) -> Checkpoint:
        if any(state is one for one in last):
            assert stored.wait(WAIT_S)
        return publish(blocks, state, *known)

    def told(self: Storing, task: OpenTask, *, kept: bool, anew: bool) -> None:
        last.extend([task.state] if anew else [])
        begin(self, task, kept=kept, anew=anew)

    def begun() -> None:
        assert not day.named("committed") and day.market_state.claims == {}
        stored.set()

    monkeypatch.setattr(Storing, "begin", told)
    monkeypatch.setattr(state_publisher, "publish_state", slow)
    when_ahead(monkeypatch, begun)
    job_id = day.post(rounds=2, shards=1, **LATER)
    ann = day.solver("ann")
    assert day.run(stored.is_set, turns=20) and ann.status.counters["segments_ahead"] == 1
    day.verifiers()
    lived(day, day.closed(job_id))
    assert len(day.named("trained")) == 8 and day.phases(job_id) == [Phase.SETTLED] * 4
    assert "bugs" not in ann.status.counters


def test_a_last_state_that_cannot_be_stored_is_not_claimed(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the next round is trained from it already."""
    calls, publish, begun, failed = (
        iter(range(100)),
        state_publisher.publish_state,
        threading.Event(),
        list[int](),
    )

    def failing(blocks: Blocks, state: State, *known: Any) -> Checkpoint:
        if (call := next(calls)) == 4:  # the input, and four segments' ends
            assert begun.wait(WAIT_S)
            failed.append(call)
            raise Retry("the disk is full", hint="make room")
        return publish(blocks, state, *known)

    monkeypatch.setattr(state_publisher, "publish_state", failing)
    when_ahead(monkeypatch, begun.set)
    job_id = day.post(rounds=2, shards=1, **LATER)
    ann = day.solver("ann")
    assert day.run(lambda: bool(failed), turns=20) and begun.is_set() and not day.named("committed")
    day.verifiers()
    lived(day, day.closed(job_id))
    assert failed == [4] and any("the disk is full" in e["error"] for e in day.named("retry"))
    assert day.phases(job_id) == [Phase.SETTLED] * 4 and day.market_state.burnt == 0
    assert "bugs" not in ann.status.counters


def test_a_task_that_is_due_does_not_wait_for_one_that_is_trained_ahead(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of another job, whose client gave it many segments: what is trained ahead ends with its segment, as it
    does for the other job's files."""
    monkeypatch.setattr(TaskTrainer, "background_bytes", 1 << 30)
    many = {"steps_per_round": 32, "segment_steps": 1, "seed_delay": 1_000}
    ahead = day.post(rounds=3, shards=1, **LATER, **many)
    ann = day.solver("ann", pool=ManualPool)
    pool = ann.pool
    assert isinstance(pool, ManualPool)

    def looked(until: Callable[[], bool]) -> None:
        for _ in range(20):
            for _ in range(3):  # it looks on while its worker works
                ann.tick()
            if until():
                return
            pool.step()
            day.market_state.advance(1)
        raise AssertionError(day.named("trained"))

    looked(lambda: ann.actions.running_of((policy.TrainAhead,)) == 1)
    due = day.post(rounds=1, shards=1, nonce=7, **LATER)
    ann.limits = replace(ann.limits, max_shards=2)
    looked(lambda: bool(day.phases(due, Kind.TASK)))
    trained = [(event["job"], event["round"]) for event in day.named("trained")]
    before = trained[: trained.index((due.hex(), 0))]
    assert before.count((ahead.hex(), 0)) == 32 and before.count((ahead.hex(), 1)) <= 2


def test_strangers_jobs_are_examined_after_what_is_to_be_trained(day: MarketDay) -> None:
    """However many of them there are, and however slowly their files come."""
    job_id = day.post(rounds=1, shards=1, **LATER)
    ann = day.solver("ann", pool=ManualPool)
    pool = ann.pool
    assert isinstance(pool, ManualPool)
    ann.limits = replace(ann.limits, max_shards=2)
    ann.tick()
    pool.step()
    for number in range(5):
        day.post(rounds=1, shards=1, nonce=10 + number, **LATER)
    for _ in range(3):
        ann.tick()
    assert [event["job"] for event in day.named("took")] == [job_id.hex()]
    assert sum(isinstance(order, Examine) for order in pool.orders()) == 5
    pool.step()
    ann.tick()
    assert len(day.named("trained")) == 4, "the task was trained first"
    ann = day.solver("ann", pool=ManualPool)
    ann.tick()
    pool = ann.pool
    assert isinstance(pool, ManualPool)
    pool.step()
    assert job_id in opened_jobs_of(pool), "after a restart the job is opened first in which something is due"


def test_a_job_whose_states_are_being_stored_is_not_put_away_for_others(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a client that posts as many jobs as a worker has open could make it discard a finished
    task. Its node waits for that claim, and would neither commit it nor train it again."""
    monkeypatch.setattr(state_publisher, "ThreadPoolExecutor", LateExecutor)
    monkeypatch.setattr(LateExecutor, "every", [])
    job_id = day.post(rounds=1, shards=1, **LATER)
    ann = day.solver("ann")
    assert day.run(lambda: len(day.named("trained")) == 4, turns=20) and not day.named("committed")
    for number in range(MOST_JOBS):
        other = day.post(rounds=1, shards=1, nonce=10 + number, **LATER)
        ann.pool.submit(Examine(ann.spec(other), "test")).result()
    for executor in LateExecutor.every:
        for _ in range(5):
            executor.step()
    assert day.run(lambda: bool(day.named("committed")), turns=20), ann.status
    assert len(day.named("trained")) == 4 and ann.status.counters["claims"] == 1
    other = day.post(rounds=1, shards=1, nonce=99, **LATER)
    ann.pool.submit(Examine(ann.spec(other), "test")).result()
    assert len(opened_jobs(ann)) == MOST_JOBS and job_id not in opened_jobs(ann), "it goes once it is stored"


@pytest.mark.parametrize("call", [0, 4, 5])
def test_a_segment_whose_end_cannot_be_hashed_is_trained_again(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch, call: int
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
    ann = day.solver("ann")
    day.verifiers()
    lived(day, day.closed(job_id))
    assert failed == [call]
    assert day.phases(job_id) == [Phase.SETTLED] * 4 and day.market_state.burnt == 0
    assert "bugs" not in ann.status.counters


def test_shards_that_take_turns_lose_no_segment(day: MarketDay) -> None:
    job_id = day.post(rounds=1, shards=2, **LATER)
    ann = day.solver("ann")
    ann.limits = replace(ann.limits, max_shards=2)
    for turn in range(6):
        ann.pool.submit(Train(ann.spec(job_id), "test", 0, turn % 2, False)).result()
    ann.actions.take_in()
    told = [(event["shard"], event["segment"]) for event in day.named("trained")]
    assert told == [(turn % 2, turn // 2) for turn in range(6)]
    day.verifiers()
    lived(day, day.closed(job_id))
    assert len(day.named("trained")) == 8, "and none was trained twice"


@pytest.mark.parametrize("kind", [Kind.TASK, Kind.OUTER])
def test_memory_that_flips_a_bit_costs_no_stake(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    """The input of a task or an outer step is compared with the claims before it."""
    job_id = day.post(rounds=2, shards=1, **LATER)
    day.solver("ann")
    day.verifiers()
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
