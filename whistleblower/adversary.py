"""A whistleblower that accuses the innocent on purpose, for devnets, drills and tests.

It is the honest one with a faulty replay of one task, so that it plays a junk challenge through all its
moves. No honest node is ever made from this.
"""

from __future__ import annotations

from typing import Any

from assay.node.states import StateProvider
from assay.program.fault import NodeFault
from assay.protocol.types import JobId
from assay.whistleblower.service import WhistleblowerService


class JunkChallenger(WhistleblowerService):
    """Finds in the task of this round and shard a wrong weight that is right."""

    def __init__(self, *args: Any, round: int, shard: int, **options: Any) -> None:
        super().__init__(*args, **options)
        self.round, self.shard = round, shard

    def state_provider(self, job_id: JobId) -> StateProvider:
        state_provider = super().state_provider(job_id)
        work = state_provider.work
        if not work.faults:
            step = self.round * work.terms.steps_per_round
            node = work.files.inner.outputs[0]
            work.faults[self.round, self.shard] = NodeFault(step, node, 0)
            self.emit("fault-planted", plan=f"will accuse task {self.round}/{self.shard}, whoever claims it")
        return state_provider
