"""Computes the state of a job's round from its claims (docs/protocol.md, 4.3).

Contract: pure; the same claims and clock give every node and the contracts the same answer. `claims` are all
claims of the job in commit order; as `Claims` they are indexed, so that answers take constant time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from assay.protocol.types import ClaimView, JobView, Kind, Phase, Seconds

STANDING = (Phase.COMMITTED, Phase.SEEDED, Phase.ACCEPTED, Phase.SETTLED)
PASSED = (Phase.ACCEPTED, Phase.SETTLED)


CHALLENGEABLE = (Phase.COMMITTED, Phase.SEEDED, Phase.ACCEPTED)


class Claims(tuple[ClaimView, ...]):
    """All claims of a job in commit order, indexed by place."""

    latest: dict[tuple[Kind, int, int], ClaimView]
    """The last claim of each place."""
    moving: tuple[ClaimView, ...]
    """Claims that are neither settled nor over."""
    fallen: tuple[ClaimView, ...]
    """Convicted claims whose votes still hold stake."""

    def __new__(cls, claims: Iterable[ClaimView]) -> Claims:
        self = super().__new__(cls, claims)
        self.latest = {(view.claim.kind, view.claim.round, view.claim.shard): view for view in self}
        self.moving = tuple(view for view in self if view.status.phase in CHALLENGEABLE)
        self.fallen = tuple(view for view in self if view.fallen)
        return self


def standing(claims: Sequence[ClaimView], kind: Kind, round_: int, shard: int) -> ClaimView | None:
    """The standing claim at a place."""
    known = claims if isinstance(claims, Claims) else Claims(claims)
    view = known.latest.get((kind, round_, shard))
    return None if view is None or view.stale or view.status.phase not in STANDING else view


def moving(claims: Sequence[ClaimView]) -> Sequence[ClaimView]:
    """Claims that are neither settled nor over."""
    return (claims if isinstance(claims, Claims) else Claims(claims)).moving


def fallen(claims: Sequence[ClaimView]) -> Sequence[ClaimView]:
    """Convicted claims whose votes still hold stake."""
    return (claims if isinstance(claims, Claims) else Claims(claims)).fallen


def tasks(job: JobView, claims: Sequence[ClaimView], round_: int) -> list[ClaimView]:
    """Standing tasks of a round, by shard; for a closed round, those it was closed with."""
    found = (standing(claims, Kind.TASK, round_, shard) for shard in range(job.terms.shards))
    return [task for task in found if task is not None]


def accepted(job: JobView, claims: Sequence[ClaimView]) -> list[ClaimView]:
    """Accepted tasks of the present round, by shard."""
    return [task for task in tasks(job, claims, job.progress.round) if task.status.phase in PASSED]


def missing(job: JobView, claims: Sequence[ClaimView], round_: int) -> list[int]:
    """Shards without a task when the round was closed; none if it is not closed."""
    if round_ >= job.progress.round:
        return []
    present = {task.claim.shard for task in tasks(job, claims, round_)}
    return [shard for shard in range(job.terms.shards) if shard not in present]


def slices(job: JobView, claims: Sequence[ClaimView]) -> list[ClaimView]:
    """Outer claims of the present round, by slice; the last one closes it."""
    round_, numbers = job.progress.round, range(job.terms.slices)
    found = (standing(claims, Kind.OUTER, round_, number) for number in numbers)
    return [view for view in found if view is not None]


def stragglers_end(job: JobView) -> Seconds:
    """End of the stragglers' time of the present round."""
    return Seconds(job.progress.round_start + job.terms.task_time + job.terms.straggler_time)


def last_acceptance(job: JobView, claims: Sequence[ClaimView]) -> Seconds:
    """Time at which the present round's last task was accepted; its start if none was."""
    passed = (task.status.since for task in accepted(job, claims) if task.status.phase == Phase.ACCEPTED)
    return max(job.progress.round_start, max(passed, default=Seconds(0)))


def waits_until(job: JobView, claims: Sequence[ClaimView]) -> Seconds:
    """Time until which the present round waits for further tasks, if it has enough.

    That is the end of the stragglers' time, or voteTime after the last task that was accepted later.
    """
    end, last = stragglers_end(job), last_acceptance(job, claims)
    return Seconds(last + job.terms.vote_time) if last > end else end


def closable(job: JobView, claims: Sequence[ClaimView], now: Seconds) -> bool:
    """True if the present round waits for outer claims only; then no further task is accepted."""
    if job.terms.slices > 1 and slices(job, claims):
        return True
    count = len(accepted(job, claims))
    return count == job.terms.shards or (count >= job.terms.min_shards and now > waits_until(job, claims))


def closable_from(job: JobView, claims: Sequence[ClaimView]) -> Seconds | None:
    """Time from which the clock alone makes the present round closable; None if too few tasks are
    accepted."""
    count = len(accepted(job, claims))
    return waits_until(job, claims) if job.terms.min_shards <= count < job.terms.shards else None


def left_out(job: JobView, claims: Sequence[ClaimView], view: ClaimView, now: Seconds) -> bool:
    """True if a task is not accepted and its round goes on without it (rule 4.3.5)."""
    claim, pending = view.claim, view.status.phase in (Phase.COMMITTED, Phase.SEEDED)
    present = claim.kind == Kind.TASK and claim.round == job.progress.round and not view.stale
    return view.left_out or (pending and present and closable(job, claims, now))


def stands(job: JobView, claims: Sequence[ClaimView], view: ClaimView, now: Seconds) -> bool:
    """True if a claim stands: not ended, not overtaken by a rewind, not left out."""
    ended = view.status.phase not in STANDING
    return not (ended or view.stale or left_out(job, claims, view, now))


def closable_since(job: JobView, claims: Sequence[ClaimView]) -> Seconds:
    """Time since which the present round is closable, or has its first slice.

    Its outer claims are reserved for outerTime from then.
    """
    if there := slices(job, claims):
        return Seconds(max(job.progress.round_start, min(view.claim.committed_at for view in there)))
    whole = len(accepted(job, claims)) == job.terms.shards
    return last_acceptance(job, claims) if whole else waits_until(job, claims)
