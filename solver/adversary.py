"""A solver that cheats on purpose, for devnets, drills and tests. No honest node is ever made from this.

It is the honest solver with one thing patched: at one step of one task a single element differs by its lowest
bit, and it defends that claim to the end with the same faulty replay. Once convicted it takes no new shard.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from program.fault import Fault, NodeFault
from protocol.types import JobView, Kind, Phase, Terms
from solver.policy import Sight
from solver.service import SolverService
from solver.workshop import Workshop
from training.artifacts import LoadedJob, State
from training.work import Work


@dataclass(frozen=True)
class Plan:
    """Where the cheat cheats: the fault, in the task of this round and shard."""

    round: int
    shard: int
    fault: Fault


@dataclass(frozen=True)
class WeightPlan:
    """One element of the value computed for a slot at one step of a round is off by one ulp, in every shard
    held. `step`: counted from the round's first."""

    round: int
    step: int
    slot: int
    element: int


class FaultySolver(SolverService):
    """`SolverService` whose own computation carries one planted fault."""

    def __init__(self, *args: Any, plan: Plan | WeightPlan, **options: Any) -> None:
        super().__init__(*args, **options)
        self.plan = plan

    def make_work(self, terms: Terms, files: LoadedJob) -> Work:
        plan = self.plan
        if isinstance(plan, Plan):
            faults: dict[tuple[int, int], Fault] = {(plan.round, plan.shard): plan.fault}
        else:
            step = plan.round * terms.steps_per_round + plan.step
            fault = NodeFault(step, files.inner.outputs[plan.slot], plan.element)
            faults = {(plan.round, shard): fault for shard in range(terms.shards)}
        self.emit("fault-planted", plan=str(plan), faults=str(faults))
        return Work(terms, files, device=self._device, kernels=self._kernels, faults=faults)

    def see(self) -> Sight:
        sight = super().see()
        convicted = any(
            view.claim.claimant == self.market.me and view.status.phase == Phase.CONVICTED
            for job in sight.jobs
            for view in job.claims
        )
        return replace(sight, limits=replace(sight.limits, retire=True)) if convicted else sight


InputPatch = Callable[[Kind, int, int, Callable[[Kind, int, int], State]], State]
"""(kind, round, shard, the honest function) -> the input state that the cheat uses."""


class WrongInputSolver(SolverService):
    """`SolverService` that computes honestly from a wrong input state."""

    def __init__(self, *args: Any, patch: InputPatch, **options: Any) -> None:
        super().__init__(*args, **options)
        self.patch = patch

    def make_shop(self, job: JobView, work: Work) -> Workshop:
        shop = Workshop(self.market, self.blocks, job, work, self._progress)
        honest = shop.lineage.input_state

        def input_state(kind: Kind, round_: int, shard: int) -> State:
            return self.patch(kind, round_, shard, honest)

        shop.lineage.input_state = input_state  # type: ignore[method-assign]
        return shop


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
