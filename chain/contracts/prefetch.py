"""Prefetches view calls: fills the free places of a batch with questions that will be asked next (decision
0070)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from assay.chain.contracts.index import MarketIndex
from assay.chain.contracts.view_cache import CLOCK_KEY, Answers, Key, stake_keys, standing_keys
from assay.protocol.types import Address, ClaimId, JobId, Role


def filled(answers: Answers, keys: Iterable[Key], ahead: Iterable[Key]) -> list[Key]:
    """The unknown keys, plus as many of `ahead` as fit into their last batch."""
    missing = {key: None for key in keys if key not in answers}
    room = -len(missing) % answers.batch
    return [*missing, *islice((key for key in ahead if key not in answers and key not in missing), room)]


def jobs_ahead(index: MarketIndex, job_id: JobId) -> Iterator[JobId]:
    """The job and the jobs after it that are open, or closed, as it is."""
    yield job_id
    order = list(index.jobs)
    for other in order[order.index(job_id) + 1 :]:
        if (other in index.closed) == (job_id in index.closed):
            yield other


def claims_ahead(index: MarketIndex, job_id: JobId) -> Iterator[ClaimId]:
    """Claims of a job and of the jobs after it."""
    return (claim_id for other in jobs_ahead(index, job_id) for claim_id in index.claims_of.get(other, ()))


def shard_keys(index: MarketIndex, job_ids: Iterable[JobId]) -> Iterator[Key]:
    """Questions for the holder and price of each shard of these jobs."""
    return (
        ("Tasks", name, job_id, shard)
        for job_id in job_ids
        for shard in range(index.jobs[job_id].shards)
        for name in ("holder", "price")
    )


def look_ahead(index: MarketIndex, me: Address, job_ids: Sequence[JobId], shards: bool) -> Iterator[Key]:
    """Questions of a whole poll: this account's stakes, the clock, progress of these jobs, and open jobs'
    `shards`."""
    for role in Role:
        yield from stake_keys(me, role)
    yield CLOCK_KEY
    for job_id in job_ids:
        yield from standing_keys(job_id)
    if shards:
        yield from shard_keys(index, (job_id for job_id in job_ids if job_id not in index.closed))
