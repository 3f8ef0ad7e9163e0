"""Worker orders and job specs of cheating nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from hashlib import sha256
from math import prod
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from assay.compute.node_calls import NodeCalls
from assay.compute.orders import WorkerContext
from assay.dispute.trace import StepTrace
from assay.node.artifacts import LoadedJob, State
from assay.node.audit import keyed_trace
from assay.node.checkpoints import Checkpoint
from assay.node.engine import Engine
from assay.node.orders import JobOrder, JobSpec
from assay.node.published_states import publish_state
from assay.node.replay_cache import ReplayCache
from assay.node.states import StateProvider
from assay.node.work import Work
from assay.program.fault import Fault, NodeFault, StateFault
from assay.program.isa import Program
from assay.program.state import state_root, state_tree
from assay.protocol import trees
from assay.protocol.errors import Stop
from assay.protocol.ports import Blocks, MarketView
from assay.protocol.types import ZERO_DIGEST, ClaimView, JobId, Kind, Terms
from assay.solver.drafting import Draft, drafted
from assay.solver.orders import SolverSpec, budget_of
from assay.solver.state_publisher import OpenTask
from assay.solver.trainer import TaskTrainer, Told

if TYPE_CHECKING:
    from assay.node.job_cache import OpenJob

Spec = TypeVar("Spec", bound=JobSpec)


def spec_of(kind: type[Spec], honest: JobSpec, **more: Any) -> Spec:
    """A spec of this kind with all fields of an honest one."""
    return kind(**{field.name: getattr(honest, field.name) for field in fields(honest)}, **more)


@dataclass(frozen=True)
class TraceRoot(JobOrder[bytes]):
    """Trace root of a segment's last step under a key, whatever the claim; zeros if its start is
    unavailable."""

    view: ClaimView
    segment: int
    key: bytes

    def do(self, job: OpenJob, context: WorkerContext) -> bytes:
        found = keyed_trace(job.state_provider, self.view, self.segment, self.key)
        return found.root if isinstance(found, StepTrace) else ZERO_DIGEST


@dataclass(frozen=True)
class JunkSpec(JobSpec):
    """A job in which the replays of some tasks are wrong at a step.

    `planted`: (round, shard, step counted from the round's first).
    """

    planted: tuple[tuple[int, int, int], ...] = ()

    def make_work(self, files: LoadedJob, engine: Engine, desk: NodeCalls) -> Work:
        work = super().make_work(files, engine, desk)
        for round_, shard, step in self.planted:
            first = round_ * work.terms.main.of(shard).steps
            work.faults[round_, shard] = NodeFault(first + step, files.inner.outputs[0], 0)
        return work


@dataclass(frozen=True)
class CheatSpec(SolverSpec):
    """A job of a cheating solver. Opening it raises Stop if the cheat is impossible in the job."""

    def misfit(self, files: LoadedJob) -> str:
        """Why this cheat is impossible in the job; empty if it is possible."""
        return ""

    def make_work(self, files: LoadedJob, engine: Engine, desk: NodeCalls) -> Work:
        if why := self.misfit(files):
            raise Stop(
                f"this drill does not fit the job: {why}; no shard of it is taken",
                hint="give the drill another round, step, slot or element, or post a larger job",
                code="drill-misfit",
            )
        return super().make_work(files, engine, desk)


@dataclass(frozen=True)
class Plan:
    """Place of a fault: in the task of this round and shard, in its training or another loop."""

    round: int
    shard: int
    fault: Fault
    loop: int | None = None


_OFF = "off by one unit in the last place"


@dataclass(frozen=True)
class WeightPlan:
    """Changes one element of the value computed for a slot at one step of a round by one ulp, in every shard
    held.

    `step`: counted from the round's first.
    """

    round: int
    step: int
    slot: int
    element: int

    def __str__(self) -> str:
        return (
            f"in round {self.round}, step {self.step}, element {self.element} of slot {self.slot} is {_OFF}"
        )


@dataclass(frozen=True)
class StatePlan(WeightPlan):
    """As `WeightPlan`, but only in the claimed state: the step's trace is honest."""

    def __str__(self) -> str:
        return f"{super().__str__()}, in the claimed state alone"


@dataclass(frozen=True)
class AggregatePlan:
    """Changes one element of a slot that the outer step computes by one ulp, in every round."""

    slot: int
    element: int

    def __str__(self) -> str:
        return f"in every outer step, element {self.element} of slot {self.slot} is {_OFF}"


@dataclass(frozen=True)
class FaultySpec(CheatSpec):
    """Plants one fault in the computation."""

    plan: Plan | WeightPlan | AggregatePlan | None = None

    def make_work(self, files: LoadedJob, engine: Engine, desk: NodeCalls) -> Work:
        plan, terms, work = self.plan, self.terms, super().make_work(files, engine, desk)
        tasks: dict[tuple[int, ...], Fault] = {}
        outer: dict[int, Fault] = {}
        if isinstance(plan, Plan):
            where = (plan.round, plan.shard)
            tasks = {where if plan.loop is None else (*where, plan.loop): plan.fault}
        elif isinstance(plan, AggregatePlan):
            node = files.outer.outputs[plan.slot]
            outer = {round_: NodeFault(round_, node, plan.element) for round_ in range(terms.rounds)}
        elif plan is not None:
            node = files.inner.outputs[plan.slot]
            for shard in range(terms.shards):
                step = plan.round * terms.main.of(shard).steps + plan.step
                tasks[plan.round, shard] = (
                    StateFault(step, plan.slot, plan.element)
                    if isinstance(plan, StatePlan)
                    else NodeFault(step, node, plan.element)
                )
        desk.books.told("fault-planted", {"plan": str(plan), "faults": str(tasks or outer)})
        work.faults.update(tasks)
        work.outer_faults.update(outer)
        return work

    def misfit(self, files: LoadedJob) -> str:
        plan, terms = self.plan, self.terms
        if plan is None or isinstance(plan, Plan):
            return ""
        if isinstance(plan, AggregatePlan):
            return _no_element(files.outer, plan.slot, plan.element)
        steps = max(terms.main.of(shard).steps for shard in range(terms.shards))
        if plan.round >= terms.rounds:
            return before_round(terms, plan.round)
        if plan.step >= steps:
            return f"it asks for step {plan.step} of a round, and a round has {steps} steps, counted from 0"
        return _no_element(files.inner, plan.slot, plan.element)


def _no_element(program: Program, slot: int, element: int) -> str:
    """The error text if a program's next state has no such element; empty if it has."""
    if slot >= program.slots:
        return f"it asks for slot {slot}, and the state has {program.slots} slots, counted from 0"
    if element >= (size := prod(program.nodes[program.outputs[slot]].shape)):
        return f"it asks for element {element} of slot {slot}, which has {size}, counted from 0"
    return ""


def before_round(terms: Terms, first: int) -> str:
    """The error text if a job ends before this round; empty if it does not."""
    if terms.rounds > first:
        return ""
    return f"it happens in round {first}, and the job has {terms.rounds} rounds, counted from 0"


@dataclass(frozen=True)
class WrongDataSpec(CheatSpec):
    """Trains on records of another seed."""

    def make_work(self, files: LoadedJob, engine: Engine, desk: NodeCalls) -> Work:
        other = sha256(b"records of my own choice" + self.terms.seed).digest()
        desk.books.told("fault-planted", {"plan": "trains on records of its own choice"})
        return Work(replace(self.terms, seed=other), files, engine=engine)


@dataclass(frozen=True)
class IdleSpec(CheatSpec):
    """Computes nothing from a round on."""

    first_round: int = 0

    def misfit(self, files: LoadedJob) -> str:
        return before_round(self.terms, self.first_round)


class _Inventions(TaskTrainer):
    """Claims of tasks that were never computed; nothing is published."""

    def train(self, round_: int, shard: int, *, ahead: bool, told: Told) -> None:
        place, segments = (self.job_id, round_, shard), self.work.terms.segments
        if ahead:
            self._books.opened(*place, ZERO_DIGEST, None, segments)
            return
        start, sources = self.inputs.root(round_, shard), self.inputs.sources(round_, shard)
        name = b"invented" + self.job_id + bytes([round_ % 256, shard % 256])
        ends = (sha256(name + bytes([i % 256])).digest() for i in range(segments))
        leaves = [Checkpoint("", root) for root in (start, *ends)]
        task = OpenTask(round_, shard, start, leaves, [])
        self._books.opened(*place, start, sources, segments)
        self._books.drafted(*place, start, drafted(self._blocks, self._place_of(task), leaves))


@dataclass(frozen=True)
class InventingSpec(CheatSpec):
    """Invents the states at all segments' ends."""

    def make_trainer(self, job: OpenJob) -> TaskTrainer:
        desk = job.desk
        desk.books.told("fault-planted", {"plan": "invents every segment of its tasks"})
        return _Inventions(desk.market, job.blocks, job.state_provider, desk.books)


class Patchwork(TaskTrainer):
    """Trains tasks honestly and claims other states: `patch` returns the claimed segment ends."""

    def __init__(self, *args: Any, patch: Patch, **options: Any) -> None:
        super().__init__(*args, **options)
        self.patch = patch

    def published_between(self, task: OpenTask, share: float) -> Checkpoint:
        """Publishes a state interpolated between the task's first and last."""
        start = self.state_provider.input_state(Kind.TASK, task.round, task.shard)
        end = self._resuming.state(task.leaves[-1])
        assert end is not None, "it was stored just now"
        mixed = [
            torch.lerp(a, b, share) if a.is_floating_point() else a for a, b in zip(start, end, strict=True)
        ]
        return publish_state(self._blocks, mixed)

    def draft_of(self, task: OpenTask) -> Draft:
        return drafted(self._blocks, self._place_of(task), self.patch(self, task))


Patch = Callable[[Patchwork, OpenTask], list[Checkpoint]]


def interpolated(trainer: Patchwork, task: OpenTask) -> list[Checkpoint]:
    """First and last state are right, those between are interpolated."""
    leaves = task.leaves
    last = len(leaves) - 1
    return [leaves[0], *(trainer.published_between(task, i / last) for i in range(1, last)), leaves[-1]]


def half_invented(trainer: Patchwork, task: OpenTask) -> list[Checkpoint]:
    """The first half of the segments is right, the rest is invented."""
    kept = task.leaves[: len(task.leaves) // 2 + 1]
    made_up = (sha256(b"made up" + leaf.root).digest() for leaf in task.leaves[len(kept) :])
    return [*kept, *(Checkpoint("", root) for root in made_up)]


@dataclass(frozen=True)
class PatchworkSpec(CheatSpec):
    """Claims other states at some segment ends than were computed."""

    patch: Patch = interpolated

    def misfit(self, files: LoadedJob) -> str:
        return "" if self.terms.segments > 1 else "a task has one segment, and no state between its ends"

    def make_trainer(self, job: OpenJob) -> TaskTrainer:
        desk, plan = job.desk, f"claims states that it has not computed: {self.patch.__name__}"
        desk.books.told("fault-planted", {"plan": plan})
        parts = (desk.market, job.blocks, job.state_provider, desk.books, budget_of(self, job))
        return Patchwork(*parts, patch=self.patch)


InputPatch = Callable[[Kind, int, int, Callable[[Kind, int, int], State]], State]
"""Maps (kind, round, shard, honest function) to the input state that the cheat uses."""


class _Wrong(StateProvider):
    """The cheat's version of claims' input states."""

    def __init__(self, *args: Any, patch: InputPatch, books: Any) -> None:
        super().__init__(*args)
        self._patch, self._books = patch, books
        self._told: set[tuple[Kind, int, int]] = set()

    def input_state(self, kind: Kind, round_: int, shard: int) -> State:
        honest, place = super().input_state, (kind, round_, shard)
        state = self._patch(*place, honest)
        if place not in self._told and state_root(state) != state_root(honest(*place)):
            self._told.add(place)
            where = f"{kind.name.lower()} {round_}/{shard}"
            plan = f"{self._patch.__name__}: {where} starts from a wrong state"
            self._books.told("fault-planted", {"plan": plan})
        return state

    def input_tree(self, kind: Kind, round_: int, shard: int) -> trees.Tree:
        return state_tree(self.input_state(kind, round_, shard))


def restart(kind: Kind, round_: int, shard: int, honest: Callable[[Kind, int, int], State]) -> State:
    """Starts every task from the genesis state."""
    return honest(kind, 0 if kind == Kind.TASK else round_, shard)


def invent(kind: Kind, round_: int, shard: int, honest: Callable[[Kind, int, int], State]) -> State:
    """Starts every task after the first round from an invented state."""
    state = honest(kind, round_, shard)
    if kind == Kind.OUTER or round_ == 0:
        return state
    return [x + 1 if x.is_floating_point() else x for x in state]


def omit_last_shard(kind: Kind, round_: int, shard: int, honest: Callable[[Kind, int, int], State]) -> State:
    """Takes the last shard's last parameter tensor as zero in the aggregate."""
    state = honest(kind, round_, shard)
    return [*state[:-1], torch.zeros_like(state[-1])] if kind == Kind.OUTER else state


@dataclass(frozen=True)
class WrongInputSpec(CheatSpec):
    """Computes honestly from a wrong input state."""

    patch: InputPatch = restart
    first_round: int = 0

    def misfit(self, files: LoadedJob) -> str:
        return before_round(self.terms, self.first_round)

    def make_states(
        self, market: MarketView, blocks: Blocks, work: Work, kept: ReplayCache | None, books: Any
    ) -> StateProvider:
        parts = (market, blocks, JobId(self.job_id), work, self.limits.cache_bytes, kept)
        return _Wrong(*parts, patch=self.patch, books=books)
