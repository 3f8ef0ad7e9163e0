"""Tracks the progress of a solver's tasks as reported by its workers.

Contract: a segment count is valid for the sources with which the task was opened (``solver.sources``) and
while the worker's process lives; a drafted task is stored and outlives it. An entry of the coming round is
valid until the job is rewound. Used from the loop's thread; `SolverCallbacks` is thread-safe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.node.checkpoints import Checkpoint
from assay.node.role import NodeCallbacks
from assay.protocol.types import JobId
from assay.solver.drafting import Draft
from assay.solver.progress import TaskProgress
from assay.solver.sources import Sources

if TYPE_CHECKING:
    from assay.solver.service import SolverService

Place = tuple[JobId, int, int]
"""Job, round and shard."""


@dataclass
class WorkerTask:
    """A task that a worker has opened. `sources`: None for the coming round.

    `made_by`: number of worker processes that had ended when it was opened.
    """

    root: bytes
    sources: Sources | None
    segments: int
    made_by: int
    loss: float | None = None


class Tasks:
    """Progress of the tasks of a solver's jobs."""

    def __init__(self, ended: Callable[[], int]) -> None:
        """`ended` returns how many of the node's worker processes have ended."""
        self._ended = ended
        self._records: dict[Place, WorkerTask] = {}
        self._ahead: dict[Place, WorkerTask] = {}
        self._drafts: dict[tuple[Place, bytes], Draft] = {}

    def opened(self, place: Place, root: bytes, sources: Sources | None, segments: int, made_by: int) -> None:
        """Records that a worker opened a task. `made_by`: as in `WorkerTask`."""
        records = self._ahead if sources is None else self._records
        before = self._records.get(place) or self._ahead.get(place)
        loss = before.loss if before is not None and before.root == root else None
        records[place] = WorkerTask(root, sources, segments, made_by, loss)
        if sources is not None:
            self._ahead.pop(place, None)  # its round has come

    def trained(self, place: Place, root: bytes, segments: int, loss: float | None) -> bool:
        """Records the number of trained segments; True if the task is of the coming round."""
        ahead = False
        for records in (self._records, self._ahead):
            if (record := records.get(place)) is not None and record.root == root:
                record.segments, record.loss = segments, loss
                ahead = records is self._ahead
        return ahead

    def drafted(self, place: Place, root: bytes, draft: Draft) -> None:
        """Records a task's finished claim."""
        self._drafts[place, root] = draft

    def lost(self, place: Place) -> None:
        """Forgets a task whose states were lost."""
        self._records.pop(place, None)
        self._ahead.pop(place, None)

    def segments(self, place: Place, sources: Sources) -> int | None:
        """Number of trained segments of a task with these sources; None if no worker has it."""
        record = self._record(place, sources)
        return None if record is None else record.segments

    def segments_ahead(self, place: Place) -> int:
        """Number of trained segments of a task of the coming round."""
        record = self._ahead.get(place)
        return record.segments if record is not None and self._lives(place, record) else 0

    def draft(self, place: Place, sources: Sources) -> tuple[Draft, float | None] | None:
        """Finished claim of a task with these sources, and its loss; None until it is ready."""
        record = self._record(place, sources)
        draft = None if record is None else self._drafts.get((place, record.root))
        return None if record is None or draft is None else (draft, record.loss)

    def _record(self, place: Place, sources: Sources) -> WorkerTask | None:
        record = self._records.get(place)
        if record is None or record.sources != sources or not self._lives(place, record):
            return None
        return record

    def _lives(self, place: Place, record: WorkerTask) -> bool:
        return record.made_by == self._ended() or (place, record.root) in self._drafts

    def rewound(self, job_id: JobId) -> None:
        """Drops the job's tasks of the coming round."""
        self._ahead = {place: record for place, record in self._ahead.items() if place[0] != job_id}

    def keep(self, jobs: Iterable[tuple[JobId, int]]) -> None:
        """Drops all tasks but those of these jobs, from these rounds on."""
        first = dict(jobs)

        def stays(place: Place) -> bool:
            return place[0] in first and place[1] >= first[place[0]]

        self._records = {place: x for place, x in self._records.items() if stays(place)}
        self._ahead = {place: x for place, x in self._ahead.items() if stays(place)}
        self._drafts = {key: x for key, x in self._drafts.items() if stays(key[0])}

    def clear(self) -> None:
        """Drops everything."""
        self._records, self._ahead, self._drafts = {}, {}, {}


class SolverCallbacks(NodeCallbacks):
    """Receives workers' reports and requests (``compute.node_calls``)."""

    def __init__(self, node: SolverService, progress: TaskProgress) -> None:
        super().__init__(node)
        self._solver, self._progress = node, progress

    def used_bytes(self) -> int:
        """Bytes used by the node's blocks."""
        budget = self._solver.budget
        return 0 if budget is None else budget.used_bytes()

    def left(self, job_id: JobId, round_: int, shard: int, root: bytes) -> list[Checkpoint]:
        """Stored progress of a task."""
        return self._progress.load(job_id, round_, shard, root)

    def stored(self, job_id: JobId, round_: int, shard: int, leaves: Sequence[Checkpoint]) -> None:
        """Saves the progress of a task."""
        self._progress.save(job_id, round_, shard, list(leaves))

    def opened(
        self, job_id: JobId, round_: int, shard: int, root: bytes, sources: Sources | None, segments: int
    ) -> None:
        """See `Tasks`."""
        place, made_by = (job_id, round_, shard), self._solver.pool.ended()
        self._solver.actions.later(lambda: self._solver.tasks.opened(place, root, sources, segments, made_by))

    def trained(
        self,
        job_id: JobId,
        round_: int,
        shard: int,
        root: bytes,
        segments: int,
        step: int,
        loss: float | None,
        divergence: tuple[int, str, str] | None,
    ) -> bool:
        """Reports a trained segment; True if the worker shall go on with the task.

        `divergence`: its step, the slot that diverged, and both as text.
        """
        place = job_id, round_, shard
        self._solver.actions.later(
            lambda: self._solver.trained(place, root, segments, step, loss, divergence)
        )
        return self._solver.goes_on(place)

    def drafted(self, job_id: JobId, round_: int, shard: int, root: bytes, draft: Draft) -> None:
        """See `Tasks`."""
        self._solver.actions.later(lambda: self._solver.tasks.drafted((job_id, round_, shard), root, draft))

    def lost(self, job_id: JobId, round_: int, shard: int, why: str) -> None:
        """Reports that a task's states could not be stored."""
        self._solver.actions.later(lambda: self._solver.tasks.lost((job_id, round_, shard)))
