"""Publishes the states of tasks in training from a background thread.

Contract: a state counts once it is stored and reported to the node (``solver.worker_reports``), in segment
order, by the publishing thread. After the last one the task's claim is drafted and reported. An error while
storing is reported and raised where the result is awaited; the task's later states are then ignored. Unstored
states stay in memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from assay.node.artifacts import State
from assay.node.checkpoints import Checkpoint
from assay.node.published_states import publish_state
from assay.node.slots import KnownSlots, Roots, hash_state
from assay.program.state import begin_roots
from assay.protocol.ports import Blocks
from assay.protocol.types import JobId
from assay.solver.drafting import Draft, ProgressLost
from assay.solver.resuming import TaskKey


@dataclass
class OpenTask:
    """A task in training, or whose last states are being stored."""

    round: int
    shard: int
    input_root: bytes
    leaves: list[Checkpoint]
    """Stored leaves that this process has computed or checked."""
    state: State
    """Current state of training; empty once the task is complete, stored, and no longer the open one."""
    segments: int = -1
    """Number of trained segments; initially those of the leaves."""
    publishing: deque[Future[None]] = field(default_factory=deque)
    known: KnownSlots = field(default_factory=KnownSlots)
    """Cache of the slots published last; used by the publishing thread."""
    roots: Roots | None = None
    """Roots of the last state's slots, once hashing has started."""
    draft: Draft | None = None
    """The task's claim, once it is stored."""
    broken: bool = False
    """True if storing one of its states has failed."""

    def __post_init__(self) -> None:
        if self.segments < 0:
            self.segments = max(len(self.leaves) - 1, 0)

    @property
    def place(self) -> TaskKey:
        """Key of the task."""
        return self.round, self.shard, self.input_root


class Storing:
    """Publishes the states of one job's tasks, one at a time."""

    def __init__(
        self, blocks: Blocks, books: Any, job_id: JobId, draft_of: Callable[[OpenTask], Draft], segments: int
    ) -> None:
        self._blocks, self._books, self._job_id = blocks, books, job_id
        self._draft_of, self._segments = draft_of, segments
        self._publisher = ThreadPoolExecutor(1, thread_name_prefix="publishing")

    def begin(self, task: OpenTask, *, kept: bool, anew: bool) -> None:
        """Starts publishing the task's state; if it is not `kept`, only hashes it.

        `anew` (only with `kept`): ignores the cache of known slots, and starts hashing at once.
        """
        first = not (task.leaves or task.publishing)
        task.segments += not first
        if anew:
            task.roots = begin_roots(task.state)
            work = partial(publish_state, self._blocks, task.state, None, task.roots)
        elif kept:
            work = partial(publish_state, self._blocks, task.state, task.known)
        else:
            work = partial(self._hashed, task.state, task.known)
        task.publishing.append(self._publisher.submit(self._store, task, work))

    def _hashed(self, state: State, known: KnownSlots) -> Checkpoint:
        return Checkpoint("", hash_state(state, known))

    def _store(self, task: OpenTask, work: Callable[[], Checkpoint]) -> None:
        if task.broken:
            return
        try:
            task.leaves.append(work())
            self._books.stored(self._job_id, task.round, task.shard, list(task.leaves))
            if len(task.leaves) == self._segments + 1:
                self.finish(task)
        except BaseException as error:
            task.broken = True
            self._books.lost(self._job_id, task.round, task.shard, str(error))
            raise

    def finish(self, task: OpenTask) -> None:
        """Drafts the claim of a task whose states are all stored. Raises ProgressLost if the first is not its
        input."""
        if task.leaves[0].root != task.input_root:
            raise ProgressLost(
                f"the input of round {task.round}, shard {task.shard} changed in memory; nothing was"
                " committed",
                hint="it is trained again; check this machine's memory and disk",
            )
        task.draft = self._draft_of(task)
        self.tell(task)

    def tell(self, task: OpenTask) -> None:
        """Reports the claim of a task, if it is stored."""
        if task.draft is not None:
            self._books.drafted(task.draft.claim.job_id, task.round, task.shard, task.input_root, task.draft)

    def close(self) -> None:
        """Accepts no further states."""
        self._publisher.shutdown(wait=False, cancel_futures=True)
