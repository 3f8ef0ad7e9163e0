"""What will be asked of a market next, so that a batch which has room asks it along (decision 0025)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from assay.chain.contracts.answers import Key
from assay.chain.contracts.index import MarketIndex
from assay.protocol.types import ClaimId, JobId


def jobs_ahead(index: MarketIndex, job_id: JobId) -> Iterator[JobId]:
    """A job and those after it that are open, or closed, as it is."""
    yield job_id
    order = list(index.jobs)
    for other in order[order.index(job_id) + 1 :]:
        if (other in index.closed) == (job_id in index.closed):
            yield other


def claims_ahead(index: MarketIndex, job_id: JobId) -> Iterator[ClaimId]:
    """The claims of a job and of those after it."""
    return (claim_id for other in jobs_ahead(index, job_id) for claim_id in index.claims_of.get(other, ()))


def shard_keys(index: MarketIndex, job_ids: Iterable[JobId]) -> Iterator[Key]:
    """The questions for who holds each shard of these jobs, and for its price."""
    return (
        ("Tasks", name, job_id, shard)
        for job_id in job_ids
        for shard in range(index.jobs[job_id].shards)
        for name in ("holder", "price")
    )
