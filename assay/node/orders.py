"""What every role orders of its workers about a job: to examine it, to judge claims and votes, to play games.

Contract: as ``compute.orders``. An order names its claim by the node's own view of it; states come from the
node's blocks, or are computed again (``node.states``). No order needs PyTorch before it runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from assay.compute.home import Desk
from assay.compute.orders import Bench, Order
from assay.node.findings import Finding, WrongInput
from assay.node.limits import ResourceLimits
from assay.protocol.demands import Chunk, DemandView, StateLeaf
from assay.protocol.dispute import Move
from assay.protocol.game_state import GameView
from assay.protocol.params import CHUNKS
from assay.protocol.ports import Blocks, MarketView
from assay.protocol.types import ClaimView, JobId, Terms, Vote

if TYPE_CHECKING:
    from assay.node.artifacts import LoadedJob
    from assay.node.engine import Engine
    from assay.node.kept_replays import KeptReplays
    from assay.node.opened import OpenJob
    from assay.node.states import StateProvider
    from assay.node.work import Work

R = TypeVar("R")


@dataclass(frozen=True)
class KeptSpec:
    """Where replays and their states are kept, and how many bytes of them (``node.kept_replays``)."""

    folder: Path
    states_bytes: int
    pinned_bytes: int | None = None


@dataclass(frozen=True)
class JobSpec:
    """All that a worker needs to open a job."""

    job_id: JobId
    terms: Terms
    limits: ResourceLimits
    kept: KeptSpec | None = None
    settled: int = field(default=0, compare=False)
    """Rounds that are settled: their states leave the worker's memory."""

    def make_work(self, files: LoadedJob, engine: Engine, desk: Desk) -> Work:
        """The job made ready to compute (a drill overrides this)."""
        from assay.node.work import Work

        return Work(self.terms, files, engine=engine)

    def make_states(
        self, market: MarketView, blocks: Blocks, work: Work, kept: KeptReplays | None, books: Any
    ) -> StateProvider:
        """Where its states come from (a drill overrides this)."""
        from assay.node.states import StateProvider

        return StateProvider(market, blocks, self.job_id, work, self.limits.cache_bytes, kept)


@dataclass(frozen=True)
class JobOrder(Order[R], Generic[R]):
    """Base of the orders about a job. `what`: for which action of the node's."""

    job: JobSpec
    what: str
    part: ClassVar[bool] = False
    """Whether the action has further orders: they do not ask again for what this one has found missing."""

    @property
    def affinity(self) -> str:
        return self.job.job_id.hex()

    def run(self, bench: Bench) -> R:
        from assay.node.opened import opened

        with opened(bench, self.job, self.what, self.part) as job:
            return self.do(job, bench)

    def do(self, job: OpenJob, bench: Bench) -> R:
        """Do it, with the job opened."""
        raise NotImplementedError


@dataclass(frozen=True)
class Examined:
    """What a node decides by of a job that is found sound. `outer_share`: operations of an outer claim over
    those of a task."""

    outer_share: Fraction


@dataclass(frozen=True)
class Examine(JobOrder[Examined]):
    """Fetch the job's files, and check them."""

    def do(self, job: OpenJob, bench: Bench) -> Examined:
        return Examined(job.work.outer_share)


@dataclass(frozen=True)
class JudgeInput(JobOrder[Finding | None]):
    """Whether a claim starts from the state it must start from."""

    view: ClaimView
    part = True

    def do(self, job: OpenJob, bench: Bench) -> Finding | None:
        from assay.node.audit import audit_input

        return audit_input(job.state_provider, self.view)


@dataclass(frozen=True)
class JudgeSegment(JobOrder[Finding | bytes]):
    """What is wrong with a segment, or the trace root of its last step under `key`. Without a key no trace is
    made, and what this node has replayed before is right."""

    view: ClaimView
    segment: int
    key: bytes | None = None
    part = True

    @property
    def affinity(self) -> str:
        return ""

    def do(self, job: OpenJob, bench: Bench) -> Finding | bytes:
        from assay.node.audit import audit_segment, replayed

        provider = job.state_provider
        if self.key is not None:
            return replayed(provider, self.view, self.segment, self.key, bench.progress)
        if provider.known_right(self.view, self.segment):
            return b""
        return audit_segment(provider, self.view, self.segment, bench.progress) or b""


@dataclass(frozen=True)
class JudgeVote(JobOrder[Finding | None]):
    """What is wrong with a valid vote, or with its claim."""

    view: ClaimView
    vote: Vote

    def do(self, job: OpenJob, bench: Bench) -> Finding | None:
        from assay.node.audit import audit_vote

        return audit_vote(job.state_provider, self.view, self.vote)


@dataclass(frozen=True)
class IsPublished(JobOrder[bool]):
    """Whether the states that a claim publishes can be had, and are what they should be."""

    view: ClaimView

    def do(self, job: OpenJob, bench: Bench) -> bool:
        return job.state_provider.published(self.view)


@dataclass(frozen=True)
class WantedLeaves:
    """What to demand of a claim: leaves of its state at a segment's end."""

    end: int
    places: tuple[StateLeaf, ...]


@dataclass(frozen=True)
class FindGap(JobOrder[WantedLeaves | None]):
    """Leaves of a claim's published states that cannot be had, at random; None if all can."""

    view: ClaimView

    def do(self, job: OpenJob, bench: Bench) -> WantedLeaves | None:
        from assay.node.availability import wanted_leaves

        order = SystemRandom()
        gap = job.state_provider.gap(self.view, order, CHUNKS)
        return None if gap is None else wanted_leaves(job.work.program(self.view.claim.kind), gap, order)


@dataclass(frozen=True)
class Pieces(JobOrder[tuple[Chunk, ...]]):
    """The pieces of a state that a demand names."""

    view: ClaimView
    demand: DemandView
    held = False

    def do(self, job: OpenJob, bench: Bench) -> tuple[Chunk, ...]:
        from assay.node.availability import pieces

        return pieces(job.state_provider, self.view, self.demand)


@dataclass(frozen=True)
class NextMove(JobOrder[Move | None]):
    """Our move in a game; None where there is nothing sound to say."""

    view: GameView
    held = False

    def do(self, job: OpenJob, bench: Bench) -> Move | None:
        return job.disputant.move(self.view)


@dataclass(frozen=True)
class FindWrongSlot(JobOrder[WrongInput | None]):
    """A slot of an input state that a game has opened and that is not what it must be."""

    view: GameView
    held = False

    def do(self, job: OpenJob, bench: Bench) -> WrongInput | None:
        from assay.node.audit import wrong_slot

        return wrong_slot(job.state_provider, self.view)


@dataclass(frozen=True)
class PinStarts(JobOrder[None]):
    """Have on the disk what games about these segments are played from. Raises NoRoom."""

    view: ClaimView
    segments: tuple[int, ...]

    def do(self, job: OpenJob, bench: Bench) -> None:
        for segment in self.segments:
            job.state_provider.pin_start(self.view, segment)
