"""Orders of a solver to its workers: train a task, compute an outer claim.

Contract: as ``node.orders``. A worker reports its progress to the node (``solver.worker_reports``); its
states are in the node's block store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.compute.orders import WorkerContext
from assay.node.orders import JobOrder, JobSpec
from assay.solver.disk_budget import DiskBudget
from assay.solver.drafting import Draft

if TYPE_CHECKING:
    from assay.node.job_cache import OpenJob
    from assay.solver.trainer import TaskTrainer


@dataclass(frozen=True)
class Room:
    """Disk budget of the node's blocks, for this many shards."""

    limit_bytes: int
    shards: int


@dataclass(frozen=True)
class SolverSpec(JobSpec):
    """Spec of a job whose tasks are trained."""

    room: Room | None = None

    def make_trainer(self, job: OpenJob) -> TaskTrainer:
        """Creates the trainer of its tasks (a drill overrides this)."""
        from assay.solver.trainer import TaskTrainer

        return TaskTrainer(
            job.desk.market, job.blocks, job.state_provider, job.desk.books, budget_of(self, job)
        )


def budget_of(spec: SolverSpec, job: OpenJob) -> DiskBudget | None:
    """Disk budget of the job's blocks; None if unlimited."""
    room = spec.room
    return None if room is None else DiskBudget(room.limit_bytes, job.desk.books.used_bytes, room.shards)


def trainer_of(job: OpenJob) -> TaskTrainer:
    """This worker's trainer of the job."""
    from assay.solver.trainer import TaskTrainer

    if job.role is None:
        assert isinstance(job.spec, SolverSpec)
        job.role = job.spec.make_trainer(job)
    assert isinstance(job.role, TaskTrainer)
    return job.role


@dataclass(frozen=True)
class Train(JobOrder[None]):
    """Trains a task until it is complete or the node wants something else. `ahead`: a task of the coming
    round."""

    round: int
    shard: int
    ahead: bool

    @property
    def affinity(self) -> str:
        return f"{self.job.job_id.hex()}/{self.shard}"

    def do(self, job: OpenJob, context: WorkerContext) -> None:
        trainer_of(job).train(self.round, self.shard, ahead=self.ahead, told=context.progress)


@dataclass(frozen=True)
class DraftOuter(JobOrder[Draft]):
    """Computes and publishes a slice's outer step."""

    round: int
    number: int

    def do(self, job: OpenJob, context: WorkerContext) -> Draft:
        return trainer_of(job).outer_draft(self.round, self.number, context.progress)
