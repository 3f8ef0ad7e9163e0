"""A task that is in training, and the thread that publishes its states.

Contract: a state counts once it is stored and recorded (``solver.progress``), in the order of the segments;
whatever storing one raised is raised where it is taken in, and the task's later states then count for
nothing. Of a task the states that are not stored are in memory. Used from one thread, which alone takes in.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from assay.node.artifacts import State
from assay.node.checkpoints import Checkpoint, publish_state
from assay.node.slots import KnownSlots, Roots, hash_state
from assay.node.time_spent import STORING, TimeSpent
from assay.program.state import begin_roots
from assay.protocol.ports import Blocks
from assay.protocol.types import JobId
from assay.solver.progress import TaskProgress
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
    publishing: deque[Future[Checkpoint]] = field(default_factory=deque)
    known: KnownSlots = field(default_factory=KnownSlots)
    """Of the state that was published last; for the publisher's thread."""
    roots: Roots | None = None
    """Those of the last state's slots, once its hashing has begun."""

    @property
    def segments(self) -> int:
        """Segments that are trained."""
        return len(self.leaves) + len(self.publishing) - 1

    @property
    def place(self) -> TaskKey:
        """By which it is known."""
        return self.round, self.shard, self.input_root

    @property
    def is_stored(self) -> bool:
        """Whether what is published of it only remains to be taken in."""
        return all(future.done() for future in self.publishing)


class Storing:
    """Publishes the states of one job's tasks, one at a time, while others are computed."""

    def __init__(self, blocks: Blocks, progress: TaskProgress, job_id: JobId, spent: TimeSpent) -> None:
        self._blocks, self._progress, self._job_id, self._spent = blocks, progress, job_id, spent
        self._publisher = ThreadPoolExecutor(1, thread_name_prefix="publishing")

    def begin(self, task: OpenTask, *, kept: bool, anew: bool) -> None:
        """Begin to publish the task's state, or where it is not to be `kept` to hash it; `anew`, which is
        kept: as a whole, whatever is known of it, and hashed at once."""
        if anew:
            task.roots = begin_roots(task.state)
            stored = self._publisher.submit(publish_state, self._blocks, task.state, None, task.roots)
        elif kept:
            stored = self._publisher.submit(publish_state, self._blocks, task.state, task.known)
        else:
            stored = self._publisher.submit(self._hashed, task.state, task.known)
        task.publishing.append(stored)

    def _hashed(self, state: State, known: KnownSlots) -> Checkpoint:
        return Checkpoint("", hash_state(state, known))

    def take_in(self, task: OpenTask, most: int = 0) -> None:
        """Record what is stored of a task, and wait until at most so many of its states are not. Raises what
        storing one raised."""
        while task.publishing and (len(task.publishing) > most or task.publishing[0].done()):
            with self._spent.on(STORING):
                leaf = task.publishing[0].result()
            task.publishing.popleft()
            task.leaves.append(leaf)
            self._progress.save(self._job_id, task.round, task.shard, task.leaves)

    def close(self) -> None:
        """Begin to store nothing any more."""
        self._publisher.shutdown(wait=False, cancel_futures=True)
