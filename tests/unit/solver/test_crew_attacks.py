"""Attacks on the nodes of a crew: abandoned runs, partial folders, strangers who hold connections open."""

from __future__ import annotations

import shutil
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from assay.compute.member import Segment
from assay.compute.orders import WorkerContext
from assay.compute.peers import Lost
from assay.compute.stage_progress import SavedProgress
from assay.program.execute import StepContext
from assay.program.state import begin_roots
from assay.solver.crew_dispute import _replay, lie_in, rebuilt
from assay.solver.crew_orders import Lie
from assay.solver.crew_task import CrewTask
from assay.training.job import JobArtifacts
from tests.unit.solver.test_crew_task import REFERENCE, SEED, SHARD, STEPS, tasks_of
from tests.unit.solver.test_crew_task import job as job


class Abandons(CrewTask):
    """Hangs up after a save; then begins anew, as a member without saved progress may, sends another tensor
    and hangs up before a save; then goes on from the first run's save."""

    runs = 0

    def _attempt(self, worker: Any, executor: Any, saved: SavedProgress, done: Any) -> Segment:
        self.runs += 1
        return super()._attempt(worker, executor, SavedProgress(None, b"") if self.runs == 2 else saved, done)

    def _step(self, executor: Any, lines: Any, state: list[Tensor], context: StepContext) -> Any:
        if (self.runs, context.step) in ((1, 6), (2, 2)):
            time.sleep(1.0)  # the others compute as far as they can
            raise Lost(1 - min(self.crew.member, 1), "hung up on purpose")
        if (self.runs, context.step) == (2, 1):
            other: Any = Falsely(executor)
            return super()._step(other, lines, state, context)
        return super()._step(executor, lines, state, context)


class AbandonsAndLies(Abandons):
    """And signs a wrong slot in the end."""

    def _step(self, executor: Any, lines: Any, state: list[Tensor], context: StepContext) -> Any:
        after, told = super()._step(executor, lines, state, context)
        if (self.runs, context.step) == (3, 6):
            after = [x.clone() for x in after]
            after[0].view(-1).view(torch.int32)[0] ^= 1 << 3
            told = replace(told, slots=begin_roots(after)())
        return after, told


class Falsely:
    """A stage that sends another first tensor than it has."""

    def __init__(self, executor: Any) -> None:
        self._executor, self.stage = executor, executor.stage

    def step(self, state: Any, context: Any, receive: Any, send: Callable[[int, Tensor], None]) -> Any:
        def other(node: int, x: Tensor) -> None:
            if node == self.stage.sent[0]:
                x = x.clone()
                x.view(-1).view(torch.int32)[0] ^= 1 << 22
            send(node, x)

        return self._executor.step(state, context, receive, other)


def run_all(tasks: list[CrewTask], before: float = 0.0) -> list[Segment]:
    """What each member's run ends with; the first one begins so many seconds before the others."""

    def run(task: CrewTask) -> Segment:
        time.sleep(before if task.crew.member else 0.0)
        return task.run(WorkerContext(REFERENCE))

    with ThreadPoolExecutor(3) as threads:
        return list(threads.map(run, tasks))


def said_by(segment: Segment) -> list[list[bytes]]:
    return [list(each) for said in segment.said for each in zip(*said, strict=True)]


def test_attack_T72_an_abandoned_run_takes_no_members_defence(job: JobArtifacts, tmp_path: Path) -> None:
    plan, tasks = tasks_of(job, tmp_path, [Abandons, CrewTask, CrewTask])
    said = said_by(run_all(tasks)[1])
    for step in range(STEPS):
        now = StepContext(job.records, SEED, SHARD, step)
        root = said[step][1][:32]
        state = rebuilt(tasks[1].received, plan, 1, now, root, WorkerContext(REFERENCE))
        assert state is not None, f"before step {step}"


def test_attack_T72_an_abandoned_run_hides_no_liar(job: JobArtifacts, tmp_path: Path) -> None:
    plan, tasks = tasks_of(job, tmp_path, [CrewTask, AbandonsAndLies, CrewTask])
    said = said_by(run_all(tasks)[0])
    now = StepContext(job.records, SEED, SHARD, 0)
    assert lie_in(tasks[0].received, plan, said, now, WorkerContext(REFERENCE)) == Lie(1, 6)


def test_attack_T73_a_partial_run_with_another_input_hides_no_defence(
    job: JobArtifacts, tmp_path: Path
) -> None:
    """Of the same attempt: its job was rewound after two steps, before anything was committed."""
    plan, tasks = tasks_of(job, tmp_path, received="received/0-0-0-ffff000000000000")
    said = said_by(run_all(tasks)[1])
    mine = tmp_path / "1" / "received"
    old = mine / "0-0-0-0000000000000000"
    old.mkdir()
    for name in ("state-1-0.safetensors", "0.safetensors", "1.safetensors"):
        shutil.copy(tasks[1].received.folder / name, old / name)
    context: Any = SimpleNamespace(cache={"crew-plans": {b"p": plan}}, config=REFERENCE)
    files = SimpleNamespace(inner=job.inner, records=job.records)
    work = SimpleNamespace(files=files, terms=SimpleNamespace(seed=SEED), first_step=lambda *place: 0)
    game = SimpleNamespace(segment=1, step=6, in_root=said[6][1][:32])
    order: Any = SimpleNamespace(
        invitation=SimpleNamespace(plan=b"p", members=[1, 2, 3]),
        view=SimpleNamespace(game=game, game_id=1),
        claim=SimpleNamespace(round=0, shard=SHARD, attempt=0),
        received=mine,
    )
    open_job: Any = SimpleNamespace(work=work)
    assert _replay(order, open_job, context).root(1) == said[6][1][32:]


@contextmanager
def strangers(count: int, visit: Callable[[], None]) -> Iterator[None]:
    """So many strangers that visit again and again."""
    stop = threading.Event()

    def stay() -> None:
        while not stop.is_set():
            with suppress(OSError):
                visit()
            time.sleep(0.002)

    threads = [threading.Thread(target=stay, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    yield
    stop.set()


def test_attack_T74_a_reset_in_the_backlog_ends_no_accepting(job: JobArtifacts, tmp_path: Path) -> None:
    _, tasks = tasks_of(job, tmp_path)
    place = tasks[0].crew.peers[0]

    def visit() -> None:
        one = socket.create_connection((place.host, place.port))
        other = socket.create_connection((place.host, place.port))
        other.send(b"x")
        other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        other.close()
        one.close()

    with strangers(1, visit):
        assert len(run_all(tasks, before=1.0)) == 3


def test_attack_T74_strangers_that_say_nothing_hold_nobody_up(job: JobArtifacts, tmp_path: Path) -> None:
    _, tasks = tasks_of(job, tmp_path)
    place = tasks[0].crew.peers[0]

    def visit() -> None:
        with socket.create_connection((place.host, place.port), timeout=2) as line:
            line.settimeout(60)
            line.recv(1)

    with strangers(16, visit):
        assert len(run_all(tasks)) == 3
