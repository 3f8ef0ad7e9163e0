"""What a solver sees and is allowed: everything that its decisions depend on.

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
    """Which claims an operator's solver makes."""

    BOTH = "both"
    """Tasks of the shards that it holds, and the outer claims that are reserved to these."""
    TASKS = "tasks"
    """Tasks alone. What is reserved to its shards is left to whoever comes after them."""
    OUTER = "outer"
    """Outer claims alone, of jobs in which it holds no shard: a learner (docs/concepts.md)."""


@dataclass(frozen=True)
class Limits:
    """What the operator allows."""

    min_price: Wei
    max_shards: int
    patience: Seconds
    """How long the solver waits before it does for others what anyone may do."""
    release: frozenset[tuple[JobId, int]] = frozenset()
    """Shards to give back as soon as nothing is owed."""
    retire: bool = False
    """Take nothing new and give everything back."""
    terms: TermsLimits = USUAL
    """Of which jobs it takes shards."""
    slow: bool | None = None
    """Of a job that has slow shards: take these alone, or the others alone; None: any."""
    takes: Takes = Takes.BOTH
    max_loss: Wei | None = None
    """The most that may be at risk at once, by what is held and by all claims that this may come to; None:
    all that is staked."""
    leave: str = ""
    """Why it takes nothing new and gives everything back; empty if it does not (``node.rest``)."""
    pause: str = ""
    """Why it takes nothing new for the moment; empty if it does."""

    @property
    def leaving(self) -> bool:
        """Whether every shard is given back as soon as nothing is owed."""
        return self.retire or bool(self.leave)

    @property
    def resting(self) -> bool:
        """Whether nothing new is taken."""
        return self.leaving or bool(self.pause)

    def suits(self, terms: Terms, shard: int) -> bool:
        """Whether the shard is of the speed that the operator takes; where all are alike, each is."""
        first, last = terms.main.is_slow(0), terms.main.is_slow(terms.shards - 1)
        return self.slow is None or first == last or terms.main.is_slow(shard) == self.slow


@dataclass(frozen=True)
class JobObservation:
    """One job as the solver sees it."""

    view: JobView
    examined: bool
    refusal: str
    """Why the job must not be worked on; empty if it is sound or not yet examined."""
    holders: tuple[Holder, ...]
    """None, as no prices, where nothing of the job is ours and no shard is acceptable."""
    prices: tuple[Wei, ...]
    claims: tuple[ClaimView, ...]
    games: tuple[GameView, ...]
    trained: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """Segments done of (round, shard), from the input state that the round has now."""
    demands: tuple[DemandView, ...] = ()
    room: Wei | None = None
    """What may still be locked for the job's client: unlocked stake, within the owner's caps; None: all."""
    pending: frozenset[tuple[Kind, int, int]] = frozenset()
    """Places (kind, round, shard or slice) of claims of ours that are being committed, or stored for that."""
    outer_share: Fraction = Fraction(0)
    """Operations of an outer claim over those of a task, of a job that is examined."""

    def standing(self, kind: Kind, round_: int, shard: int) -> ClaimView | None:
        """The claim that stands at a place of the job."""
        return standing(self.claims, kind, round_, shard)

    def claimed(self, kind: Kind, round_: int, shard: int) -> bool:
        """Whether a claim stands at a place of the job, or one of ours is on its way there."""
        return (kind, round_, shard) in self.pending or self.standing(kind, round_, shard) is not None


@dataclass(frozen=True)
class Observation:
    """Everything that a decision depends on."""

    me: Address
    now: Seconds
    clock: ClockView
    unlocked: Wei
    """Solver stake that no claim locks."""
    jobs: tuple[JobObservation, ...]
    """Open ones, and closed ones in which something of ours is left."""
    limits: Limits
    staked: Wei = NO_STAKE
    """All solver stake, locked or not."""

    def unlocked_for(self, job: JobObservation) -> Wei:
        """Solver stake that a claim in this job may lock."""
        return self.unlocked if job.room is None else min(self.unlocked, job.room)

    @property
    def open_jobs(self) -> list[JobObservation]:
        """Those in which there may be work."""
        return [job for job in self.jobs if not job.view.progress.closed]


def holds(observation: Observation, job: JobObservation) -> list[int]:
    """Shards of the job that this solver holds."""
    return [k for k, holder in enumerate(job.holders) if holder.solver == observation.me]


def at_risk(observation: Observation, more: Terms | None = None) -> Wei:
    """The most that this solver may lose by sleeping or by faults of its own: of each shard that it holds the
    penalty, and the stakes of all claims that may be unsettled at once; of other claims what they lock now.
    `more`: with another shard of such a job."""
    most, mine = observation.staked - observation.unlocked, observation.limits.takes
    for job in observation.open_jobs:
        held = len(holds(observation, job))
        if held:
            most += max(_most_of(job.view.terms, held, mine) - _locked_in(observation, job, held), 0)
    return Wei(most + (_most_of(more, 1, mine) if more else 0))


def with_outer(observation: Observation, job: JobObservation) -> Wei:
    """The same, with one more outer claim of the job's present round. As many as our shards may be asked for
    in a round are in `at_risk` already."""
    held, terms, round_ = len(holds(observation, job)), job.view.terms, job.view.progress.round
    made = [v.claim for v in moving(job.claims) if v.claim.kind == Kind.OUTER and v.claim.round == round_]
    counted = sum(claim.claimant == observation.me for claim in made) < min(terms.slices, held)
    return Wei(at_risk(observation) + (0 if counted else terms.solver_stake))


def _most_of(terms: Terms, shards: int, takes: Takes) -> int:
    """What shards of a job may come to lock at once."""
    outer = 0 if takes == Takes.TASKS else min(terms.slices, shards)
    rounds = min(terms.max_unsettled, terms.rounds)
    return shards * terms.miss_penalty + rounds * (shards + outer) * terms.solver_stake


def _locked_in(observation: Observation, job: JobObservation, shards: int) -> int:
    """What they and our claims in the job lock now."""
    claims = [v for v in moving(job.claims) if v.claim.claimant == observation.me]
    live = sum(view.status.phase in CHALLENGEABLE for view in claims)
    return shards * job.view.terms.miss_penalty + live * job.view.terms.solver_stake


def due(job: JobObservation, shard: int) -> Seconds:
    """When a shard's task of the present round is due (rule 4.3.3); after that it can only be expired."""
    start = max(job.view.progress.due_since, job.holders[shard].since)
    return Seconds(start + job.view.terms.task_time)


def round_open(job: JobObservation, now: Seconds) -> bool:
    """Whether tasks of the job's present round may still be committed and accepted."""
    progress, terms = job.view.progress, job.view.terms
    if progress.closed or progress.round >= progress.final_round:
        return False
    room = progress.round - progress.settled_rounds < terms.max_unsettled
    return room and not closable(job.view, job.claims, now)
