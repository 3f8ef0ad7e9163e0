"""Solvers that cheat on purpose, for devnets and tests. No honest node is ever made from these.

Each is the honest solver with one thing patched, and defends what it claims to the end with the same patch.
It says so with the event ``fault-planted``. Once convicted it takes no new shard and commits no further
aggregate. A job in which its cheat cannot happen is refused before it takes a shard.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from math import prod
from typing import Any

import torch

from assay.node.artifacts import LoadedJob, State
from assay.node.checkpoints import Checkpoint, publish_state
from assay.node.states import StateProvider
from assay.node.work import Work
from assay.program.fault import Fault, NodeFault, StateFault
from assay.program.isa import Program
from assay.program.state import state_root, state_tree
from assay.protocol import trees
from assay.protocol.errors import Stop
from assay.protocol.types import JobView, Kind, Phase, Terms
from assay.solver import policy
from assay.solver.drafting import Draft
from assay.solver.observation import Observation
from assay.solver.service import SolverService
from assay.solver.storing import OpenTask
from assay.solver.trainer import TaskTrainer


class CheatingSolver(SolverService):
    """`SolverService` that keeps out of the way after its conviction, so that the others can end the job."""

    def misfit(self, terms: Terms, files: LoadedJob) -> str:
        """Why this cheat cannot happen in a job; empty if it can."""
        return ""

    def make_work(self, terms: Terms, files: LoadedJob) -> Work:
        """Raises Stop for a job in which the cheat cannot happen."""
        if why := self.misfit(terms, files):
            raise Stop(
                f"this drill does not fit the job: {why}; no shard of it is taken",
                hint="give the drill another round, step, slot or element, or post a larger job",
                code="drill-misfit",
            )
        return super().make_work(terms, files)

    def convicted(self, observation: Observation) -> bool:
        """Whether a claim of this account has fallen."""
        return any(
            view.claim.claimant == self.market.me and view.status.phase == Phase.CONVICTED
            for job in observation.jobs
            for view in job.claims
        )

    def see(self) -> Observation:
        observation = super().see()
        retire = observation.limits.retire or self.convicted(observation)
        return replace(observation, limits=replace(observation.limits, retire=retire))

    def _commit_outer(self, action: policy.CommitOuter) -> None:
        if not self.convicted(self.see()):
            super()._commit_outer(action)


@dataclass(frozen=True)
class Plan:
    """Where the cheat cheats: the fault, in the task of this round and shard; in its training, or in another
    of its loops."""

    round: int
    shard: int
    fault: Fault
    loop: int | None = None


_OFF = "off by one unit in the last place"


@dataclass(frozen=True)
class WeightPlan:
    """One element of the value computed for a slot at one step of a round is off by one ulp, in every shard
    held. `step`: counted from the round's first."""

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
    """The same, but in the claimed state alone: the step's own trace is honest."""

    def __str__(self) -> str:
        return f"{super().__str__()}, in the claimed state alone"


@dataclass(frozen=True)
class AggregatePlan:
    """One element of a slot that the outer step computes is off by one ulp, in every round."""

    slot: int
    element: int

    def __str__(self) -> str:
        return f"in every outer step, element {self.element} of slot {self.slot} is {_OFF}"


class FaultySolver(CheatingSolver):
    """`SolverService` whose own computation carries one planted fault."""

    def __init__(self, *args: Any, plan: Plan | WeightPlan | AggregatePlan, **options: Any) -> None:
        super().__init__(*args, **options)
        self.plan = plan

    def make_work(self, terms: Terms, files: LoadedJob) -> Work:
        plan, work = self.plan, super().make_work(terms, files)
        tasks: dict[tuple[int, ...], Fault] = {}
        outer: dict[int, Fault] = {}
        if isinstance(plan, Plan):
            where = (plan.round, plan.shard)
            tasks = {where if plan.loop is None else (*where, plan.loop): plan.fault}
        elif isinstance(plan, AggregatePlan):
            node = files.outer.outputs[plan.slot]
            outer = {round_: NodeFault(round_, node, plan.element) for round_ in range(terms.rounds)}
        else:
            node = files.inner.outputs[plan.slot]
            for shard in range(terms.shards):
                step = plan.round * terms.main.of(shard).steps + plan.step
                tasks[plan.round, shard] = (
                    StateFault(step, plan.slot, plan.element)
                    if isinstance(plan, StatePlan)
                    else NodeFault(step, node, plan.element)
                )
        self.emit("fault-planted", plan=str(plan), faults=str(tasks or outer))
        work.faults.update(tasks)
        work.outer_faults.update(outer)
        return work

    def misfit(self, terms: Terms, files: LoadedJob) -> str:
        plan = self.plan
        if isinstance(plan, Plan):
            return ""
        if isinstance(plan, AggregatePlan):
            return _no_element(files.outer, plan.slot, plan.element)
        steps = max(terms.main.of(shard).steps for shard in range(terms.shards))
        if plan.round >= terms.rounds:
            return _before_round(terms, plan.round)
        if plan.step >= steps:
            return f"it asks for step {plan.step} of a round, and a round has {steps} steps, counted from 0"
        return _no_element(files.inner, plan.slot, plan.element)


def _no_element(program: Program, slot: int, element: int) -> str:
    """What to say where a program's next state has no such element; empty where it has."""
    if slot >= program.slots:
        return f"it asks for slot {slot}, and the state has {program.slots} slots, counted from 0"
    if element >= (size := prod(program.nodes[program.outputs[slot]].shape)):
        return f"it asks for element {element} of slot {slot}, which has {size}, counted from 0"
    return ""


def _before_round(terms: Terms, first: int) -> str:
    """What to say where a job ends before this round; empty where it does not."""
    if terms.rounds > first:
        return ""
    return f"it happens in round {first}, and the job has {terms.rounds} rounds, counted from 0"


class WrongDataSolver(CheatingSolver):
    """`SolverService` that trains on other records than those it is told to: those of another seed."""

    def make_work(self, terms: Terms, files: LoadedJob) -> Work:
        other = sha256(b"records of my own choice" + terms.seed).digest()
        self.emit("fault-planted", plan="trains on records of its own choice")
        return super().make_work(replace(terms, seed=other), files)


class HidingSolver(CheatingSolver):
    """`SolverService` that trains honestly, and shows nobody a byte of what it has committed to."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._hidden: set[int] = set()

    def _supply(self, action: policy.Supply) -> None:
        if action.demand_id not in self._hidden:
            self._hidden.add(action.demand_id)
            plan = f"shows nothing on demand {action.demand_id}"
            self.emit("fault-planted", job=action.job_id.hex(), plan=plan)


class _Inventions(TaskTrainer):
    """Claims of tasks that nobody ever computed; nothing is published of them."""

    def segments_done(self, round_: int, shard: int, rewinds: int) -> int:
        self.inputs.root(round_, shard, rewinds)
        return self.work.terms.segments

    def task_draft(self, round_: int, shard: int, rewinds: int) -> Draft:
        start = self.inputs.root(round_, shard, rewinds)
        place = b"invented" + self.job_id + bytes([round_ % 256, shard % 256])
        ends = (sha256(place + bytes([i % 256])).digest() for i in range(self.work.terms.segments))
        return self._draft(Kind.TASK, round_, shard, [Checkpoint("", root) for root in (start, *ends)])


class InventingSolver(CheatingSolver):
    """`SolverService` that invents the states at all segments' ends and computes none of them."""

    def make_shop(self, job: JobView, work: Work, kind: type[TaskTrainer] = TaskTrainer) -> TaskTrainer:
        self.emit("fault-planted", plan="invents every segment of its tasks")
        return _Inventions(self.market, self.blocks, job, work, self._progress)


class _Patchwork(TaskTrainer):
    """Tasks that are trained honestly, and claimed otherwise: `patch` gives the ends that are claimed."""

    def __init__(self, *args: Any, patch: Callable[[_Patchwork], list[Checkpoint]], **options: Any) -> None:
        super().__init__(*args, **options)
        self.patch = patch
        self.last = 0, 0

    def honest_ends(self) -> list[Checkpoint]:
        """The states at the ends of the segments of the task that was trained last, as published."""
        return self.drafted().leaves

    def drafted(self) -> OpenTask:
        """The task that a claim was asked of last."""
        return next(task for task in self._in_memory() if task.place[:2] == self.last)

    def published_between(self, share: float) -> Checkpoint:
        """A state between the task's first and last, published like any other."""
        task = self.drafted()
        start = self.state_provider.input_state(Kind.TASK, task.round, task.shard)
        end = self._resuming.state(task.leaves[-1])
        assert end is not None, "it was stored just now"
        mixed = [
            torch.lerp(a, b, share) if a.is_floating_point() else a for a, b in zip(start, end, strict=True)
        ]
        return publish_state(self._blocks, mixed)

    def task_draft(self, round_: int, shard: int, rewinds: int) -> Draft:
        super().task_draft(round_, shard, rewinds)
        self.last = round_, shard
        return self._draft(Kind.TASK, round_, shard, self.patch(self))


def interpolated(shop: _Patchwork) -> list[Checkpoint]:
    """The first state and the last are right, and what lies between is drawn with a ruler."""
    leaves = shop.honest_ends()
    between = [shop.published_between(i / (len(leaves) - 1)) for i in range(1, len(leaves) - 1)]
    return [leaves[0], *between, leaves[-1]]


def half_invented(shop: _Patchwork) -> list[Checkpoint]:
    """The first half of the segments is right, and the rest is made up."""
    leaves = shop.honest_ends()
    kept = leaves[: len(leaves) // 2 + 1]
    made_up = (sha256(b"made up" + leaf.root).digest() for leaf in leaves[len(kept) :])
    return [*kept, *(Checkpoint("", root) for root in made_up)]


class PatchworkSolver(CheatingSolver):
    """`SolverService` that trains its tasks, and claims other states at some of the segments' ends."""

    def __init__(self, *args: Any, patch: Callable[[_Patchwork], list[Checkpoint]], **options: Any) -> None:
        super().__init__(*args, **options)
        self.patch = patch

    def misfit(self, terms: Terms, files: LoadedJob) -> str:
        return "" if terms.segments > 1 else "a task has one segment, and no state between its ends"

    def make_shop(self, job: JobView, work: Work, kind: type[TaskTrainer] = TaskTrainer) -> TaskTrainer:
        self.emit("fault-planted", plan=f"claims states that it has not computed: {self.patch.__name__}")
        return _Patchwork(self.market, self.blocks, job, work, self._progress, patch=self.patch)


class IdleSolver(CheatingSolver):
    """`SolverService` that holds its shard and computes nothing from a round on; once idle, it takes no
    other."""

    def __init__(self, *args: Any, first_round: int, **options: Any) -> None:
        super().__init__(*args, **options)
        self.first_round = first_round
        self.idle = False

    def misfit(self, terms: Terms, files: LoadedJob) -> str:
        return _before_round(terms, self.first_round)

    def see(self) -> Observation:
        observation = super().see()
        return replace(
            observation, limits=replace(observation.limits, retire=observation.limits.retire or self.idle)
        )

    def _train(self, action: policy.TrainSegment) -> None:
        if action.round < self.first_round:
            super()._train(action)
        elif not self.idle:
            self.idle = True
            self.emit("fault-planted", plan=f"leaves task {action.round}/{action.shard} undone")


InputPatch = Callable[[Kind, int, int, Callable[[Kind, int, int], State]], State]
"""(kind, round, shard, the honest function) -> the input state that the cheat uses."""


class WrongInputSolver(CheatingSolver):
    """`SolverService` that computes honestly from a wrong input state. `first_round`: the first in which
    `patch` changes anything."""

    def __init__(self, *args: Any, patch: InputPatch, first_round: int = 0, **options: Any) -> None:
        super().__init__(*args, **options)
        self.patch, self.first_round = patch, first_round

    def misfit(self, terms: Terms, files: LoadedJob) -> str:
        return _before_round(terms, self.first_round)

    def make_shop(self, job: JobView, work: Work, kind: type[TaskTrainer] = TaskTrainer) -> TaskTrainer:
        solver = self
        told: set[tuple[Kind, int, int]] = set()

        class Wrong(StateProvider):
            """What the cheat believes that claims start from."""

            def input_state(self, kind: Kind, round_: int, shard: int) -> State:
                honest, place = super().input_state, (kind, round_, shard)
                state = solver.patch(*place, honest)
                if place not in told and state_root(state) != state_root(honest(*place)):
                    told.add(place)
                    where = f"{kind.name.lower()} {round_}/{shard}"
                    plan = f"{solver.patch.__name__}: {where} starts from a wrong state"
                    solver.emit("fault-planted", plan=plan)
                return state

            def input_tree(self, kind: Kind, round_: int, shard: int) -> trees.Tree:
                return state_tree(self.input_state(kind, round_, shard))

        class Misled(TaskTrainer):
            """Trains from that."""

            states = Wrong

        return super().make_shop(job, work, Misled)


def restart(kind: Kind, round_: int, shard: int, honest: Callable[[Kind, int, int], State]) -> State:
    """Every task starts from the genesis state, whatever the others did."""
    return honest(kind, 0 if kind == Kind.TASK else round_, shard)


def invent(kind: Kind, round_: int, shard: int, honest: Callable[[Kind, int, int], State]) -> State:
    """Every task after the first round starts from a state that nobody else has."""
    state = honest(kind, round_, shard)
    if kind == Kind.OUTER or round_ == 0:
        return state
    return [x + 1 if x.is_floating_point() else x for x in state]


def omit_last_shard(kind: Kind, round_: int, shard: int, honest: Callable[[Kind, int, int], State]) -> State:
    """The aggregate counts the last shard's last parameter tensor as zero."""
    state = honest(kind, round_, shard)
    return [*state[:-1], torch.zeros_like(state[-1])] if kind == Kind.OUTER else state
