"""Chooses the class of conditions to which a verifier subscribes: one that has paid it.

Contract: pure. Only fees paid to this account count: a class may pay others from its maker's own pocket and
back. A class within the operator's limits is *open* while it has a job that can pay a future vote, or owes
one. It *pays* unless it brought no fee for a whole `trial`, or its open jobs paid less than half of what
votes on ended claims were worth. A stake counts in a new class only two epochs later, so a class is only left
for a better one: one that pays and is open, for one that pays over twice as much.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from assay.node.rounds import CHALLENGEABLE, moving
from assay.node.upkeep import voted
from assay.protocol.types import Address, ClaimView, Conditions, JobId, JobView, Seconds, Wei

TRIAL = Seconds(24 * 3600)
NOTHING = Wei(0)
TERA = 10**12
VOTES = 8
"""Minimum number of votes on ended claims before their pay is compared with their worth."""
_BEGUN = Seconds(0)


@dataclass(frozen=True)
class ClassLimits:
    """The operator's limits on conditions; sizes are the most that it fetches and runs."""

    most_stake: Wei
    """Maximum stake of one seat, which a false attestation loses."""
    least_fee: Wei
    least_vote: Seconds
    data_bytes: int
    state_bytes: int
    step_bytes: int
    step_operations: int
    least_rate: Wei = NOTHING
    """Minimum fee of a vote per 10^12 operations of its replay."""
    trial: Seconds = TRIAL
    """Seconds for which a class may pay nothing."""


@dataclass(frozen=True)
class Stay:
    """A period in which this account was subscribed to one class."""

    class_id: bytes
    since: Seconds
    seen: Wei
    """Total that the class had paid this account at the last look."""
    paid_at: Seconds = _BEGUN
    """Time at which that was last seen to grow; 0: not in this stay."""

    @property
    def fed(self) -> Seconds:
        """Time since which the class has paid nothing."""
        return max(self.since, self.paid_at)


@dataclass(frozen=True)
class Past:
    """History of this account's classes and fees."""

    stays: tuple[Stay, ...] = ()
    """Oldest first; the last one is the present one."""
    fees: Mapping[JobId, Wei] = field(default_factory=dict)
    """Fees that each job has paid for votes."""
    by_class: Mapping[bytes, Wei] = field(default_factory=dict)
    """The same by class."""


@dataclass(frozen=True)
class Prospect:
    """A class within the operator's limits, with this account's experience of it."""

    class_id: bytes
    open: bool
    pays: bool
    rate: float
    """Pay per second of all stays, counted as at least one `trial`; 0: it has never paid."""
    left: Seconds
    """Time at which it was last left; 0: never, or not yet."""


def outside(conditions: Conditions, limits: ClassLimits) -> str:
    """Reason why these conditions exceed the limits; empty if they do not."""
    c = conditions
    if c.verifier_stake > limits.most_stake:
        return f"a seat locks {c.verifier_stake}, the operator allows {limits.most_stake}"
    if c.verifier_fee < limits.least_fee:
        return f"a vote may pay only {c.verifier_fee}, the operator asks {limits.least_fee}"
    if c.vote_time < limits.least_vote:
        return f"a vote has {c.vote_time} s, the operator asks {limits.least_vote}"
    for name in ("data_bytes", "state_bytes", "step_bytes", "step_operations"):
        if getattr(c, name) > getattr(limits, name):
            return f"its {name} may be {getattr(c, name)}, this node takes {getattr(limits, name)}"
    return ""


def payable(job: JobView, limits: ClassLimits) -> bool:
    """True if future votes on this job's tasks can be paid, and at the operator's rate.

    The job begins further rounds, its escrow has a fee left, its solvers stake no less than all seats of a
    task, and its fee suits its replays.
    """
    terms, progress = job.terms, job.progress
    begins = not (progress.closed or progress.halted) and progress.round < progress.final_round
    backed = terms.solver_stake >= terms.verifiers * terms.verifier_stake
    steps = sum(loop.samples * loop.segment_steps for loop in terms.loops)
    suits = terms.verifier_fee * TERA >= limits.least_rate * steps * terms.step_operations
    return begins and job.escrow >= terms.verifier_fee and backed and suits


def owes(me: Address, claims: Sequence[ClaimView]) -> bool:
    """True if a vote of this account is still unpaid."""
    votes = (vote for view in moving(claims) if not view.stale for vote in view.votes)
    return any(vote.verifier == me and voted(vote) and not vote.gone for vote in votes)


def falls_short(me: Address, job: JobView, claims: Sequence[ClaimView], paid: Wei) -> bool:
    """True if a job has paid less than half of what this account's votes on its ended claims were worth."""
    ended = sum(
        vote.verifier == me and voted(vote) and not vote.gone
        for view in claims
        if view.stale or view.status.phase not in CHALLENGEABLE
        for vote in view.votes
    )
    return ended >= VOTES and 2 * paid < ended * job.terms.verifier_fee


def prospects(
    me: Address,
    now: Seconds,
    jobs: Iterable[tuple[JobView, Sequence[ClaimView]]],
    classes: Mapping[bytes, Conditions],
    past: Past,
    limits: ClassLimits,
) -> list[Prospect]:
    """Classes within the limits: those of open jobs in the jobs' order, then the others, newest first."""
    running = [(job, claims) for job, claims in jobs if not job.progress.closed]
    live = [job for job, claims in running if payable(job, limits) or owes(me, claims)]
    open_ = dict.fromkeys(job.terms.class_id for job in live)
    short = {
        job.terms.class_id
        for job, claims in running
        if falls_short(me, job, claims, past.fees.get(job.job_id, NOTHING))
    }
    found = []
    for class_id in dict.fromkeys((*open_, *reversed(tuple(classes)))):
        if class_id not in classes or outside(classes[class_id], limits):
            continue
        times = [(stay, end) for stay, end in _ended(past.stays, now) if stay.class_id == class_id]
        hungry = bool(times) and times[-1][1] - times[-1][0].fed >= limits.trial
        stayed = max(sum(end - stay.since for stay, end in times), limits.trial, 1)
        rate = past.by_class.get(class_id, NOTHING) / stayed
        left = times[-1][1] if times else _BEGUN
        pays = not hungry and class_id not in short
        found.append(Prospect(class_id, class_id in open_, pays, rate, left))
    return found


def choose(
    now: Seconds, own: bytes, found: Sequence[Prospect], stays: Sequence[Stay], trial: Seconds
) -> Prospect | None:
    """The class to subscribe to instead of the present one; None: stay."""
    here = next((each for each in found if each.class_id == own), None)
    others = [each for each in found if each.class_id != own]
    proven = [each for each in others if each.rate and each.pays]
    best, home = _best(each for each in others if each.open), _best(proven)
    paying = _best(each for each in proven if each.open)
    if here is None:
        return best or (home or _best(others) if not any(own) else None)
    since, fed = (stays[-1].since, stays[-1].fed) if stays else (now, now)
    if here.open and here.pays:
        if paying is None or paying.rate <= 2 * here.rate or (here.rate and now - since < trial):
            return None
        return paying
    if not here.pays:
        rotated = best if best is not None and (best.pays or now - since >= trial) else None
        return paying or home or rotated
    if paying is not None or best is None or not here.rate:
        return paying or best
    return best if now - fed >= _wasted(now, found, stays, trial) else None


def _ended(stays: Sequence[Stay], now: Seconds) -> Iterable[tuple[Stay, Seconds]]:
    """Each stay with its end: the next one's beginning, or now."""
    ends = [*(stay.since for stay in stays[1:]), now]
    return zip(stays, ends, strict=False)


def _best(found: Iterable[Prospect]) -> Prospect | None:
    """The best-paying class; among those that never paid, the one left longest ago."""
    return max(found, key=lambda each: (each.pays, each.rate, -each.left), default=None)


def _wasted(now: Seconds, found: Sequence[Prospect], stays: Sequence[Stay], trial: Seconds) -> int:
    """Seconds of whole trials that this account spent in classes that never paid.

    It stays that long in an idle class that has paid before it tries another that has not.
    """
    proven = {each.class_id for each in found if each.rate}
    lasted = [end - stay.since for stay, end in _ended(stays, now) if stay.class_id not in proven]
    return sum(time for time in lasted if time >= trial)
