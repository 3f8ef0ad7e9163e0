"""Closes jobs, so that the unspent budget returns to the client (docs/protocol.md, rule 4.8).

Contract: solvers close a fully settled job. A job halted before a round was done is closed by its client, as
nobody else gains by it, once no task of that round can be committed any more. `closes_at` computes the time
from the chain's present state; a dispute, or a shard taken and released, delays it, and the contract then
refuses.
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
"""Seconds that solvers have to close a finished job before its client does: one transaction is enough."""


def closes_at(market: MarketView, job: JobView, claims: Sequence[ClaimView]) -> Seconds | None:
    """Chain time from which the job can be closed, 0: at once; None if it is closed, or a round of it is
    unfinished."""
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
    """Closes one account's jobs when they are due."""

    def __init__(self, market: Market) -> None:
        self._market = market
        self._seen: dict[JobId, Seconds] = {}
        """Time at which each job was first seen finished."""

    def look(self, now: Seconds) -> list[JobView]:
        """Closes due jobs, except those a solver is about to close; returns them as they were before. Raises
        errors of sending."""
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
    """Closes a job that can be closed since `at`. Raises Reverted."""
    return market.close(intent("close", job.job_id, at), job.job_id)
