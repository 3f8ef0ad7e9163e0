"""One job on a solver's bench: training its tasks segment by segment, and making its claims.

Contract: what is published has the roots that are claimed. INVARIANT checked-here: every root in a draft was
computed by this process, from the state that it is the root of; what an earlier process has left on disk
(``solver.progress``) only says where those states are. Input states come from ``node.states``. A large state
is hashed and published while the next segment is trained; it counts on disk, and enters a claim, only when it
is stored and its root is there, so that a crash costs at most the segment whose state is under way, and the
one in training. Does not guarantee that a state is what the program gives, if memory or processor failed an
earlier process: ``solver.convictions`` bounds what that costs. Not thread-safe.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache

from assay.node.artifacts import State
from assay.node.checkpoints import Checkpoint, publish_checkpoints, publish_state
from assay.node.divergence import Divergence, divergence_in, not_finite
from assay.node.rounds import PASSED, Claims, standing
from assay.node.slots import KnownSlots, SlotReader, hash_state, state_root_of
from assay.node.states import CACHE_BYTES, StateProvider
from assay.node.time_spent import COMPUTING, FETCHING, STORING, TimeSpent
from assay.node.work import Work
from assay.program.state import BACKGROUND_BYTES, state_root
from assay.protocol.errors import Retry
from assay.protocol.loops import Byte, FromClaim, Place, source_of
from assay.protocol.ports import Blocks, MarketView
from assay.protocol.types import (
    ZERO_ADDRESS,
    ZERO_DIGEST,
    Claim,
    ClaimId,
    ClaimView,
    JobId,
    JobView,
    Kind,
    Seconds,
    Wei,
)
from assay.solver.ahead import Ahead, ExpectedStates
from assay.solver.progress import TaskProgress
from assay.solver.room import DiskBudget
from assay.training.evaluate import training_loss
from assay.training.losses import LOSS_SLOT

log = logging.getLogger(__name__)


class ProgressLost(Retry):
    """The disk does not give back what was trained; it is trained again."""

    code = "progress-lost"


_Sources = tuple[tuple[ClaimId, ...], tuple[bool, ...]]
"""Claims that an input is from, and what it says of which tasks are there."""


@dataclass(frozen=True)
class Trained:
    """A segment that is trained and published. `loss` at its end; None in a job without one."""

    segment: int
    loss: float | None
    divergence: Divergence | None
    """The step at which the job's numbers ceased to be finite, if that was in this segment."""


@dataclass(frozen=True)
class Draft:
    """A claim ready to be committed, with the states at its segments' ends."""

    claim: Claim
    roots: tuple[bytes, ...]


@dataclass
class _Task:
    """The task that is being trained."""

    round: int
    shard: int
    input_root: bytes
    leaves: list[Checkpoint]
    """Published, on disk, and computed or checked by this process."""
    state: State
    """Where training is."""
    publishing: deque[Future[Checkpoint]] = field(default_factory=deque)
    known: KnownSlots = field(default_factory=KnownSlots)
    """Of the state that was published last; for the publisher's thread."""

    @property
    def segments(self) -> int:
        """Segments that are trained."""
        return len(self.leaves) + len(self.publishing) - 1


class TaskTrainer:
    """Computes and publishes for one job."""

    background_bytes = BACKGROUND_BYTES
    """States of at least this size are published while training goes on."""

    def __init__(
        self,
        market: MarketView,
        blocks: Blocks,
        job: JobView,
        work: Work,
        progress: TaskProgress,
        budget: DiskBudget | None = None,
        clock: Callable[[], float] = time.monotonic,
        cache_bytes: int = CACHE_BYTES,
        spent: TimeSpent | None = None,
    ) -> None:
        self.job_id: JobId = job.job_id
        self.work = work
        self.state_provider = StateProvider(market, blocks, job.job_id, work, cache_bytes)
        self._market, self._blocks, self._progress = market, blocks, progress
        self._budget, self._clock = budget, clock
        self._spent = TimeSpent() if spent is None else spent
        self._segment_s = 0.0
        """What a segment took of late, in seconds."""
        self._task: _Task | None = None
        self._publisher = ThreadPoolExecutor(1, thread_name_prefix="publishing")
        self._diverged = False
        self._checked: dict[tuple[int, int, bytes], list[Checkpoint]] = {}
        """Leaves of the round's tasks that this process has computed or checked, by round, shard, input."""
        self._inputs: dict[tuple[int, int, int, _Sources], bytes] = {}
        self._ahead = Ahead(self.state_provider, self._spent)

    def _input_root(self, round_: int, shard: int, rewinds: int) -> bytes:
        """Root of what a task must start from, remembered for as long as the claims are the same that it
        follows from: a reorganisation may bring others, without a rewind."""
        key = (round_, shard, rewinds, self._sources(round_, shard))
        if key not in self._inputs:
            self._inputs[key] = state_root(self.state_provider.input_state(Kind.TASK, round_, shard))
        return self._inputs[key]

    def _sources(self, round_: int, shard: int) -> _Sources:
        """What a task's input follows from, by its links."""
        claims = Claims(self._market.claims(self.job_id))

        def found(place: Place) -> ClaimView | None:
            view = standing(claims, *place)
            passed = view is not None and (place[0] == Kind.OUTER or view.status.phase in PASSED)
            return view if passed else None

        def stands(past: int, other: int) -> bool:
            return found((Kind.TASK, past, other)) is not None

        terms, stands = self.work.terms, cache(stands)
        every = [source_of(terms, Kind.TASK, round_, shard, slot, stands) for slot in range(terms.slots)]
        places = dict.fromkeys(source.place for source in every if isinstance(source, FromClaim))
        views = [found(place) for place in places]
        told = tuple(source.value for source in every if isinstance(source, Byte))
        return tuple(view.claim_id for view in views if view is not None), told

    def segments_done(self, round_: int, shard: int, rewinds: int) -> int:
        """Segments of a task that are trained. Raises SourceMissing."""
        return self._segments_from(round_, shard, self._input_root(round_, shard, rewinds))

    def segments_ahead(self, round_: int, shard: int) -> int:
        """Segments of a task of the coming round that are trained from what it is expected to start from.
        Raises SourceMissing."""
        known = self._ahead.known(round_ - 1)
        return 0 if known is None else self._segments_from(round_, shard, known.input_root(shard))

    def _segments_from(self, round_: int, shard: int, root: bytes) -> int:
        if self._is_open(round_, shard, root):
            assert self._task is not None
            return self._task.segments
        known = self._checked.get((round_, shard, root))
        if known is None:
            known = self._progress.load(self.job_id, round_, shard, root)
        return max(len(known) - 1, 0)

    def _is_open(self, round_: int, shard: int, root: bytes) -> bool:
        task = self._task
        return task is not None and (task.round, task.shard, task.input_root) == (round_, shard, root)

    def _state(self, checkpoint: Checkpoint) -> State | None:
        """A state of our own that has the root of its checkpoint, or None if the block store has lost it.

        It is read from the disk, whatever is in memory: each slot has the root that the index says, and these
        lead to the state's.
        """
        program = self.work.program(Kind.TASK)
        reader = SlotReader(self._blocks, 0)
        slots = reader.index(checkpoint.cid, program.slots)
        if slots is None or state_root_of(slots) != checkpoint.root:
            return None
        found = [tensor for tensor in reader.tensors(slots, program.state) if tensor is not None]
        return found if len(found) == program.slots else None

    def _open(self, round_: int, shard: int, root: bytes, states: StateProvider) -> _Task:
        """The task, where it was left; `states` have its input."""
        if self._task is not None and self._is_open(round_, shard, root):
            return self._task
        self.land()
        done, state = self._resumed(round_, shard, root)
        if state is None:
            with self._spent.on(FETCHING):
                state = states.input_state(Kind.TASK, round_, shard)
        self._task = task = _Task(round_, shard, root, done, state)
        if not done:
            self._publish(task)
        return task

    def _resumed(self, round_: int, shard: int, root: bytes) -> tuple[list[Checkpoint], State | None]:
        """Where a task was left: its leaves as far as they can be believed, and the state at the last one.

        What this process knows needs its last state only. Of what it finds on disk it reads every state, and
        believes those that have their root, up to the first that has not, or cannot be had.
        """
        known = self._checked.get((round_, shard, root), [])
        while known and not known[-1].cid:  # an end that is not kept
            known = known[:-1]
        if known and (state := self._state(known[-1])) is not None:
            return known, state
        found = self._progress.load(self.job_id, round_, shard, root)
        done: list[Checkpoint] = []
        last: State | None = None
        for leaf in found:
            state = self._state(leaf)
            if state is None:
                log.warning(
                    "round %d, shard %d: segment end %d of %d on disk is not what its root says, or is"
                    " not there; it is trained again from there",
                    *(round_, shard, len(done), len(found) - 1),
                )
                break
            done, last = [*done, leaf], state
        self._remember(round_, shard, root, done)
        return done, last

    def _remember(self, round_: int, shard: int, root: bytes, leaves: list[Checkpoint]) -> None:
        """Keep what was computed or checked; of other rounds nothing, so that this stays small."""
        kept = {place: known for place, known in self._checked.items() if place[0] == round_}
        self._checked = {**kept, (round_, shard, root): list(leaves)}

    def _publish(self, task: _Task) -> None:
        """Begin to publish the open task's state, if its end is to be kept; to its end, if it is small.

        Its last state is hashed as a whole, and compared with what lies on the disk: nothing that went wrong
        with a slot that stayed the same is left in the claim, or lacks in the files that it names.
        """
        end = len(task.leaves) + len(task.publishing)
        known = KnownSlots() if end == self.work.segments(Kind.TASK) else task.known
        publish = self._published if self._is_kept(end) else self._hashed
        task.publishing.append(self._publisher.submit(publish, task.state, known))
        if self.work.files.inner.state_bytes < self.background_bytes:
            self.land()

    def _published(self, state: State, known: KnownSlots) -> Checkpoint:
        return publish_state(self._blocks, state, known)

    def _hashed(self, state: State, known: KnownSlots) -> Checkpoint:
        return Checkpoint("", hash_state(state, known))

    def _is_kept(self, end: int) -> bool:
        """Whether the state at a segment's end is to be kept, and published."""
        if self._budget is None or end in (0, self.work.segments(Kind.TASK)):
            return True
        size = self.work.files.inner.state_bytes
        return end % self._budget.stride(self.work.terms, size, self._segment_s) == 0

    def land(self) -> None:
        """Wait until the open task's states are published, and record them.

        Raises what publishing raised: the task is then opened again, from what is on disk.
        """
        task, self._task = self._task, None
        if task is None:
            return
        while task.publishing:
            with self._spent.on(STORING):
                task.leaves.append(task.publishing.popleft().result())
            self._remember(task.round, task.shard, task.input_root, task.leaves)
            self._progress.save(self.job_id, task.round, task.shard, task.leaves)
        self._task = task

    def open_task(self, round_: int, shard: int, rewinds: int) -> None:
        """Make a task the open one. Raises SourceMissing, and what publishing the one before raised."""
        self._open(round_, shard, self._input_root(round_, shard, rewinds), self.state_provider)

    def open_ahead(self, round_: int, shard: int) -> None:
        """The same with one of the coming round, from what it will start from if all tasks of the present one
        are accepted."""
        expected = self._ahead.expect(round_ - 1)
        self._open(round_, shard, expected.input_root(shard), expected)

    def train_on(self) -> Trained | None:
        """Train the next segment of the open task, whatever has become of it; None where none is left.
        Raises DiskFull, and what publishing the one before raised."""
        task = self._task
        return None if task is None or task.segments == self.work.segments(Kind.TASK) else self._train(task)

    @property
    def left_s(self) -> float:
        """Seconds to the end of the open task, at the pace of the last segment; without end before one."""
        left = 0 if self._task is None else self.work.segments(Kind.TASK) - self._task.segments
        return left * self._segment_s or float("inf")

    def _train(self, task: _Task) -> Trained:
        round_, shard, segment, start = task.round, task.shard, task.segments, task.state
        if self._budget is not None and self._is_kept(segment + 1):
            self._budget.require(self.work.files.inner.state_bytes)
        begun = self._clock()
        with self._spent.on(COMPUTING):
            state = self.work.run(Kind.TASK, round_, shard, segment, start)
        self._segment_s = self._clock() - begun
        self.land()
        task.state = state
        self._publish(task)
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

    def loss(self, state: State) -> float | None:
        """Loss that the last step wrote into its metric slot; None in a job that has no such slot."""
        names = self.work.files.slot_names
        return training_loss(names, state) if LOSS_SLOT in names else None

    def task_draft(self, round_: int, shard: int, rewinds: int) -> Draft:
        """The claim of a task whose segments are all done.

        Raises ProgressLost where the disk does not bear that out, and what publishing them raised.
        """
        root = self._input_root(round_, shard, rewinds)
        task = self._open(round_, shard, root, self.state_provider)
        self.land()
        begun_right = task.leaves[0].root == task.input_root
        if not begun_right:
            self._task, self._checked = None, {}
        done, wanted = len(task.leaves) - 1 if begun_right else 0, self.work.segments(Kind.TASK)
        if done != wanted:
            raise ProgressLost(
                f"{done} of {wanted} segments of round {round_}, shard {shard} can be believed; nothing was"
                " committed",
                hint="the rest is trained again; check this machine's memory and disk",
            )
        draft = self._draft(Kind.TASK, round_, shard, task.leaves)
        self._ahead.made(draft.claim, draft.roots)
        return draft

    def outer_input(self, round_: int, number: int) -> tuple[State, ExpectedStates | None]:
        """What the outer loops of a slice of a round start from, and what was worked out of the round. Raises
        SourceMissing."""
        with self._spent.on(FETCHING):
            state = self.state_provider.input_state(Kind.OUTER, round_, number)
        return state, self._ahead.known(round_)

    def outer_draft(self, round_: int, number: int, state: State, known: ExpectedStates | None) -> Draft:
        """Run and publish the outer loops of a slice of a round from there, but for what is known."""
        leaves = [self._stored(state)]
        ends = None if known is None else known.outer_ends(number, leaves[0].root)
        for segment in range(self.work.segments(Kind.OUTER)):
            with self._spent.on(COMPUTING):
                run = self.work.run
                state = run(Kind.OUTER, round_, number, segment, state) if ends is None else ends[segment]
            leaves.append(self._stored(state))
        return self._draft(Kind.OUTER, round_, number, leaves)

    def _stored(self, state: State) -> Checkpoint:
        with self._spent.on(STORING):
            return publish_state(self._blocks, state)

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
            rewinds=0,
        )
        return Draft(claim, roots)
