"""A solver whose first tasks wait for each other: they end only if two are trained at the same time."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.node.job_cache import OpenJob
from assay.solver.orders import SolverSpec
from assay.solver.service import SolverService
from assay.solver.trainer import TaskTrainer, Told
from drills.orders import spec_of

MEET_S = 90.0


class MeetingTrainer(TaskTrainer):
    """Leaves its process's id at each task of round 0, and waits for that of another shard."""

    folder = Path()

    def train(self, round_: int, shard: int, *, ahead: bool, told: Told) -> None:
        if round_ == 0:
            (self.folder / f"shard-{shard}").write_text(str(os.getpid()))
            deadline = time.monotonic() + MEET_S
            while len(list(self.folder.glob("shard-*"))) < 2:
                if time.monotonic() > deadline:
                    raise ValueError("no other task is trained meanwhile")
                time.sleep(0.01)
        super().train(round_, shard, ahead=ahead, told=told)


@dataclass(frozen=True)
class MeetingSpec(SolverSpec):
    """`SolverSpec` of such tasks. `folder` is there in every process."""

    folder: Path = Path()

    def make_trainer(self, job: OpenJob) -> TaskTrainer:
        trainer = MeetingTrainer(job.desk.market, job.blocks, job.state_provider, job.desk.books)
        trainer.folder = self.folder
        return trainer


class MeetingSolver(SolverService):
    """A solver of such tasks. `meet`: the folder."""

    def __init__(self, *parts: Any, meet: Path, **options: Any) -> None:
        super().__init__(*parts, **options)
        self._meet = meet

    def spec(self, job_id: Any) -> SolverSpec:
        spec = super().spec(job_id)
        return spec_of(MeetingSpec, spec, folder=self._meet)
