"""Following a job: where each round stands, its loss, what it cost so far, what was disputed.

Contract: everything comes from the chain and from published checkpoints; losses are those that the claims'
own states hold, marked with the phase of the claim, so a reader sees what is settled and what is merely
claimed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from protocol.errors import AssayError
from protocol.ports import Blocks, MarketView
from protocol.types import Address, ClaimId, ClaimView, JobId, JobView, Kind, Phase, Wei
from training.artifacts import LoadedJob, read_checkpoints
from training.evaluate import training_loss
from training.job import LOSS_SLOT
from training.upkeep import standing
from training.work import Work


@dataclass(frozen=True)
class TaskLine:
    """One shard of one round."""

    round: int
    shard: int
    holder: Address
    phase: Phase
    claim_id: ClaimId | None
    loss: float | None
    """Training loss of the task's last step; None if not committed or not fetched."""
    disputes: int


@dataclass(frozen=True)
class Following:
    """A job at one moment."""

    job: JobView
    tasks: tuple[TaskLine, ...]
    outer: tuple[Phase, ...]
    """Phase of each round's outer claim."""
    paid: Wei
    convictions: int
    rewinds: int

    @property
    def done(self) -> bool:
        progress = self.job.progress
        return progress.closed or progress.settled_rounds >= self.job.terms.rounds

    def loss_by_round(self) -> list[float | None]:
        """Mean loss of each round's tasks, None where one is missing."""
        means: list[float | None] = []
        for round_ in range(self.job.terms.rounds):
            losses = [t.loss for t in self.tasks if t.round == round_]
            known = [loss for loss in losses if loss is not None]
            means.append(sum(known) / len(known) if known and len(known) == len(losses) else None)
        return means


def claim_loss(blocks: Blocks, work: Work, view: ClaimView) -> float | None:
    """Loss that a task's output state holds; None where it cannot be fetched or the job has no loss slot."""
    claim, files = view.claim, work.files
    if LOSS_SLOT not in files.slot_names or claim.kind != Kind.TASK:
        return None
    try:
        last = read_checkpoints(blocks, claim.manifest, view.roots)[-1]
        data = blocks.read_file(last.cid, files.inner.state_bytes)
        return training_loss(files.slot_names, work.load(Kind.TASK, data))
    except AssayError:
        return None


def follow(market: MarketView, blocks: Blocks, job_id: JobId, files: LoadedJob | None = None) -> Following:
    """Where a job stands; with its files, also the losses. Raises Stop when there is no such job."""
    job = market.job(job_id)
    claims: Sequence[ClaimView] = market.claims(job_id)
    games = market.games(job_id)
    work = None if files is None else Work(job.terms, files)
    tasks = []
    for round_ in range(job.terms.rounds):
        for shard in range(job.terms.shards):
            view = standing(claims, Kind.TASK, round_, shard)
            holder = market.holder(job_id, shard).solver if view is None else view.claim.claimant
            disputes = 0 if view is None else sum(g.game.claim_id == view.claim_id for g in games)
            loss = None if view is None or work is None else claim_loss(blocks, work, view)
            phase = Phase.NONE if view is None else view.status.phase
            claim_id = None if view is None else view.claim_id
            tasks.append(TaskLine(round_, shard, holder, phase, claim_id, loss, disputes))
    outer = []
    for round_ in range(job.terms.rounds):
        found = standing(claims, Kind.OUTER, round_, 0)
        outer.append(Phase.NONE if found is None else found.status.phase)
    convictions = sum(view.status.phase == Phase.CONVICTED for view in claims)
    return Following(job, tuple(tasks), tuple(outer), paid(job, claims), convictions, job.progress.epoch)


def paid(job: JobView, claims: Sequence[ClaimView]) -> Wei:
    """What settled claims were paid, verifiers' fees included."""
    total = 0
    for view in claims:
        if view.status.phase == Phase.SETTLED:
            valid = sum(vote.revealed and vote.valid for vote in view.votes)
            total += view.claim.price + valid * job.terms.verifier_fee
    return Wei(total)
