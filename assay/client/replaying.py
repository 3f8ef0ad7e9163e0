"""Replays a receipt's claims from the job's files, bit by bit.

Contract: `replay` recomputes segments of settled claims, and their input states (rule 4.4). Everything read,
from local blocks or other nodes, is first verified against a root of the receipt. Unavailable states are
recomputed from the claims before. It replays all segments, or a random sample plus the last outer step, which
produces the model. An exception other than BadReceipt means that no decision is possible.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import cast

from assay.client.receipt import Receipt, bad
from assay.client.verifying import settled
from assay.node.artifacts import load_job
from assay.node.audit import audit_input, audit_segment
from assay.node.engine import REFERENCE_ENGINE, Engine
from assay.node.findings import Finding, WrongSegment
from assay.node.limits import ResourceLimits
from assay.node.states import StateProvider
from assay.node.work import Work
from assay.protocol.ports import Blocks, MarketView
from assay.protocol.types import ClaimView, JobId, Kind
from assay.protocol.words import show_place


@dataclass(frozen=True)
class Replayed:
    """Counts of what `replay` recomputed and found equal to the receipt."""

    segments: int
    """Number of segments replayed; an outer claim counts as one."""
    of: int
    """Number of segments of all settled claims."""
    inputs: int
    """Number of claims whose input state was assembled from the claims before."""


class _Recorded:
    """Standing claims from a receipt: the part of a market that a `StateProvider` needs."""

    def __init__(self, receipt: Receipt) -> None:
        self._views = {(v.claim.kind, v.claim.round, v.claim.shard): v for v in settled(receipt)}

    def current(self, job_id: JobId, kind: Kind, round: int, shard: int) -> ClaimView | None:
        return self._views.get((kind, round, shard))


def _told(view: ClaimView, finding: Finding) -> str:
    claim = view.claim
    place = f"the {claim.kind.name.lower()} claim of round {claim.round}, shard {claim.shard}"
    if isinstance(finding, WrongSegment):
        return f"segment {finding.segment} of {place} gives another state when it is replayed"
    return f"{place} does not start from the state that it must start from"


def replay(
    receipt: Receipt,
    blocks: Blocks,
    resource_limits: ResourceLimits,
    count: int | None,
    order: Random,
    engine: Engine = REFERENCE_ENGINE,
    tell: Callable[[str, int, int], None] = lambda *_: None,
) -> Replayed:
    """Replays `count` segments drawn with `order` and the last outer step, or all (None).

    Raises BadReceipt for a mismatch, and what ``load_job`` and the block store raise.
    """
    files = load_job(blocks, receipt.terms, resource_limits)
    work = Work(receipt.terms, files, engine=engine)
    market = cast(MarketView, _Recorded(receipt))
    provider = StateProvider(market, blocks, receipt.job_id, work)
    claims = sorted(settled(receipt), key=lambda v: (v.claim.round, v.claim.kind, v.claim.shard))
    every = [(i, s) for i, view in enumerate(claims) for s in range(work.segments(view.claim.kind))]
    chosen = every if count is None else sorted({*order.sample(every, min(count, len(every))), every[-1]})
    bound: set[int] = set()
    for done, (i, segment) in enumerate(chosen, 1):
        view, finding = claims[i], None
        if i not in bound:
            bound.add(i)
            finding = audit_input(provider, view)
        finding = finding or audit_segment(provider, view, segment)
        if finding is not None:
            raise bad(_told(view, finding))
        place = show_place(view.claim.kind, view.claim.round, view.claim.shard)
        tell(f"replayed segment {segment} of {place}", done, len(chosen))
    return Replayed(len(chosen), len(every), len(bound))
