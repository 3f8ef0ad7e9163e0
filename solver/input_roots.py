"""Computes the input roots of a job's tasks from the claims before them.

Contract: a root is that of rule 4.4, whatever this process has in memory; before a commit it is compared with
the task's own.
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
    """Input roots of one job's tasks, by the market's present claims."""

    def __init__(self, market: MarketView, state_provider: StateProvider) -> None:
        self._market, self._state_provider = market, state_provider
        self._job_id, self._work = state_provider.job_id, state_provider.work
        self._known: dict[tuple[int, int, Sources], bytes] = {}

    def root(self, round_: int, shard: int) -> bytes:
        """Input root of a task. Raises SourceMissing.

        It is cached while its source claims are the same: a reorganisation may change them without a rewind.
        """
        key = round_, shard, self.sources(round_, shard)
        if key not in self._known:
            self._known[key] = self._state_provider.input_tree(Kind.TASK, round_, shard).root
        return self._known[key]

    def is_due(self, task: TaskKey) -> bool:
        """True if a task is known to start from committed claims, not from speculation.

        Nothing is fetched or computed.
        """
        round_, shard, root = task
        return self._known.get((round_, shard, self.sources(round_, shard))) == root

    def sources(self, round_: int, shard: int) -> Sources:
        """Sources of a task's input."""
        job = self._market.job(self._job_id)
        return sources_of(job, Claims(self._market.claims(self._job_id)), round_, shard)
