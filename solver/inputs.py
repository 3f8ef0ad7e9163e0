"""What a job's tasks must start from: the root that the claims before them leave by the terms' links.

Contract: a root is that of rule 4.4, whatever this process has in memory; whoever commits compares his own.
"""

from __future__ import annotations

from functools import cache

from assay.node.rounds import PASSED, Claims, standing
from assay.node.states import StateProvider
from assay.protocol.loops import Byte, FromClaim, Place, source_of
from assay.protocol.ports import MarketView
from assay.protocol.types import ClaimId, ClaimView, Kind
from assay.solver.resuming import TaskKey

_Sources = tuple[tuple[ClaimId, ...], tuple[bool, ...]]
"""Claims that an input is from, and what it says of which tasks are there."""


class TaskInputs:
    """Of one job, as the market has it."""

    def __init__(self, market: MarketView, state_provider: StateProvider) -> None:
        self._market, self._state_provider = market, state_provider
        self._job_id, self._work = state_provider.job_id, state_provider.work
        self._known: dict[tuple[int, int, int, _Sources], bytes] = {}

    def root(self, round_: int, shard: int, rewinds: int) -> bytes:
        """Root of what a task must start from, remembered for as long as the claims are the same that it
        follows from: a reorganisation may bring others, without a rewind. Raises SourceMissing."""
        key = round_, shard, rewinds, self._sources(round_, shard)
        if key not in self._known:
            self._known[key] = self._state_provider.input_tree(Kind.TASK, round_, shard).root
        return self._known[key]

    def is_due(self, task: TaskKey) -> bool:
        """Whether a task is known to start from what the claims before it leave, and not from a guess.
        Nothing is fetched or computed for the answer."""
        round_, shard, root = task
        rewinds = self._market.job(self._job_id).progress.rewinds
        return self._known.get((round_, shard, rewinds, self._sources(round_, shard))) == root

    def _sources(self, round_: int, shard: int) -> _Sources:
        """What a task's input follows from, by its links."""
        claims = Claims(self._market.claims(self._job_id))

        def found(place: Place) -> ClaimView | None:
            view = standing(claims, *place)
            passed = view is not None and (place[0] == Kind.OUTER or view.status.phase in PASSED)
            return view if passed else None

        def stands(past: int, other: int) -> bool:
            return found((Kind.TASK, past, other)) is not None

        terms, stands = self._work.terms, cache(stands)
        every = [source_of(terms, Kind.TASK, round_, shard, slot, stands) for slot in range(terms.slots)]
        places = dict.fromkeys(source.place for source in every if isinstance(source, FromClaim))
        views = [found(place) for place in places]
        told = tuple(source.value for source in every if isinstance(source, Byte))
        return tuple(view.claim_id for view in views if view is not None), told
