"""Isolates jobs and claims from each other's errors when a node observes the market and decides.

Contract: a job that cannot be read, and a job or claim on which the policy fails, is reported to `failed` and
left out of the decision, whatever the error. An unreachable chain is no job's fault: RpcUnreachable
propagates. Not guaranteed: a decision if every job alone is sound and all of them together are not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from assay.protocol.errors import RpcUnreachable
from assay.protocol.types import ClaimId, JobId, JobView

T = TypeVar("T")
Decide = Callable[[Any], Sequence[Any]]


class Failed(Protocol):
    """Callback that reports the error of a job, or of one of its claims."""

    def __call__(self, job_id: JobId, error: Exception, claim_id: ClaimId | None = None) -> None: ...


def seen(jobs: Iterable[JobView], look: Callable[[JobView], T], failed: Failed) -> tuple[T, ...]:
    """Observes each job and skips those that fail. Raises RpcUnreachable."""
    found = []
    for job in jobs:
        try:
            found.append(look(job))
        except RpcUnreachable:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this job's
            failed(job.job_id, error)
    return tuple(found)


def decided(observation: Any, decide: Decide, failed: Failed) -> Sequence[Any]:
    """Runs the policy on an observation, whose `jobs` have a `view` and `claims`, without the jobs that break
    it."""
    try:
        return decide(observation)
    except Exception:  # noqa: BLE001 - whose it is, is seen one by one
        sound = [_sound(observation, job, decide, failed) for job in observation.jobs]
    return decide(replace(observation, jobs=tuple(job for job in sound if job is not None)))


def _sound(observation: Any, job: Any, decide: Decide, failed: Failed) -> Any:
    """The job without the claims on which the policy fails; None if it fails on the rest, too."""

    def fault(part: Any) -> Exception | None:
        try:
            decide(replace(observation, jobs=(part,)))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this part's
            return error
        return None

    whole = fault(job)
    if whole is None:
        return job
    of = type(job.claims)
    alone = ((view.claim_id, fault(replace(job, claims=of((view,))))) for view in job.claims)
    broken = {claim_id: error for claim_id, error in alone if error is not None}
    rest = replace(job, claims=of(view for view in job.claims if view.claim_id not in broken))
    if not broken or fault(rest) is not None:
        failed(job.view.job_id, whole)
        return None
    for claim_id, error in broken.items():
        failed(job.view.job_id, error, claim_id)
    return rest
