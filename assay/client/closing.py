"""Closing a job, so that what it did not cost comes back to its client (docs/protocol.md, rule 4.8).

Contract: a job of which everything is settled is closed by its solvers. One that was halted before a round
was done is its client's to close, as nobody else gains by it: once nobody can commit a task of that round any
more. `closes_at` reckons when from what the chain says now; a dispute, or a shard that somebody has taken and
given back, puts it off, and the contract then refuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from assay.node.intents import intent
from assay.node.rounds import Claims, standing
from assay.protocol.errors import Reverted
from assay.protocol.ports import Market, MarketView
from assay.protocol.types import ClaimView, JobId, JobView, Kind, Phase, Seconds, TxResult

SOLVERS_FIRST_S = 30
"""What solvers have to close a job that is done, before its client does: one transaction is enough."""


def closes_at(market: MarketView, job: JobView, claims: Sequence[ClaimView]) -> Seconds | None:
    """From when on, by the chain's time, the job can be closed, 0: at once; None of a closed one, and while a
    round of it goes on or something of it is not settled."""
    progress, known = job.progress, Claims(claims)
    if progress.closed or progress.settled_rounds < progress.round:
        return None
    if progress.round >= progress.final_round:
        return Seconds(0)
    present = [
        standing(known, kind, progress.round, unit)
        for kind in Kind
        for unit in range(job.terms.units_of(kind))
    ]
    if not progress.halted or any(view and view.status.phase != Phase.SETTLED for view in present):
        return None
    taken = (market.holder(job.job_id, shard).since for shard in range(job.terms.shards))
    return Seconds(max(progress.due_since, *taken) + job.terms.task_time + 1)


class Closing:
    """Closes the jobs of one account, when they are due."""

    def __init__(self, market: Market) -> None:
        self._market = market
        self._seen: dict[JobId, Seconds] = {}
        """When each was first seen to be done."""

    def look(self, now: Seconds) -> list[JobView]:
        """Close what can be closed, but for what a solver is about to; the jobs that were closed, as they
        were before. Raises what sending raises."""
        market, closed = self._market, []
        for job in market.jobs():
            if job.terms.client != market.me or job.progress.closed:
                continue
            at = closes_at(market, job, market.claims(job.job_id))
            if at == 0:
                at = Seconds(self._seen.setdefault(job.job_id, now) + SOLVERS_FIRST_S)
            if at is not None and now >= at:
                with suppress(Reverted):  # somebody was faster, or a clock that it waits for began anew
                    close(market, job, at)
                    closed.append(job)
        return closed


def close(market: Market, job: JobView, at: Seconds) -> TxResult:
    """Close a job that can be closed since then. Raises Reverted."""
    return market.close(intent("close", job.job_id, at), job.job_id)
