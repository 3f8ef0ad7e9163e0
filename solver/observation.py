"""Defines the input of a solver's decisions: what it observes and what its operator allows.

Contract: values; the same observation gives the same decision (``solver.policy``) and the same reasons
(``solver.reasons``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction

from assay.node.rounds import CHALLENGEABLE, closable, moving, standing
from assay.protocol.demands import DemandView
from assay.protocol.game_state import GameView
from assay.protocol.params import price_at, task_operations
from assay.protocol.types import (
    Address,
    ClaimView,
    ClockView,
    Holder,
    JobId,
    JobView,
    Kind,
    Seconds,
    Terms,
    Wei,
)
from assay.solver.acceptance import USUAL, TermsLimits

NO_STAKE = Wei(0)


class Takes(StrEnum):
    """Kinds of claims that the solver makes."""

    BOTH = "both"
    """Tasks of the shards that it holds, and the outer claims reserved to them."""
    TASKS = "tasks"
    """Tasks only; outer claims reserved to its shards are left to the next in turn."""
    OUTER = "outer"
    """Outer claims only, of jobs in which it holds no shard: a learner (docs/concepts.md)."""


@dataclass(frozen=True)
class Limits:
    """The operator's limits."""

    min_price: Wei
    """For 10^15 operations, at the least."""
    max_shards: int
    patience: Seconds
    """Seconds that the solver leaves others to make their own calls."""
    release: frozenset[tuple[JobId, int]] = frozenset()
    """Shards to release as soon as nothing is owed."""
    retire: bool = False
    """Take no new work and release all shards."""
    terms: TermsLimits = USUAL
    """Limits on the terms of jobs."""
    slow: bool | None = None
    """True: take slow shards only; False: others only; None: both. Applies to jobs that have slow shards."""
    takes: Takes = Takes.BOTH
    max_loss: Wei | None = None
    """Maximum of `at_risk`; None: all that is staked."""
    leave: str = ""
    """Reason to take no new work and release all shards; empty if there is none (``node.pausing``)."""
    pause: str = ""
    """Reason to take no new work for the moment; empty if there is none."""

    @property
    def leaving(self) -> bool:
        """True if every shard is released as soon as nothing is owed."""
        return self.retire or bool(self.leave)

    @property
    def resting(self) -> bool:
        """True if no new work is taken."""
        return self.leaving or bool(self.pause)

    def suits(self, terms: Terms, shard: int) -> bool:
        """True if the shard has the speed that the operator takes; if all shards are alike, each has."""
        first, last = terms.main.is_slow(0), terms.main.is_slow(terms.shards - 1)
        return self.slow is None or first == last or terms.main.is_slow(shard) == self.slow


@dataclass(frozen=True)
class JobObservation:
    """One job as the solver observes it."""

    view: JobView
    examined: bool
    refusal: str
    """Reason why the job was abandoned; empty if it is sound or not yet examined."""
    holders: tuple[Holder, ...]
    """Empty, as are prices, if nothing of the job is ours and no shard is acceptable."""
    prices: tuple[Wei, ...]
    claims: tuple[ClaimView, ...]
    games: tuple[GameView, ...]
    trained: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """Number of trained segments by (round, shard), from the round's current input state."""
    demands: tuple[DemandView, ...] = ()
    room: Wei | None = None
    """Stake that can still be locked for the job's client: unlocked and within the owner's caps; None:
    all."""
    pending: frozenset[tuple[Kind, int, int]] = frozenset()
    """Places (kind, round, shard or slice) of own claims that are being stored or committed."""
    outer_share: Fraction = Fraction(0)
    """Operations of an outer claim over those of a task; known once the job is examined."""
    operations: tuple[int, ...] = ()
    """Of a step of each of a task's loops; known once the job is examined."""

    def least_price(self, limits: Limits, shard: int) -> Wei:
        """Minimum price at which the operator takes a task of the shard, of a job that is examined."""
        return price_at(limits.min_price, task_operations(self.view.terms, shard, self.operations))

    def standing(self, kind: Kind, round_: int, shard: int) -> ClaimView | None:
        """The standing claim at a place of the job."""
        return standing(self.claims, kind, round_, shard)

    def claimed(self, kind: Kind, round_: int, shard: int) -> bool:
        """True if a claim stands at a place of the job, or one of ours is being committed there."""
        return (kind, round_, shard) in self.pending or self.standing(kind, round_, shard) is not None


@dataclass(frozen=True)
class Observation:
    """All inputs of a decision."""

    me: Address
    now: Seconds
    clock: ClockView
    unlocked: Wei
    """Solver stake that no claim locks."""
    jobs: tuple[JobObservation, ...]
    """Open jobs, and closed ones in which something of ours is left."""
    limits: Limits
    staked: Wei = NO_STAKE
    """All solver stake, locked or not."""

    def unlocked_for(self, job: JobObservation) -> Wei:
        """Solver stake that a claim in this job can still lock."""
        return self.unlocked if job.room is None else min(self.unlocked, job.room)

    @property
    def open_jobs(self) -> list[JobObservation]:
        """Jobs that are not closed."""
        return [job for job in self.jobs if not job.view.progress.closed]


def holds(observation: Observation, job: JobObservation) -> list[int]:
    """Shards of the job that this solver holds."""
    return [k for k, holder in enumerate(job.holders) if holder.solver == observation.me]


def at_risk(observation: Observation, more: Terms | None = None) -> Wei:
    """The most that this solver can lose by being offline or by faults of its own.

    That is the penalty of each shard it holds, the stakes of all claims that these shards can have unsettled
    at once, and the stakes that other claims lock now. `more`: adds another shard of a job with these terms.
    """
    most, mine = observation.staked - observation.unlocked, observation.limits.takes
    for job in observation.open_jobs:
        held = len(holds(observation, job))
        if held:
            most += max(_most_of(job.view.terms, held, mine) - _locked_in(observation, job, held), 0)
    return Wei(most + (_most_of(more, 1, mine) if more else 0))


def with_outer(observation: Observation, job: JobObservation) -> Wei:
    """As `at_risk`, with one more outer claim in the job's present round.

    `at_risk` already includes as many outer claims as this solver's shards may be asked for.
    """
    held, terms, round_ = len(holds(observation, job)), job.view.terms, job.view.progress.round
    made = [v.claim for v in moving(job.claims) if v.claim.kind == Kind.OUTER and v.claim.round == round_]
    counted = sum(claim.claimant == observation.me for claim in made) < min(terms.slices, held)
    return Wei(at_risk(observation) + (0 if counted else terms.solver_stake))


def _most_of(terms: Terms, shards: int, takes: Takes) -> int:
    """Maximum stake that this many shards of a job can lock at once."""
    outer = 0 if takes == Takes.TASKS else min(terms.slices, shards)
    rounds = min(terms.max_unsettled, terms.rounds)
    return shards * terms.miss_penalty + rounds * (shards + outer) * terms.solver_stake


def _locked_in(observation: Observation, job: JobObservation, shards: int) -> int:
    """Stake that these shards and this solver's claims in the job lock now."""
    claims = [v for v in moving(job.claims) if v.claim.claimant == observation.me]
    live = sum(view.status.phase in CHALLENGEABLE for view in claims)
    return shards * job.view.terms.miss_penalty + live * job.view.terms.solver_stake


def due(job: JobObservation, shard: int) -> Seconds:
    """Time at which a shard's task of the present round is due (rule 4.3.3); later it can only be expired."""
    start = max(job.view.progress.due_since, job.holders[shard].since)
    return Seconds(start + job.view.terms.task_time)


def round_open(job: JobObservation, now: Seconds) -> bool:
    """True if tasks of the job's present round can still be committed and accepted."""
    progress, terms = job.view.progress, job.view.terms
    if progress.closed or progress.round >= progress.final_round:
        return False
    room = progress.round - progress.settled_rounds < terms.max_unsettled
    return room and not closable(job.view, job.claims, now)
