"""Solvers that cheat on purpose, for devnets and tests. No honest node is ever made from these.

Each is the honest solver with one thing patched (``drills.orders``), and defends its claims to the end with
the same patch. It reports the event ``fault-planted``. Once convicted it takes no new shard and commits no
further aggregate. A job in which its cheat is impossible is refused before it takes a shard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from assay.node.role import Action
from assay.protocol.types import JobId, Phase
from assay.solver import policy
from assay.solver.observation import Observation
from assay.solver.orders import SolverSpec
from assay.solver.service import SolverService
from drills.orders import (
    AggregatePlan,
    CheatSpec,
    FaultySpec,
    IdleSpec,
    InputPatch,
    InventingSpec,
    Patch,
    PatchworkSpec,
    Plan,
    WeightPlan,
    WrongDataSpec,
    WrongInputSpec,
    spec_of,
)


class WaitingSolver(SolverService):
    """An honest `SolverService` that takes no shard before its price has risen by a fifth."""

    def decide(self) -> Sequence[Action]:
        return [each for each in super().decide() if not self._is_early(each)]

    def _is_early(self, action: Action) -> bool:
        if not isinstance(action, policy.TakeShard):
            return False
        terms = self.market.job(action.job_id).terms
        return 5 * action.price < 4 * terms.price_floor + terms.price_cap


class CheatingSolver(SolverService):
    """`SolverService` that takes no more work after its conviction, so that the others can end the job."""

    kind: type[CheatSpec] = CheatSpec

    def __init__(self, *args: Any, **options: Any) -> None:
        self.cheat: dict[str, Any] = {}
        """Additional fields of its specs."""
        super().__init__(*args, **options)

    def spec(self, job_id: JobId) -> SolverSpec:
        return spec_of(self.kind, super().spec(job_id), **self.cheat)

    def convicted(self, observation: Observation) -> bool:
        """True if a claim of this account has fallen."""
        return any(
            view.claim.claimant == self.market.me and view.status.phase == Phase.CONVICTED
            for job in observation.jobs
            for view in job.claims
        )

    def see(self) -> Observation:
        observation = super().see()
        retire = observation.limits.retire or self.convicted(observation)
        return replace(observation, limits=replace(observation.limits, retire=retire))

    async def _commit_outer(self, action: policy.CommitOuter) -> None:
        if not self.convicted(self.see()):
            await super()._commit_outer(action)


class FaultySolver(CheatingSolver):
    """`SolverService` whose computation has one planted fault."""

    kind = FaultySpec

    def __init__(self, *args: Any, plan: Plan | WeightPlan | AggregatePlan, **options: Any) -> None:
        super().__init__(*args, **options)
        self.cheat["plan"] = plan


class WrongDataSolver(CheatingSolver):
    """`SolverService` that trains on records of another seed."""

    kind = WrongDataSpec


class HidingSolver(CheatingSolver):
    """`SolverService` that trains honestly and publishes none of its committed states."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._hidden: set[int] = set()

    async def _supply(self, action: policy.Supply) -> None:
        if action.demand_id not in self._hidden:
            self._hidden.add(action.demand_id)
            plan = f"shows nothing on demand {action.demand_id}"
            self.report.emit("fault-planted", job=action.job_id.hex(), plan=plan)


class InventingSolver(CheatingSolver):
    """`SolverService` that invents the states at all segments' ends."""

    kind = InventingSpec


class PatchworkSolver(CheatingSolver):
    """`SolverService` that trains its tasks and claims other states at some segments' ends."""

    kind = PatchworkSpec

    def __init__(self, *args: Any, patch: Patch, **options: Any) -> None:
        super().__init__(*args, **options)
        self.cheat["patch"] = patch


class IdleSolver(CheatingSolver):
    """`SolverService` that computes nothing from a round on; once idle, it takes no other shard."""

    kind = IdleSpec

    def __init__(self, *args: Any, first_round: int, **options: Any) -> None:
        super().__init__(*args, **options)
        self.first_round = self.cheat["first_round"] = first_round
        self.idle = False

    def see(self) -> Observation:
        observation = super().see()
        return replace(
            observation, limits=replace(observation.limits, retire=observation.limits.retire or self.idle)
        )

    async def _train(self, action: policy.TrainSegment | policy.TrainAhead) -> None:
        if isinstance(action, policy.TrainAhead) or action.round < self.first_round:
            await super()._train(action)
        elif not self.idle:
            self.idle = True
            self.report.emit("fault-planted", plan=f"leaves task {action.round}/{action.shard} undone")


class WrongInputSolver(CheatingSolver):
    """`SolverService` that computes honestly from a wrong input. `first_round`: first round in which `patch`
    has an effect."""

    kind = WrongInputSpec

    def __init__(self, *args: Any, patch: InputPatch, first_round: int = 0, **options: Any) -> None:
        super().__init__(*args, **options)
        self.cheat |= {"patch": patch, "first_round": first_round}
