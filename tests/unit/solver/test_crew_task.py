"""A crew's task: what the leader publishes, who is found to have lied, and what a member can defend."""

from __future__ import annotations

import errno
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.blocks.blockstore import BlockStore
from assay.compute.member import Segment
from assay.compute.orders import WorkerConfig, WorkerContext
from assay.compute.peers import Blame
from assay.dispute.replay import Replay
from assay.node.checkpoints import Checkpoint
from assay.node.job_programs import program_ref
from assay.node.slot_index import MAX_INDEX_BYTES, decode_index, state_root_of
from assay.program.execute import Executor, StepContext
from assay.program.record_excerpt import steps_of
from assay.program.stage_executor import StageExecutor
from assay.program.stages import Plan, cut
from assay.program.state import begin_roots, state_root
from assay.protocol import trees
from assay.protocol.crew import Invitation, Member
from assay.protocol.errors import Ask, Retry
from assay.protocol.types import JobId, Seconds, Wei
from assay.solver.crew_dispute import Received, lie_in, plan_of, rebuilt, step_seconds
from assay.solver.crew_orders import Lie
from assay.solver.crew_task import SIGNATURE, CrewTask
from assay.training import models
from assay.training.job import JobArtifacts
from assay.training.optimisers import AdamW
from tests.fakes.crews import crew_of
from tests.fakes.jobs import account
from tests.fakes.lying_crew import LIE, LyingSender, LyingTask
from tests.unit.training.steps import SEED, built, corpus

CONTEXT, STEPS, SEGMENT, SHARD = 8, 8, 4, 0
REFERENCE = WorkerConfig(executor="reference")


@dataclass
class Books:
    """A node that signs with its number, and believes everybody, or not."""

    member: int
    distrusts: int | None = None
    leaves: Sequence[Checkpoint] = ()

    def wanted(self, *place: Any) -> bool:
        return True

    def signed(self, *place: Any) -> list[bytes]:
        return [bytes([self.member]) * SIGNATURE for _ in place[-1]]

    def signs(self, *place: Any) -> bool:
        member, roots, given = place[3:]
        assert given == [bytes([member]) * SIGNATURE for _ in roots]
        return bool(member != self.distrusts)

    def stored(self, *place: Any) -> None:
        self.leaves = place[-1]


@dataclass
class Crew:
    """Three members who have trained a task, each in a thread."""

    job: JobArtifacts
    plan: Plan
    tasks: list[CrewTask]
    outcomes: list[Segment | Blame]

    def now(self, step: int = 0) -> StepContext:
        return StepContext(self.job.records, SEED, SHARD, step)

    def rebuilt(self, holder: int, member: int, step: int) -> list[Tensor]:
        """The state that a member has signed before a step, from what `holder` has kept."""
        received, root = self.tasks[holder].received, self.said()[step][member][:32]
        state = rebuilt(received, self.plan, member, self.now(step), root, WorkerContext(REFERENCE))
        assert state is not None and state_root(state) == root
        return state

    def lie(self) -> Lie | None:
        """Whom the leader finds."""
        received = self.tasks[0].received
        return lie_in(received, self.plan, self.said(), self.now(), WorkerContext(REFERENCE))

    def said(self) -> list[list[bytes]]:
        (segment, *_) = self.outcomes
        assert isinstance(segment, Segment)
        return [list(each) for said in segment.said for each in zip(*said, strict=True)]


def tasks_of(
    job: JobArtifacts,
    folder: Path,
    kinds: Sequence[type[CrewTask]] = (CrewTask,) * 3,
    *,
    distrusts: tuple[int, int] | None = None,
    attempt: int = 0,
    received: str = "received/0",
    patience_s: float = 60.0,
) -> tuple[Plan, list[CrewTask]]:
    """Three members' tasks. `distrusts`: a member, and whose signatures it refuses. `folder` may have what
    earlier runs kept."""
    plan, roots = cut(job.inner, 3), begin_roots(job.genesis)()
    keys = Path(mkdtemp(dir=folder))
    steps = steps_of(job.inner, StepContext(job.records, SEED, SHARD, 0), STEPS)
    who, whom = distrusts or (None, None)
    tasks = []
    for crew, stage, kind in zip(crew_of(keys, 3, patience_s), plan.stages, kinds, strict=True):
        own = folder / str(crew.member)
        task = kind(
            plan,
            crew,
            [job.genesis[slot] for slot in stage.slots],
            roots,
            steps,
            SEGMENT,
            own / "saved",
            SEGMENT,
            place=(JobId(bytes(32)), 0, SHARD),
            attempt=attempt,
            books=Books(crew.member, whom if crew.member == who else None),
            blocks=BlockStore(own / "store"),
            received=Received(own / received),
        )
        for number in range(3) if crew.member == 0 else (crew.member,):
            task.received.begin(number, 0, [job.genesis[slot] for slot in plan.stages[number].slots])
        tasks.append(task)
    return plan, tasks


def trained(
    job: JobArtifacts,
    folder: Path,
    liar: int | None = None,
    lies: type[CrewTask] = LyingTask,
    distrusts: tuple[int, int] | None = None,
    attempt: int = 0,
) -> Crew:
    """What `tasks_of` end with."""
    plan, tasks = tasks_of(
        job,
        folder,
        [lies if member == liar else CrewTask for member in range(3)],
        distrusts=distrusts,
        attempt=attempt,
        received=f"received/{attempt}",
        patience_s=60.0 if distrusts is None else 3.0,
    )

    def run(task: CrewTask) -> Segment | Blame:
        try:
            return task.run(WorkerContext(REFERENCE))
        except Blame as blame:
            return blame

    with ThreadPoolExecutor(3) as threads:
        return Crew(job, plan, tasks, list(threads.map(run, tasks)))


@pytest.fixture(scope="module")
def job() -> JobArtifacts:
    model = models.build(models.GptConfig(n_layer=3, n_head=2, d_model=16, context=CONTEXT), 1)
    return built(model, AdamW(0.01), corpus(CONTEXT))


@pytest.fixture(scope="module")
def honest(job: JobArtifacts, tmp_path_factory: pytest.TempPathFactory) -> Crew:
    return trained(job, tmp_path_factory.mktemp("honest"))


def right(job: JobArtifacts) -> tuple[bytes, ...]:
    """Roots of the states at the segments' ends, by one process."""
    state, executor, ends = list(job.genesis), Executor(job.inner), []
    for step in range(STEPS):
        state = executor.step(state, StepContext(job.records, SEED, SHARD, step))
        ends.append(state_root(state))
    return tuple(ends[SEGMENT - 1 :: SEGMENT])


def test_the_leader_has_every_byte_and_every_signature(honest: Crew) -> None:
    leader = honest.tasks[0]
    start, *leaves = leader.books.leaves
    assert start == Checkpoint("", trees.root(begin_roots(honest.job.genesis)()))
    assert tuple(leaf.root for leaf in leaves) == right(honest.job)
    for leaf in leaves:
        slots = decode_index(leader.blocks.read_file(leaf.cid, MAX_INDEX_BYTES), honest.job.inner.slots)
        assert state_root_of(slots) == leaf.root
        for slot, node in zip(slots, honest.job.inner.state, strict=True):
            assert len(leader.blocks.read_file(slot.cid, slot.file_bytes(node))) == slot.file_bytes(node)
    for task in honest.tasks:
        assert task.signatures == [(bytes([i]) * SIGNATURE,) * (STEPS // SEGMENT) for i in range(3)]


def test_nobody_is_accused_of_what_is_right(honest: Crew) -> None:
    assert honest.lie() is None


def test_the_leader_can_show_each_state_that_anybody_has_signed(honest: Crew) -> None:
    for member in range(3):
        assert honest.rebuilt(0, member, 5)


def test_every_member_can_show_each_state_that_it_has_signed(honest: Crew) -> None:
    said = honest.said()
    for task in honest.tasks:
        member = task.crew.member
        for step in (0, 3, STEPS - 1):
            state = honest.rebuilt(member, member, step)
            program = honest.plan.stages[member].program
            replay = Replay(program, state, honest.job.records, SEED, SHARD, step)
            assert replay.root(1) == said[step][member][32:], "with this it plays, and wins"


class Counted:
    """The steps of stages that were run again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[int] = []
        run = StageExecutor.step

        def step(executor: Any, state: Any, context: StepContext, *streams: Any) -> Any:
            self.steps.append(context.step)
            return run(executor, state, context, *streams)

        monkeypatch.setattr(StageExecutor, "step", step)


def test_a_state_is_computed_from_its_segments_start_and_once(
    job: JobArtifacts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a node can answer several accusations in turn."""
    crew = trained(job, tmp_path)
    run = Counted(monkeypatch)
    crew.rebuilt(1, 1, SEGMENT)
    assert run.steps == [], "it was kept"
    crew.rebuilt(1, 1, SEGMENT + 2)
    assert run.steps == [SEGMENT, SEGMENT + 1]
    crew.rebuilt(1, 1, 2)
    crew.rebuilt(1, 1, SEGMENT + 2)
    assert run.steps == [SEGMENT, SEGMENT + 1, 0, 1]


@pytest.mark.parametrize("harm", ["flipped", "cut"])
def test_a_damaged_state_is_computed_from_an_earlier_one(
    job: JobArtifacts, tmp_path: Path, harm: str
) -> None:
    crew = trained(job, tmp_path)
    path = crew.tasks[1].received.folder / f"state-1-{SEGMENT}.safetensors"
    data = bytearray(path.read_bytes())
    data[-9] ^= 1
    path.write_bytes(bytes(data) if harm == "flipped" else b"")
    for _ in range(2):
        crew.rebuilt(1, 1, SEGMENT + 1)


def test_a_full_disk_loses_no_game(honest: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Received, "keep", full)
    assert honest.rebuilt(2, 2, SEGMENT + 3)


def test_the_measure_of_a_replay_runs_one_step(honest: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    run, received = Counted(monkeypatch), honest.tasks[0].received
    for member in range(3):
        assert step_seconds(received, honest.plan, member, honest.now(), WorkerContext(REFERENCE)) > 0
    assert run.steps == [0, 0, 0]


def test_nobody_is_accused_by_a_damaged_copy(job: JobArtifacts, tmp_path: Path) -> None:
    crew = trained(job, tmp_path)
    path = crew.tasks[0].received.folder / "state-1-0.safetensors"
    data = bytearray(path.read_bytes())
    data[8 + int.from_bytes(data[:8], "little")] ^= 1  # a bit of the first slot
    path.write_bytes(data)
    with pytest.raises(Retry, match="nobody is accused"):
        crew.lie()


def test_what_was_received_does_not_change_once_it_is_signed(honest: Crew) -> None:
    """Else a leader could take a member's defence by a second run, in which it sends other tensors."""
    received = honest.tasks[1].received
    assert received.signed
    before = received.load(2)
    other: dict[int, Tensor] = {node: x.clone() for node, x in before.items()}
    assert received.save(2, other) is None
    node = next(iter(other))
    other[node].view(torch.uint8).view(-1)[0] ^= 1
    assert received.save(2, other) == node
    assert all(torch.equal(x, before[n]) for n, x in received.load(2).items())


def test_a_task_is_signed_again_at_another_attempt(job: JobArtifacts, tmp_path: Path) -> None:
    """What was received for the first attempt is no defence at the second one."""
    for attempt in range(2):
        crew = trained(job, tmp_path, attempt=attempt)
        assert all(isinstance(outcome, Segment) and outcome.roots == right(job) for outcome in crew.outcomes)
        assert all(task.received.has(range(STEPS)) and task.received.signed for task in crew.tasks)


@pytest.mark.parametrize("lost", [0, STEPS - 1])
def test_a_member_that_lost_what_it_received_begins_where_it_has_it(
    job: JobArtifacts, tmp_path: Path, lost: int, caplog: pytest.LogCaptureFixture
) -> None:
    kept = trained(job, tmp_path).tasks[1].received.folder
    (kept / "signed").unlink()
    (kept / f"{lost}.safetensors").unlink()
    with caplog.at_level(logging.INFO):
        crew = trained(job, tmp_path)
    assert f"all members begin with step {SEGMENT if lost >= SEGMENT else 0}" in caplog.messages
    assert all(isinstance(outcome, Segment) and outcome.roots == right(job) for outcome in crew.outcomes)
    assert crew.tasks[1].received.has(range(STEPS))


@pytest.mark.parametrize("lies", [LyingTask, LyingSender], ids=["in its state", "in what it sends"])
@pytest.mark.parametrize("liar", [0, 1, 2])
def test_who_flips_a_bit_is_found(
    job: JobArtifacts, tmp_path: Path, liar: int, lies: type[CrewTask], monkeypatch: pytest.MonkeyPatch
) -> None:
    crew = trained(job, tmp_path, liar, lies)
    (segment, *_) = crew.outcomes
    assert isinstance(segment, Segment) and segment.roots != right(job), "the lie is in the claim"
    assert crew.lie() == (liar, LIE.step)
    run = Counted(monkeypatch)
    crew.rebuilt(0, liar, LIE.step)
    assert run.steps == [], "the game begins with what was found"


def test_another_cut_is_a_question_and_abandons_no_job(honest: Crew) -> None:
    ref = program_ref(honest.plan.stages[0].program)
    members = tuple(Member(account(str(i)), 1, ref) for i in range(3))
    invitation = Invitation(JobId(bytes(32)), 0, Wei(1), Wei(1), Seconds(1), bytes(32), members)
    with pytest.raises(Ask, match="so nothing is trained"):
        plan_of(invitation, honest.job.inner, WorkerContext(REFERENCE), "nothing is trained")


@pytest.mark.parametrize(
    ("member", "means"),
    [
        (0, "nothing of the task is committed"),
        (1, "this member has signed the task, so the leader may commit it"),
    ],
)
def test_a_member_that_does_not_sign_is_blamed(
    job: JobArtifacts, tmp_path: Path, member: int, means: str
) -> None:
    outcome = trained(job, tmp_path, distrusts=(member, 2)).outcomes[member]
    assert isinstance(outcome, Blame) and outcome.member == 2
    assert outcome.message == f"member 2 did not sign its transcript; {means}"
