"""What a job's tasks must start from: the root that the claims before them leave by the terms' links.

Contract: a root is that of rule 4.4, whatever this process has in memory; whoever commits compares his own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.node.rounds import Claims
from assay.protocol.ports import MarketView
from assay.protocol.types import Kind
from assay.solver.resuming import TaskKey
from assay.solver.sources import Sources, sources_of

if TYPE_CHECKING:
    from assay.node.states import StateProvider


class TaskInputs:
    """Of one job, as the market has it."""

    def __init__(self, market: MarketView, state_provider: StateProvider) -> None:
        self._market, self._state_provider = market, state_provider
        self._job_id, self._work = state_provider.job_id, state_provider.work
        self._known: dict[tuple[int, int, Sources], bytes] = {}

    def root(self, round_: int, shard: int) -> bytes:
        """Root of what a task must start from, remembered for as long as the claims are the same that it
        follows from: a reorganisation may bring others, without a rewind. Raises SourceMissing."""
        key = round_, shard, self.sources(round_, shard)
        if key not in self._known:
            self._known[key] = self._state_provider.input_tree(Kind.TASK, round_, shard).root
        return self._known[key]

    def is_due(self, task: TaskKey) -> bool:
        """Whether a task is known to start from what the claims before it leave, and not from a guess.
        Nothing is fetched or computed for the answer."""
        round_, shard, root = task
        return self._known.get((round_, shard, self.sources(round_, shard))) == root

    def sources(self, round_: int, shard: int) -> Sources:
        """What a task's input follows from."""
        job = self._market.job(self._job_id)
        return sources_of(job, Claims(self._market.claims(self._job_id)), round_, shard)
