"""What will be asked of a market next, so that a batch which has room asks it along (decision 0070)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from assay.chain.contracts.answers import CLOCK_KEY, Answers, Key, stake_keys, standing_keys
from assay.chain.contracts.index import MarketIndex
from assay.protocol.types import Address, ClaimId, JobId, Role


def filled(answers: Answers, keys: Iterable[Key], ahead: Iterable[Key]) -> list[Key]:
    """What of these is not known, and of what will be asked next what their last batch has room for."""
    missing = {key: None for key in keys if key not in answers}
    room = -len(missing) % answers.batch
    return [*missing, *islice((key for key in ahead if key not in answers and key not in missing), room)]


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


def look_ahead(index: MarketIndex, me: Address, job_ids: Sequence[JobId], shards: bool) -> Iterator[Key]:
    """What a look of this account asks next: its stakes, how far deadlines have come, where these jobs stand,
    and, of a solver, the `shards` of those that are open."""
    for role in Role:
        yield from stake_keys(me, role)
    yield CLOCK_KEY
    for job_id in job_ids:
        yield from standing_keys(job_id)
    if shards:
        yield from shard_keys(index, (job_id for job_id in job_ids if job_id not in index.closed))
