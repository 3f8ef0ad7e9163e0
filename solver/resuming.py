"""Where a solver's tasks were left: what this process knows of their segments, and what the disk says.

Contract: what an earlier process has left (``solver.progress``) is believed as far as each state, read from
the disk, has the root that is told of it. Not guaranteed: that a state is what the program gives.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from assay.node.artifacts import State
from assay.node.checkpoints import Checkpoint
from assay.node.slot_index import state_root_of
from assay.node.slots import SlotReader, TensorCache
from assay.program.isa import Program
from assay.protocol.ports import Blocks
from assay.protocol.types import JobId

log = logging.getLogger(__name__)

TaskKey = tuple[int, int, bytes]
"""A task's round, its shard, and the root of its input."""


class Resuming:
    """The leaves of one job's tasks."""

    def __init__(self, blocks: Blocks, books: Any, job_id: JobId, program: Program) -> None:
        self._blocks, self._books, self._job_id, self._program = blocks, books, job_id, program
        self._checked: dict[TaskKey, list[Checkpoint]] = {}
        """Leaves of the round's tasks that this process has computed or checked."""

    def forget(self) -> None:
        """Believe nothing of what this process knows."""
        self._checked = {}

    def remember(self, key: TaskKey, leaves: Sequence[Checkpoint]) -> None:
        """Keep what was computed or checked; of other rounds nothing, so that this stays small."""
        kept = {other: known for other, known in self._checked.items() if other[0] == key[0]}
        self._checked = {**kept, key: list(leaves)}

    def resumed(self, key: TaskKey) -> tuple[list[Checkpoint], State | None]:
        """Where a task was left: its leaves as far as they can be believed, and the state at the last one.

        What this process knows needs its last state only. Of what it finds on disk it reads every state, and
        believes those that have their root, up to the first that has not, or cannot be had.
        """
        known = self._checked.get(key, [])
        while known and not known[-1].cid:  # an end that is not kept
            known = known[:-1]
        if known and (state := self.state(known[-1])) is not None:
            return known, state
        found = self._books.left(self._job_id, *key)
        done: list[Checkpoint] = []
        last: State | None = None
        for leaf in found:
            state = self.state(leaf)
            if state is None:
                log.warning(
                    "round %d, shard %d: segment end %d of %d on disk is not what its root says, or is"
                    " not there; it is trained again from there",
                    *(*key[:2], len(done), len(found) - 1),
                )
                break
            done, last = [*done, leaf], state
        self.remember(key, done)
        return done, last

    def state(self, checkpoint: Checkpoint) -> State | None:
        """A state of our own that has the root of its checkpoint, or None if the block store has lost it.

        It is read from the disk, whatever is in memory: each slot has the root that the index says, and these
        lead to the state's.
        """
        program = self._program
        reader = SlotReader(self._blocks, TensorCache(0))
        slots = reader.index(checkpoint.cid, program.slots)
        if slots is None or state_root_of(slots) != checkpoint.root:
            return None
        found = [tensor for tensor in reader.tensors(slots, program.state) if tensor is not None]
        return found if len(found) == program.slots else None
