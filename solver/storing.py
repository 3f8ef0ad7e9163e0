"""A task that is in training, and the thread that publishes its states.

Contract: a state counts once it is stored and told to the node (``solver.books``), in the order of the
segments, by the thread that stored it. Once the last one is, the task's claim is drafted and told, too.
Whatever storing one raised is raised where it is waited for, and told; the task's later states then count for
nothing. Of a task the states that are not stored are in memory.
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
from assay.node.published import publish_state
from assay.node.slots import KnownSlots, Roots, hash_state
from assay.program.state import begin_roots
from assay.protocol.ports import Blocks
from assay.protocol.types import JobId
from assay.solver.drafting import Draft, ProgressLost
from assay.solver.resuming import TaskKey


@dataclass
class OpenTask:
    """A task that is being trained, or whose last states are being stored."""

    round: int
    shard: int
    input_root: bytes
    leaves: list[Checkpoint]
    """Published, on disk, and computed or checked by this process."""
    state: State
    """Where training is; empty once the task is over, stored, and no longer the open one."""
    segments: int = -1
    """Segments that are trained; those of the leaves at first."""
    publishing: deque[Future[None]] = field(default_factory=deque)
    known: KnownSlots = field(default_factory=KnownSlots)
    """Of the state that was published last; for the publisher's thread."""
    roots: Roots | None = None
    """Those of the last state's slots, once its hashing has begun."""
    draft: Draft | None = None
    """Its claim, once it is stored."""
    broken: bool = False
    """Whether storing one of its states has failed."""

    def __post_init__(self) -> None:
        if self.segments < 0:
            self.segments = max(len(self.leaves) - 1, 0)

    @property
    def place(self) -> TaskKey:
        """By which it is known."""
        return self.round, self.shard, self.input_root


class Storing:
    """Publishes the states of one job's tasks, one at a time, while others are computed."""

    def __init__(
        self, blocks: Blocks, books: Any, job_id: JobId, draft_of: Callable[[OpenTask], Draft], segments: int
    ) -> None:
        self._blocks, self._books, self._job_id = blocks, books, job_id
        self._draft_of, self._segments = draft_of, segments
        self._publisher = ThreadPoolExecutor(1, thread_name_prefix="publishing")

    def begin(self, task: OpenTask, *, kept: bool, anew: bool) -> None:
        """Begin to publish the task's state, or where it is not to be `kept` to hash it; `anew`, which is
        kept: as a whole, whatever is known of it, and hashed at once."""
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
        """Draft the claim of a task whose states are all stored. Raises ProgressLost where the first is not
        the one that it must start from."""
        if task.leaves[0].root != task.input_root:
            raise ProgressLost(
                f"what round {task.round}, shard {task.shard} starts from is not in memory as it was; nothing"
                " was committed",
                hint="it is trained again; check this machine's memory and disk",
            )
        task.draft = self._draft_of(task)
        self.tell(task)

    def tell(self, task: OpenTask) -> None:
        """Tell the claim of a task, if it is stored."""
        if task.draft is not None:
            self._books.drafted(task.draft.claim.job_id, task.round, task.shard, task.input_root, task.draft)

    def close(self) -> None:
        """Begin to store nothing any more."""
        self._publisher.shutdown(wait=False, cancel_futures=True)
