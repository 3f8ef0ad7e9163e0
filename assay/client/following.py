"""Summarises a job's progress: each round's tasks and losses, cost so far, disputes.

Contract: everything comes from the chain, at one block, and from published checkpoints. A loss is the one in
the claim's own state, shown with the claim's phase, so that a reader sees what is settled and what is only
claimed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from assay.client.closing import closes_at
from assay.node.rounds import Claims, standing
from assay.protocol.ports import MarketView
from assay.protocol.types import Address, ClaimId, ClaimView, JobId, JobView, Kind, Phase, Seconds, Wei
from assay.protocol.words import attested, show_state, show_votes

if TYPE_CHECKING:  # a job is followed without PyTorch where nobody asks for its losses
    from assay.client.losses import Losses
    from assay.node.divergence import Divergence
    from assay.node.inaccuracy import Inaccuracy


@dataclass(frozen=True)
class TaskLine:
    """One shard of one round."""

    round: int
    shard: int
    holder: Address
    phase: Phase
    claim_id: ClaimId | None
    loss: float | None
    """Training loss of the task's last step; None if not committed or not available."""
    disputes: int
    missing: bool
    """The round was closed without this shard."""
    held_out: float | None = None
    """Held-out loss of the round's initial parameters; None if not committed, not available, or not
    computed."""
    attested: bool = False
    votes: str = ""
    """``1 of 2 votes``, where its vote is over and not every seat attests it."""

    @property
    def state(self) -> str:
        """``protocol.words.show_state`` of it."""
        return show_state(self.phase, self.attested)


@dataclass(frozen=True)
class Following:
    """A job's progress at one block."""

    job: JobView
    tasks: tuple[TaskLine, ...]
    outer: tuple[Phase, ...]
    """Phase of each round's outer claim; with several slices, the least advanced."""
    slices: tuple[int, ...]
    """Number of outer claims of each round."""
    paid: Wei
    convictions: int
    rewinds: int
    divergence: Divergence | None = None
    """First step after which a task's numbers are not finite; None if there is none or it was not checked."""
    inaccuracy: Inaccuracy | None = None
    """The last round's inaccuracy if products are less accurate than bfloat16's; None if not, or not
    measured."""

    closes_at: Seconds | None = None
    """Chain time from which the job can be closed (``client.closing``)."""
    warnings: tuple[str, ...] = ()
    """Parameters that learn nothing or run away, and a rising loss (``client.warnings``)."""

    @property
    def done(self) -> bool:
        progress = self.job.progress
        return progress.closed or progress.settled_rounds >= self.job.terms.rounds

    def loss_by_round(self) -> list[float | None]:
        """Mean loss of each round's tasks without missing shards; None if one is unknown."""
        means: list[float | None] = []
        for round_ in range(self.job.terms.rounds):
            losses = [t.loss for t in self.tasks if t.round == round_ and not t.missing]
            known = [loss for loss in losses if loss is not None]
            means.append(sum(known) / len(known) if known and len(known) == len(losses) else None)
        return means

    def held_out_by_round(self) -> list[float | None]:
        """Held-out loss of each round's initial parameters, None if unknown; a mean if shards have their own
        parameters."""
        means: list[float | None] = []
        for round_ in range(self.job.terms.rounds):
            known = [t.held_out for t in self.tasks if t.round == round_ and t.held_out is not None]
            means.append(sum(known) / len(known) if known else None)
        return means


def follow(market: MarketView, job_id: JobId, losses: Losses | None = None) -> Following:
    """Reads a job's progress. Raises Stop if there is no such job."""
    if losses is not None:
        losses.look()
    with market.snapshot():  # or a claim that settles meanwhile counts on one side and not on the other
        job = market.job(job_id)
        claims = Claims(market.claims(job_id))
        games = market.games(job_id)
        holders = [market.holder(job_id, shard).solver for shard in range(job.terms.shards)]
        until = closes_at(market, job, claims)
    first: Divergence | None = None
    inaccuracy: Inaccuracy | None = None
    tasks = []
    for round_ in range(job.terms.rounds):
        for shard in range(job.terms.shards):
            view = standing(claims, Kind.TASK, round_, shard)
            holder = holders[shard] if view is None else view.claim.claimant
            disputes = 0 if view is None else sum(g.game.claim_id == view.claim_id for g in games)
            loss = None if view is None or losses is None else losses.of(view)
            if view is not None and losses is not None and (first is None or first.round == round_):
                first = losses.earlier(first, view)
                inaccuracy = losses.inaccuracy(view) or inaccuracy
            phase = Phase.NONE if view is None else view.status.phase
            claim_id = None if view is None else view.claim_id
            left = view is None and round_ < job.progress.round
            tested = None if view is None or losses is None else losses.held_out(view)
            line = TaskLine(round_, shard, holder, phase, claim_id, loss, disputes, left, tested)
            if view is not None:
                votes = show_votes(view, job.terms)
                line = replace(line, attested=attested(view, job.terms), votes=votes)
            tasks.append(line)
    outer, slices = [], []
    for round_ in range(job.terms.rounds):
        each = [standing(claims, Kind.OUTER, round_, number) for number in range(job.terms.slices)]
        outer.append(min(Phase.NONE if view is None else view.status.phase for view in each))
        slices.append(sum(view is not None for view in each))
    convictions = sum(view.status.phase == Phase.CONVICTED for view in claims)
    amount, rewinds = paid(job, claims), job.progress.rewinds
    told = tuple(tasks), tuple(outer), tuple(slices), amount, convictions, rewinds
    following = Following(job, *told, first, inaccuracy, until)
    return following if losses is None else replace(following, warnings=losses.warnings(following))


def paid(job: JobView, claims: Sequence[ClaimView]) -> Wei:
    """Total paid for settled claims, verifiers' fees included."""
    total = 0
    for view in claims:
        if view.status.phase == Phase.SETTLED:
            valid = sum(vote.shown and vote.valid for vote in view.votes)
            total += view.claim.price + valid * job.terms.verifier_fee
    return Wei(total)
