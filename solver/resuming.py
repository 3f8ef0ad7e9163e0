"""Resumes partly trained tasks from memory or from records on disk.

Contract: a record of an earlier process (``solver.progress``) is used as far as each state, read from disk,
has its recorded root. Not guaranteed: that a state is what the program gives.
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
"""Round, shard and input root of a task."""


class Resuming:
    """Known leaves of one job's tasks."""

    def __init__(self, blocks: Blocks, books: Any, job_id: JobId, program: Program) -> None:
        self._blocks, self._books, self._job_id, self._program = blocks, books, job_id, program
        self._checked: dict[TaskKey, list[Checkpoint]] = {}
        """Leaves of the round's tasks that this process has computed or checked."""

    def forget(self) -> None:
        """Drops what this process knows."""
        self._checked = {}

    def remember(self, key: TaskKey, leaves: Sequence[Checkpoint]) -> None:
        """Records computed or checked leaves of a task, and drops other rounds'."""
        kept = {other: known for other, known in self._checked.items() if other[0] == key[0]}
        self._checked = {**kept, key: list(leaves)}

    def resumed(self, key: TaskKey) -> tuple[list[Checkpoint], State | None]:
        """Leaves of a task that can be resumed from, and the state at the last one.

        Leaves known to this process need only their last state. Of recorded leaves every state is read, up to
        the first that does not have its root or is unavailable.
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
        """Reads an own state and checks its root; None if the block store has lost it.

        It is read from disk and not from memory; every slot and the index are checked.
        """
        program = self._program
        reader = SlotReader(self._blocks, TensorCache(0))
        slots = reader.index(checkpoint.cid, program.slots)
        if slots is None or state_root_of(slots) != checkpoint.root:
            return None
        found = [tensor for tensor in reader.tensors(slots, program.state) if tensor is not None]
        return found if len(found) == program.slots else None
