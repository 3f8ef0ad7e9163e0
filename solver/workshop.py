"""One job on a solver's bench: training its tasks segment by segment, and making its claims.

Contract: what is published has the roots that are claimed. Input states come from ``training.lineage``;
segments done are kept by ``solver.progress``. Not thread-safe.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan

from program.state import InvalidState, state_root
from protocol.ports import Blocks, MarketView
from protocol.types import ZERO_ADDRESS, ZERO_DIGEST, Claim, JobId, JobView, Kind, Seconds, Wei
from solver.progress import TaskProgress
from training.artifacts import Checkpoint, State, publish_checkpoints, publish_state
from training.divergence import Divergence, divergence_in, not_finite
from training.evaluate import training_loss
from training.job import LOSS_SLOT
from training.lineage import UNFETCHABLE, Lineage
from training.work import Work


@dataclass(frozen=True)
class Trained:
    """A segment that is trained and published. `loss` at its end; NaN in a job without one."""

    segment: int
    loss: float
    divergence: Divergence | None
    """The step at which the job's numbers ceased to be finite, if that was in this segment."""


@dataclass(frozen=True)
class Draft:
    """A claim ready to be committed, with the states at its segments' ends."""

    claim: Claim
    roots: tuple[bytes, ...]


class Workshop:
    """Computes and publishes for one job."""

    def __init__(
        self, market: MarketView, blocks: Blocks, job: JobView, work: Work, progress: TaskProgress
    ) -> None:
        self.job_id: JobId = job.job_id
        self.work = work
        self.lineage = Lineage(market, blocks, job.job_id, work)
        self._blocks = blocks
        self._progress = progress
        self._latest: tuple[bytes, State] | None = None
        self._diverged = False
        self._inputs: dict[tuple[int, int, int], bytes] = {}

    def _input_root(self, round_: int, shard: int, epoch: int) -> bytes:
        key = (round_, shard, epoch)
        if key not in self._inputs:
            self._inputs[key] = state_root(self.lineage.input_state(Kind.TASK, round_, shard))
        return self._inputs[key]

    def segments_done(self, round_: int, shard: int, epoch: int) -> int:
        """Segments of a task that are trained and published. Raises SourceMissing."""
        root = self._input_root(round_, shard, epoch)
        return max(len(self._progress.load(self.job_id, round_, shard, root)) - 1, 0)

    def _state(self, checkpoint: Checkpoint) -> State | None:
        """A state of our own, or None if the block store has lost it."""
        if self._latest is not None and self._latest[0] == checkpoint.root:
            return self._latest[1]
        limit = self.work.files.inner.state_bytes
        try:
            return self.work.load(Kind.TASK, self._blocks.read_file(checkpoint.cid, limit))
        except (*UNFETCHABLE, InvalidState):
            return None

    def train_segment(self, round_: int, shard: int, epoch: int) -> Trained:
        """Train and publish the next segment. Raises SourceMissing."""
        root = self._input_root(round_, shard, epoch)
        done = self._progress.load(self.job_id, round_, shard, root)
        state = self._state(done[-1]) if done else None
        if state is None:
            state = self.lineage.input_state(Kind.TASK, round_, shard)
            done = [publish_state(self._blocks, state)]
        segment = len(done) - 1
        start = state
        state, end = self.work.segment(Kind.TASK, round_, shard, segment, start)
        done.append(publish_state(self._blocks, state))
        self._progress.save(self.job_id, round_, shard, done)
        self._latest = (end, state)
        return Trained(segment, self.loss(state), self._divergence(round_, shard, segment, start, state))

    def _divergence(
        self, round_: int, shard: int, segment: int, start: State, end: State
    ) -> Divergence | None:
        """Told once a job: replaying costs a segment."""
        files = self.work.files
        if self._diverged or not not_finite(files.slot_names, files.inner.params, end):
            return None
        self._diverged = True
        return divergence_in(self.work, round_, shard, segment, start)

    def loss(self, state: State) -> float:
        """Loss that the last step wrote into its metric slot (NaN before the first step)."""
        names = self.work.files.slot_names
        return training_loss(names, state) if LOSS_SLOT in names else nan

    def task_draft(self, round_: int, shard: int, epoch: int) -> Draft:
        """The claim of a task whose segments are all done."""
        root = self._input_root(round_, shard, epoch)
        done = self._progress.load(self.job_id, round_, shard, root)
        return self._draft(Kind.TASK, round_, shard, done)

    def outer_draft(self, round_: int) -> Draft:
        """Run and publish the outer step of a round. Raises SourceMissing."""
        state = self.lineage.input_state(Kind.OUTER, round_, 0)
        first = publish_state(self._blocks, state)
        after, _ = self.work.segment(Kind.OUTER, round_, 0, 0, state)
        return self._draft(Kind.OUTER, round_, 0, [first, publish_state(self._blocks, after)])

    def _draft(self, kind: Kind, round_: int, shard: int, leaves: list[Checkpoint]) -> Draft:
        roots = tuple(leaf.root for leaf in leaves)
        claim = Claim(
            job_id=self.job_id,
            kind=kind,
            round=round_,
            shard=shard,
            attempt=0,
            claimant=ZERO_ADDRESS,
            input_root=roots[0],
            output_root=roots[-1],
            segments_root=ZERO_DIGEST,
            manifest=publish_checkpoints(self._blocks, leaves),
            price=Wei(0),
            committed_at=Seconds(0),
            epoch=0,
        )
        return Draft(claim, roots)
