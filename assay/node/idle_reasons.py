"""Explains in one line why a node does nothing; the line stays the same until something changes.

Contract: pure; reads a job's claims at one block. Says what a claim waits for, until when.
"""

from __future__ import annotations

from collections.abc import Iterable

from assay.node.upkeep import window_end
from assay.protocol.types import ClaimView, JobView, Phase, Seconds
from assay.protocol.words import show_place, show_time

NO_JOB = "no open job"


def no_stake(role: str) -> str:
    """Message to a node without stake."""
    return (
        f"no {role} stake, so there is nothing it may do:"
        f" `assay --account NAME stake deposit AMOUNT --role {role}` deposits one"
    )


def place_of(view: ClaimView) -> str:
    """``task 1/0`` or ``outer step 1``."""
    claim = view.claim
    return show_place(claim.kind, claim.round, claim.shard)


def waits_for(job: JobView, view: ClaimView, now: Seconds) -> str:
    """Describes what a standing claim waits for; empty if it has ended."""
    status, terms = view.status, job.terms
    if view.stale:
        return ""
    if status.open_games:
        return f"for the {status.open_games} game(s) about it"
    match status.phase:
        case Phase.COMMITTED:
            return f"for its seed, block {status.seed_block}"
        case Phase.SEEDED:
            end = status.since + terms.vote_time
            return f"for its verifiers' votes, until {show_time(end, now)} at the latest"
        case Phase.ACCEPTED:
            end = window_end(view, terms)
            if now <= end:
                return f"for its challenge window, until {show_time(end, now)}"
            return "for the claims before it to be settled"
    return ""


def first_wait(pairs: Iterable[tuple[JobView, ClaimView]], now: Seconds) -> str:
    """Describes what the oldest waiting claim waits for; empty if none waits."""
    for job, view in pairs:
        if what := waits_for(job, view, now):
            return f"{place_of(view)} of job {job.job_id.hex()[:16]} waits {what}"
    return ""
