"""Orders to workers that every role uses: examine a job, judge claims and votes, play games.

Contract: as ``compute.orders``. An order carries the node's own view of the claim. States are read from the
node's blocks or recomputed (``node.states``). No order imports PyTorch before it runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from assay.compute.node_calls import NodeCalls
from assay.compute.orders import Order, WorkerContext
from assay.node.findings import Finding, WrongInput
from assay.node.limits import ResourceLimits
from assay.protocol.demands import Chunk, DemandView, StateLeaf
from assay.protocol.dispute import Move
from assay.protocol.game_state import GameView
from assay.protocol.params import CHUNKS, task_operations
from assay.protocol.ports import Blocks, MarketView
from assay.protocol.types import ClaimView, JobId, Kind, Terms, Vote

if TYPE_CHECKING:
    from assay.node.artifacts import LoadedJob
    from assay.node.engine import Engine
    from assay.node.job_cache import OpenJob
    from assay.node.replay_cache import ReplayCache
    from assay.node.states import StateProvider
    from assay.node.work import Work

R = TypeVar("R")


@dataclass(frozen=True)
class ReplayCacheSpec:
    """Folder and byte budgets of the cache of replays (``node.replay_cache``)."""

    folder: Path
    states_bytes: int
    pinned_bytes: int | None = None


@dataclass(frozen=True)
class JobSpec:
    """Everything a worker needs to open a job."""

    job_id: JobId
    terms: Terms
    limits: ResourceLimits
    kept: ReplayCacheSpec | None = None
    settled: int = field(default=0, compare=False)
    """Number of settled rounds: their states leave the worker's memory."""

    def make_work(self, files: LoadedJob, engine: Engine, desk: NodeCalls) -> Work:
        """Prepares the job's programs to run (a drill overrides this)."""
        from assay.node.work import Work

        return Work(self.terms, files, engine=engine)

    def make_states(
        self, market: MarketView, blocks: Blocks, work: Work, kept: ReplayCache | None, books: Any
    ) -> StateProvider:
        """Creates the provider of its states (a drill overrides this)."""
        from assay.node.states import StateProvider

        return StateProvider(market, blocks, self.job_id, work, self.limits.cache_bytes, kept)


@dataclass(frozen=True)
class JobOrder(Order[R], Generic[R]):
    """Base class of orders about a job. `what`: key of the action that the order belongs to."""

    job: JobSpec
    what: str
    part: ClassVar[bool] = False
    """True if the action has further orders, which share the files found missing."""

    @property
    def affinity(self) -> str:
        return self.job.job_id.hex()

    def run(self, context: WorkerContext) -> R:
        from assay.node.job_cache import opened

        with opened(context, self.job, self.what, self.part) as job:
            return self.do(job, context)

    def do(self, job: OpenJob, context: WorkerContext) -> R:
        """Executes the order on the opened job."""
        raise NotImplementedError


@dataclass(frozen=True)
class Examined:
    """Facts about a valid job on which a node decides. `outer_share`: operations of an outer claim over a
    task's; `operations`: of a step of each of a task's loops."""

    outer_share: Fraction
    operations: tuple[int, ...]


@dataclass(frozen=True)
class Examine(JobOrder[Examined]):
    """Fetches and checks the job's files; its programs alone if tasks have more operations than `most`."""

    most: int | None = None

    def run(self, context: WorkerContext) -> Examined:
        if self.most is not None:
            found, last = self._by_programs(context), self.job.terms.shards - 1  # whose task has the fewest
            if task_operations(self.job.terms, last, found.operations) > self.most:
                return found
        return super().run(context)

    def _by_programs(self, context: WorkerContext) -> Examined:
        from assay.node.artifacts import load_programs
        from assay.node.fetch_failures import Absent, MissCachingBlocks
        from assay.node.work import examined

        assert context.desk is not None, "a job's orders need a node"
        absent: Absent = context.cache.setdefault("absent", Absent())
        with absent.during(self.what, part=True):
            blocks = MissCachingBlocks(context.desk.blocks, absent)
            _, programs = load_programs(blocks, self.job.terms, self.job.limits)
        return examined(self.job.terms, programs[Kind.TASK], programs[Kind.OUTER])

    def do(self, job: OpenJob, context: WorkerContext) -> Examined:
        from assay.node.work import examined

        return examined(job.work.terms, job.work.files.tasks, job.work.files.outers)


@dataclass(frozen=True)
class JudgeInput(JobOrder[Finding | None]):
    """Checks that a claim starts from the right input state."""

    view: ClaimView
    part = True

    def do(self, job: OpenJob, context: WorkerContext) -> Finding | None:
        from assay.node.audit import audit_input

        return audit_input(job.state_provider, self.view)


@dataclass(frozen=True)
class JudgeSegment(JobOrder[Finding | bytes]):
    """Judges a segment: the finding, or the trace root of its last step under `key`.

    Without a key no trace is made, and segments that this node has replayed before are skipped.
    """

    view: ClaimView
    segment: int
    key: bytes | None = None
    games: int = 0
    """Number of the node's open games."""
    part = True

    @property
    def affinity(self) -> str:
        return ""

    def do(self, job: OpenJob, context: WorkerContext) -> Finding | bytes:
        from assay.node.audit import audit_segment, replayed

        provider = job.state_provider
        if self.key is not None:
            return replayed(provider, self.view, self.segment, self.key, self.games, context.progress)
        if provider.is_known_right(self.view, self.segment):
            return b""
        return audit_segment(provider, self.view, self.segment, context.progress) or b""


@dataclass(frozen=True)
class JudgeVote(JobOrder[Finding | None]):
    """Judges a valid vote and its claim."""

    view: ClaimView
    vote: Vote

    def do(self, job: OpenJob, context: WorkerContext) -> Finding | None:
        from assay.node.audit import audit_vote

        return audit_vote(job.state_provider, self.view, self.vote)


@dataclass(frozen=True)
class IsPublished(JobOrder[bool]):
    """Checks that the states that a claim publishes can be fetched and are right."""

    view: ClaimView

    def do(self, job: OpenJob, context: WorkerContext) -> bool:
        return job.state_provider.published(self.view)


@dataclass(frozen=True)
class WantedLeaves:
    """Leaves of a claim's state at a segment's end to demand."""

    end: int
    places: tuple[StateLeaf, ...]


@dataclass(frozen=True)
class FindGap(JobOrder[WantedLeaves | None]):
    """Finds random unavailable leaves of a claim's published states; None if all are available."""

    view: ClaimView

    def do(self, job: OpenJob, context: WorkerContext) -> WantedLeaves | None:
        from assay.node.availability import leaves_to_demand

        order = SystemRandom()
        gap = job.state_provider.gap(self.view, order, CHUNKS)
        return None if gap is None else leaves_to_demand(job.work.program(self.view.claim.kind), gap, order)


@dataclass(frozen=True)
class Pieces(JobOrder[tuple[Chunk, ...]]):
    """Collects the leaves that a demand names."""

    view: ClaimView
    demand: DemandView
    held = False

    def do(self, job: OpenJob, context: WorkerContext) -> tuple[Chunk, ...]:
        from assay.node.availability import pieces

        return pieces(job.state_provider, self.view, self.demand)


@dataclass(frozen=True)
class NextMove(JobOrder[Move | None]):
    """Computes this account's move in a game; None if no sound move exists."""

    view: GameView
    held = False

    def do(self, job: OpenJob, context: WorkerContext) -> Move | None:
        return job.disputant.move(self.view)


@dataclass(frozen=True)
class FindWrongSlot(JobOrder[WrongInput | None]):
    """Finds a wrong slot of an input state that a game has opened."""

    view: GameView
    held = False

    def do(self, job: OpenJob, context: WorkerContext) -> WrongInput | None:
        from assay.node.audit import wrong_slot

        return wrong_slot(job.state_provider, self.view)


@dataclass(frozen=True)
class PinStarts(JobOrder[None]):
    """Pins the start states of these segments, from which games are played. Raises PinSpaceExceeded.

    `beside`: number of the node's open games, if another is to be opened about these segments. Raises TooSlow
    if it may be lost by the clock.
    """

    view: ClaimView
    segments: tuple[int, ...]
    beside: int | None = None

    def do(self, job: OpenJob, context: WorkerContext) -> None:
        from assay.node.audit import require_speed

        for segment in self.segments:
            if self.beside is not None:
                require_speed(job.state_provider, self.view, segment, self.beside)
            job.state_provider.pin_start(self.view, segment)
