"""A solver that cheats on purpose, for devnets, drills and tests. No honest node is ever made from this.

It is the honest solver with one thing patched: at one step of one task a single element differs by its lowest
bit, and it defends that claim to the end with the same faulty replay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from program.fault import Fault
from protocol.types import Terms
from solver.service import SolverService
from training.artifacts import LoadedJob
from training.work import Work


@dataclass(frozen=True)
class Plan:
    """Where the cheat cheats: the fault, in the task of this round and shard."""

    round: int
    shard: int
    fault: Fault


class FaultySolver(SolverService):
    """`SolverService` whose own computation carries one planted fault."""

    def __init__(self, *args: Any, plan: Plan, **options: Any) -> None:
        super().__init__(*args, **options)
        self.plan = plan

    def make_work(self, terms: Terms, files: LoadedJob) -> Work:
        faults = {(self.plan.round, self.plan.shard): self.plan.fault}
        return Work(terms, files, device=self._device, kernels=self._kernels, faults=faults)
