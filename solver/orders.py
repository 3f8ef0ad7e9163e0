"""What a solver orders of its workers: to train a task, and to compute an outer claim.

Contract: as ``node.orders``. What a worker trains it tells the node as it goes (``solver.books``); its states
are in the node's block store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.compute.orders import Bench
from assay.node.orders import JobOrder, JobSpec
from assay.solver.drafting import Draft
from assay.solver.room import DiskBudget

if TYPE_CHECKING:
    from assay.node.opened import OpenJob
    from assay.solver.trainer import TaskTrainer


@dataclass(frozen=True)
class Room:
    """What the operator gives a node's blocks, for so many shards."""

    limit_bytes: int
    shards: int


@dataclass(frozen=True)
class SolverSpec(JobSpec):
    """A job whose tasks are trained."""

    room: Room | None = None

    def make_trainer(self, job: OpenJob) -> TaskTrainer:
        """Where its tasks are trained (a drill overrides this)."""
        from assay.solver.trainer import TaskTrainer

        return TaskTrainer(
            job.desk.market, job.blocks, job.state_provider, job.desk.books, budget_of(self, job)
        )


def budget_of(spec: SolverSpec, job: OpenJob) -> DiskBudget | None:
    """What the job's blocks may take."""
    room = spec.room
    return None if room is None else DiskBudget(room.limit_bytes, job.desk.books.used_bytes, room.shards)


def trainer_of(job: OpenJob) -> TaskTrainer:
    """The job's trainer in this worker."""
    from assay.solver.trainer import TaskTrainer

    if job.role is None:
        assert isinstance(job.spec, SolverSpec)
        job.role = job.spec.make_trainer(job)
    assert isinstance(job.role, TaskTrainer)
    return job.role


@dataclass(frozen=True)
class Train(JobOrder[None]):
    """Train a task until it is over, or until the node wants something else. `ahead`: of the coming round."""

    round: int
    shard: int
    ahead: bool

    @property
    def affinity(self) -> str:
        return f"{self.job.job_id.hex()}/{self.shard}"

    def do(self, job: OpenJob, bench: Bench) -> None:
        trainer_of(job).train(self.round, self.shard, ahead=self.ahead, told=bench.progress)


@dataclass(frozen=True)
class DraftOuter(JobOrder[Draft]):
    """Compute and publish a slice's outer step."""

    round: int
    number: int

    def do(self, job: OpenJob, bench: Bench) -> Draft:
        return trainer_of(job).outer_draft(self.round, self.number, bench.progress)
