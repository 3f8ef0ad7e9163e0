"""Identifies the sources of a task's input: the claims that its links read, and the presence of tasks.

Contract: while the sources of a place are equal, so is the input state of its task (rule 4.4). Nothing is
fetched or computed.
"""

from __future__ import annotations

from functools import cache

from assay.node.rounds import PASSED, Claims, standing
from assay.protocol.loops import Byte, FromClaim, Place, source_of
from assay.protocol.types import ClaimId, ClaimView, JobView, Kind

Sources = tuple[int, tuple[ClaimId, ...], tuple[bool, ...]]
"""Rewinds of the job, source claims, and presence flags of tasks in the input."""


def sources_of(job: JobView, claims: Claims, round_: int, shard: int) -> Sources:
    """Sources of the task at a place."""

    def found(place: Place) -> ClaimView | None:
        view = standing(claims, *place)
        passed = view is not None and (place[0] == Kind.OUTER or view.status.phase in PASSED)
        return view if passed else None

    @cache
    def stands(past: int, other: int) -> bool:
        return found((Kind.TASK, past, other)) is not None

    terms = job.terms
    every = [source_of(terms, Kind.TASK, round_, shard, slot, stands) for slot in range(terms.slots)]
    places = dict.fromkeys(source.place for source in every if isinstance(source, FromClaim))
    views = [found(place) for place in places]
    told = tuple(source.value for source in every if isinstance(source, Byte))
    return job.progress.rewinds, tuple(view.claim_id for view in views if view is not None), told
