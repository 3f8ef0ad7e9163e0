"""Following a job: where each round stands, its loss, what it cost so far, what was disputed.

Contract: everything comes from the chain, as of one block, and from published checkpoints; losses are those
that the claims' own states hold, marked with the phase of the claim, so a reader sees what is settled and
what is merely claimed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from assay.node.artifacts import LoadedJob, State, read_checkpoints
from assay.node.divergence import Divergence, divergence_of, earlier, not_finite
from assay.node.engine import REFERENCE_ENGINE, Engine
from assay.node.inaccuracy import Inaccuracy, inaccuracy_of
from assay.node.rounds import standing
from assay.node.work import Work
from assay.protocol.errors import AssayError
from assay.protocol.ports import Blocks, MarketView
from assay.protocol.types import Address, ClaimId, ClaimView, JobId, JobView, Kind, Phase, Wei
from assay.training.evaluate import training_loss
from assay.training.losses import LOSS_SLOT


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
    missing: bool
    """The round was closed without the shard."""


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
    divergence: Divergence | None = None
    """The first step after which a task's numbers are not finite; None if there is none or nobody looked."""
    inaccuracy: Inaccuracy | None = None
    """The last round's, if products are further from exact ones than bfloat16's; None if nobody looked."""

    @property
    def done(self) -> bool:
        progress = self.job.progress
        return progress.closed or progress.settled_rounds >= self.job.terms.rounds

    def loss_by_round(self) -> list[float | None]:
        """Mean loss of each round's tasks but for missing shards, None where one is not known."""
        means: list[float | None] = []
        for round_ in range(self.job.terms.rounds):
            losses = [t.loss for t in self.tasks if t.round == round_ and not t.missing]
            known = [loss for loss in losses if loss is not None]
            means.append(sum(known) / len(known) if known and len(known) == len(losses) else None)
        return means


class Losses:
    """What the published states of a job's tasks say, each fetched once. `measure`: also how accurate the
    products of the step after a round's first published state are, which takes a step's time a round.
    """

    def __init__(self, blocks: Blocks, work: Work, *, measure: bool = False) -> None:
        self._blocks, self._work, self._measure = blocks, work, measure
        self._inaccuracies: dict[int, Inaccuracy | None] = {}
        self._ends: dict[ClaimId, tuple[float | None, str]] = {}
        self._divergences: dict[ClaimId, Divergence | None] = {}

    def of(self, view: ClaimView) -> float | None:
        """Loss that a task's output state holds; None where it cannot be fetched or the job has no loss
        slot."""
        return self._end(view)[0]

    def divergence(self, view: ClaimView) -> Divergence | None:
        """Where a task's numbers cease to be finite; None if they are at its end, or cannot be fetched."""
        if view.claim_id not in self._divergences:
            if not self._end(view)[1]:
                return None
            claim = view.claim
            leaf = partial(self._leaf, view)
            self._divergences[view.claim_id] = divergence_of(self._work, claim.round, claim.shard, leaf)
        return self._divergences[view.claim_id]

    def inaccuracy(self, view: ClaimView) -> Inaccuracy | None:
        """That of a task's round, by this task's last state if no other's was looked at; None if it cannot be
        fetched or nothing is measured.
        """
        claim = view.claim
        if self._measure and claim.round not in self._inaccuracies:
            state = self._leaf(view, self._work.segments(Kind.TASK))
            if state is None:
                return None
            self._inaccuracies[claim.round] = inaccuracy_of(self._work, claim.round, claim.shard, state)
        return self._inaccuracies.get(claim.round)

    def _end(self, view: ClaimView) -> tuple[float | None, str]:
        """Loss of a task's output state, and what in it is not finite."""
        files = self._work.files
        if view.claim_id not in self._ends:
            state = self._leaf(view, self._work.segments(Kind.TASK))
            if state is None:
                return None, ""
            loss = training_loss(files.slot_names, state) if LOSS_SLOT in files.slot_names else None
            self._ends[view.claim_id] = loss, not_finite(files.slot_names, files.inner.params, state)
        return self._ends[view.claim_id]

    def _leaf(self, view: ClaimView, leaf: int) -> State | None:
        try:
            checkpoint = read_checkpoints(self._blocks, view.claim.manifest, view.roots)[leaf]
            data = self._blocks.read_file(checkpoint.cid, self._work.files.inner.state_bytes)
            return self._work.load(Kind.TASK, data)
        except AssayError:
            return None


def losses_of(
    market: MarketView,
    blocks: Blocks,
    job_id: JobId,
    files: LoadedJob,
    engine: Engine = REFERENCE_ENGINE,
    *,
    measure: bool = False,
) -> Losses:
    """What `follow` reads losses with; keep it to follow a job for longer."""
    return Losses(blocks, Work(market.job(job_id).terms, files, engine=engine), measure=measure)


def follow(market: MarketView, job_id: JobId, losses: Losses | None = None) -> Following:
    """Where a job stands. Raises Stop when there is no such job."""
    with market.snapshot():  # or a claim that settles meanwhile counts on one side and not on the other
        job = market.job(job_id)
        claims: Sequence[ClaimView] = market.claims(job_id)
        games = market.games(job_id)
        holders = [market.holder(job_id, shard).solver for shard in range(job.terms.shards)]
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
                first = earlier(first, losses.divergence(view))
                inaccuracy = losses.inaccuracy(view) or inaccuracy
            phase = Phase.NONE if view is None else view.status.phase
            claim_id = None if view is None else view.claim_id
            left = view is None and round_ < job.progress.round
            tasks.append(TaskLine(round_, shard, holder, phase, claim_id, loss, disputes, left))
    outer = []
    for round_ in range(job.terms.rounds):
        found = standing(claims, Kind.OUTER, round_, 0)
        outer.append(Phase.NONE if found is None else found.status.phase)
    convictions = sum(view.status.phase == Phase.CONVICTED for view in claims)
    amount, rewinds = paid(job, claims), job.progress.rewinds
    return Following(job, tuple(tasks), tuple(outer), amount, convictions, rewinds, first, inaccuracy)


def paid(job: JobView, claims: Sequence[ClaimView]) -> Wei:
    """What settled claims were paid, verifiers' fees included."""
    total = 0
    for view in claims:
        if view.status.phase == Phase.SETTLED:
            valid = sum(vote.revealed and vote.valid for vote in view.votes)
            total += view.claim.price + valid * job.terms.verifier_fee
    return Wei(total)
