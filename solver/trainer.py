"""One job on a solver's bench: training its tasks segment by segment, and making its claims.

Contract: what is published has the roots that are claimed. INVARIANT checked-here: every root in a draft was
computed by this process, from the state that it is the root of; what an earlier process has left on disk
(``solver.progress``) only says where those states are. Input states come from ``node.states``. A large state
is hashed and published while further segments are trained (``solver.storing``); it counts on disk, and enters
a claim, only when it is stored and its root is there, so that a crash costs at most the segments whose states
are under way, two of them, and the one in training. What builds on a task's last state may be computed before
that is stored. Does not guarantee that a state is what the program gives, if memory or processor failed an
earlier process: ``solver.convictions`` bounds what that costs. Not thread-safe.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NamedTuple

from assay.node.artifacts import State
from assay.node.checkpoints import Checkpoint, publish_state
from assay.node.divergence import Divergence, divergence_in, not_finite
from assay.node.states import CACHE_BYTES, StateProvider
from assay.node.time_spent import COMPUTING, FETCHING, STORING, TimeSpent
from assay.node.work import Work
from assay.program.state import BACKGROUND_BYTES
from assay.protocol import trees
from assay.protocol.errors import Retry
from assay.protocol.ports import Blocks, MarketView
from assay.protocol.types import (
    ZERO_DIGEST,
    JobId,
    JobView,
    Kind,
)
from assay.solver.ahead import Ahead, End, ExpectedStates
from assay.solver.drafting import Draft, Place, claim_of, drafted
from assay.solver.inputs import TaskInputs
from assay.solver.progress import TaskProgress
from assay.solver.resuming import Resuming, TaskKey
from assay.solver.room import DiskBudget, DiskFull
from assay.solver.storing import OpenTask, Storing
from assay.solver.under_way import Computing, UnderWay
from assay.training.evaluate import training_loss
from assay.training.losses import LOSS_SLOT


class ProgressLost(Retry):
    """The disk does not give back what was trained; it is trained again."""

    code = "progress-lost"


@dataclass(frozen=True)
class Trained:
    """A segment that is trained and published. `loss` at its end; None in a job without one."""

    segment: int
    loss: float | None
    divergence: Divergence | None
    """The step at which the job's numbers ceased to be finite, if that was in this segment."""


class OuterInput(NamedTuple):
    """What an outer claim starts from."""

    state: State
    root: bytes
    """That the claims before say it has."""
    known: ExpectedStates | None
    """What was worked out of the round."""


class TaskTrainer:
    """Computes and publishes for one job."""

    background_bytes = BACKGROUND_BYTES
    """States of at least this size are published while training goes on."""
    states: type[StateProvider] = StateProvider  # says what claims start from

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
        self.state_provider = self.states(market, blocks, job.job_id, work, cache_bytes)
        self._market, self._blocks, self._progress = market, blocks, progress
        self._budget, self._clock = budget, clock
        self._spent = TimeSpent() if spent is None else spent
        self._segment_s = 0.0
        """What a segment took of late, in seconds."""
        self._task: OpenTask | None = None
        self._over: dict[TaskKey, OpenTask] = {}
        """Tasks that are trained, of late, by their places."""
        self._lent: dict[TaskKey, bytes] = {}
        """Roots of last states that are worked on ahead, before they are stored."""
        self._heeded = set[TaskKey]()
        """Those of them that are stored, and that was heeded."""
        self._storing = Storing(blocks, progress, job.job_id, self._spent)
        self._computing = Computing(self._spent, clock)
        self._diverged = False
        self._resuming = Resuming(blocks, progress, job.job_id, work.program(Kind.TASK))
        self.inputs = TaskInputs(market, self.state_provider)
        self._ahead = Ahead(self.state_provider, self._spent)

    def segments_done(self, round_: int, shard: int, rewinds: int) -> int:
        """Segments of a task that are trained. Raises SourceMissing."""
        return self._segments_from(round_, shard, self.inputs.root(round_, shard, rewinds))

    def segments_ahead(self, round_: int, shard: int) -> int:
        """Segments of a task of the coming round that are trained from what it is expected to start from.
        Raises SourceMissing."""
        known = self._ahead.known(round_ - 1)
        return 0 if known is None else self._segments_from(round_, shard, known.input_root(shard))

    def _segments_from(self, round_: int, shard: int, root: bytes) -> int:
        key = round_, shard, root
        there = [task.segments for task in self._in_memory() if task.place == key]
        return there[0] if there else self._resuming.segments(key)

    def _is_over(self, task: OpenTask) -> bool:
        return task.segments == self.work.segments(Kind.TASK)

    def _open(self, key: TaskKey, states: StateProvider) -> OpenTask:
        """The task, where it was left; `states` have its input."""
        if self._task is not None and self._task.place == key:
            return self._task
        done, state = self._resuming.resumed(key)
        if state is None:
            with self._spent.on(FETCHING):
                state = states.input_state(Kind.TASK, *key[:2])
        self._put_by(key[0])
        self._task = task = OpenTask(*key, done, state)
        if not done:
            with self._whole(task):
                self._publish(task)
        return task

    @contextmanager
    def _whole(self, task: OpenTask) -> Iterator[None]:
        """A `with` block that changes a task: where it fails, what is in memory of it is not believed, but
        for what is stored by now."""
        try:
            yield
        except BaseException:
            with suppress(Exception):
                self._storing.take_in(task, len(task.publishing))
            if task.leaves:
                self._resuming.remember(task.place, task.leaves)
            self._over.pop(task.place, None)
            self._take_back(task.place)
            if self._task is task:
                self._computing.let_go()
                self._task = None
            raise

    def _put_by(self, round_: int) -> None:
        """Have no task open, as one of `round_` will be; one that is over is still being stored meanwhile."""
        self._computing.let_go()
        task, self._task = self._task, None
        if task is not None and self._is_over(task):
            self._over[task.place] = task
            self._spare(task)
        elif task is not None:
            self._take_in(task)
        self._over = {key: over for key, over in self._over.items() if abs(over.round - round_) <= 1}
        self._heeded &= self._over.keys()
        for key in self._lent.keys() - self._over.keys():
            self._take_back(key)

    def _spare(self, task: OpenTask) -> None:
        """Keep no state of a task that is over and stored."""
        if not task.publishing:
            self._take_back(task.place)
            task.state, task.roots = [], None

    def _take_back(self, key: TaskKey) -> None:
        if (root := self._lent.pop(key, None)) is not None:
            self._ahead.take_back(root)

    def _publish(self, task: OpenTask) -> None:
        """Begin to publish the task's state, if its end is to be kept; to its end, if it is small.

        Its last state is hashed as a whole, and compared with what lies on the disk: nothing that went wrong
        with a slot that stayed the same is left in the claim, or lacks in the files that it names.
        """
        end = len(task.leaves) + len(task.publishing)
        self._storing.begin(task, kept=self._is_kept(end), anew=end == self.work.segments(Kind.TASK))
        if self.work.files.inner.state_bytes < self.background_bytes:
            self._take_in(task)

    def _is_kept(self, end: int) -> bool:
        """Whether the state at a segment's end is to be kept, and published."""
        if self._budget is None or end in (0, self.work.segments(Kind.TASK)):
            return True
        size = self.work.files.inner.state_bytes
        return end % self._budget.stride(self.work.terms, size, self._segment_s) == 0

    def _take_in(self, task: OpenTask, most: int = 0) -> None:
        """Record what is stored of a task; at most so many of its states are under way then. Raises what
        storing raised: the task is then opened again, from what is on disk."""
        with self._whole(task):
            self._storing.take_in(task, most)
        if task.place in self._over:
            self._spare(task)
        else:
            self._resuming.remember(task.place, task.leaves)

    def _in_memory(self) -> list[OpenTask]:
        """The open task, and those of late that are over."""
        return [*self._over.values(), *([] if self._task is None else [self._task])]

    def store(self, round_: int, shard: int) -> None:
        """Wait until the states of a place's tasks are published, and record them. Raises what publishing
        raised."""
        for task in self._in_memory():
            if (task.round, task.shard) == (round_, shard):
                self._take_in(task)

    def being_stored(self) -> set[tuple[int, int]]:
        """Rounds and shards of tasks that are trained, whose states are being stored while another process
        computes."""
        there = self._in_memory() if self.work.trains_apart else []
        storing = [task for task in there if self._is_over(task) and not task.is_stored]
        return {(task.round, task.shard) for task in storing if self.inputs.is_due(task.place)}

    def newly_stored(self) -> set[TaskKey]:
        """Trained tasks that are stored, or could not be, and were not yet heeded."""
        over = [task for task in self._in_memory() if self._is_over(task) and task.publishing]
        return {task.place for task in over if task.is_stored} - self._heeded

    def heed(self, stored: set[TaskKey]) -> None:
        """Leave these out of `newly_stored` from now on."""
        self._heeded |= stored

    def open_task(self, round_: int, shard: int, rewinds: int) -> None:
        """Make a task the open one. Raises SourceMissing, and what publishing the one before raised."""
        self._open((round_, shard, self.inputs.root(round_, shard, rewinds)), self.state_provider)

    def open_ahead(self, round_: int, shard: int) -> None:
        """The same with one of the coming round, from what it will start from if all tasks of the present one
        are accepted."""
        for task in self._in_memory():
            stored = not task.publishing or task.place in self._lent
            if task.round == round_ - 1 and task.roots is not None and not stored:
                self._lend(task, trees.build(task.roots()))
        expected = self._ahead.expect(round_ - 1)
        self._open((round_, shard, expected.input_root(shard)), expected)

    def _lend(self, task: OpenTask, tree: trees.Tree) -> None:
        """Let a task's last state be worked on ahead, before it is stored, unless it began from a guess."""
        if not self.inputs.is_due(task.place):
            return
        between = [ZERO_DIGEST] * (self.work.segments(Kind.TASK) - 1)
        roots = (task.input_root, *between, tree.root)
        place = Place(self.job_id, Kind.TASK, task.round, task.shard)
        self._ahead.lend(claim_of(place, roots, ZERO_DIGEST), roots, End(task.state, tree))
        self._lent[task.place] = tree.root

    def begin(self) -> bool:
        """Begin the next segment of the open task, whatever has become of it, if none is under way; False
        where none is left. Raises DiskFull."""
        task = self._task
        if task is None or self._computing.under_way is not None:
            return task is not None
        if left := not self._is_over(task):
            self._begin(task)
        return left

    def _begin(self, task: OpenTask) -> None:
        segment = task.segments
        if self._budget is not None and self._is_kept(segment + 1):
            self._budget.require(self.work.files.inner.state_bytes)
        run = self.work.ready(Kind.TASK, task.round, task.shard, segment, task.state)
        self._computing.begin(task, run, self.work.is_apart(Kind.TASK, task.round, task.shard, segment))

    def over(self, wait_s: float) -> bool:
        """Whether the segment under way is over, within so many seconds."""
        return self._computing.over(wait_s)

    @property
    def at(self) -> tuple[int, int] | None:
        """Round and shard of the segment under way; None without one."""
        under_way = self._computing.under_way
        return None if under_way is None else (under_way.task.round, under_way.task.shard)

    def take(self, on: bool = True) -> Trained:
        """The segment that was under way, once it is over; where another process computes, and training goes
        `on`, the next one is begun. Raises what computing it raised, and what publishing the one before
        raised."""
        found, state = self._computing.take()
        task = found.task
        self._segment_s = found.times.took_s
        with self._whole(task):
            task.state = state
            self._publish(task)
        if on and found.apart and not self._is_over(task):
            with suppress(DiskFull):  # said when it is asked for
                self._begin(task)
        self._take_in(task, 1 + found.apart)
        return Trained(found.segment, self.loss(state), self._divergence(found, state))

    @property
    def left_s(self) -> float:
        """Seconds to the end of the open task, at the pace of the last segment; without end before one."""
        left = 0 if self._task is None else self.work.segments(Kind.TASK) - self._task.segments
        return left * self._segment_s or float("inf")

    def _divergence(self, found: UnderWay, end: State) -> Divergence | None:
        """Told once a job: replaying costs a segment."""
        files = self.work.files
        if self._diverged or not not_finite(files.slot_names, files.inner.params, end):
            return None
        self._diverged = True
        task = found.task
        return divergence_in(self.work, task.round, task.shard, found.segment, found.start)

    def loss(self, state: State) -> float | None:
        """Loss that the last step wrote into its metric slot; None in a job that has no such slot."""
        names = self.work.files.slot_names
        return training_loss(names, state) if LOSS_SLOT in names else None

    def task_draft(self, round_: int, shard: int, rewinds: int) -> Draft:
        """The claim of a task whose segments are all done.

        Raises ProgressLost where the disk does not bear that out, and what publishing them raised.
        """
        root = self.inputs.root(round_, shard, rewinds)
        key = round_, shard, root
        task = self._over.get(key) or self._open(key, self.state_provider)
        self._take_in(task)
        begun_right = task.leaves[0].root == task.input_root
        if not begun_right:
            self._distrust()
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

    def close(self) -> None:
        """Begin nothing any more; what is under way is of no use."""
        self._computing.close()
        self._storing.close()

    def _distrust(self) -> None:
        """Believe nothing that is in memory."""
        self._computing.let_go()
        self._task, self._over = None, {}
        self._lent.clear()
        self._resuming.forget()
        self._ahead.forget()
        self.state_provider.forget()

    def outer_input(self, round_: int, number: int) -> OuterInput:
        """What the outer loops of a slice of a round start from. Raises SourceMissing."""
        with self._spent.on(FETCHING):
            state = self.state_provider.input_state(Kind.OUTER, round_, number)
        root = self.state_provider.input_tree(Kind.OUTER, round_, number).root
        return OuterInput(state, root, self._ahead.known(round_))

    def outer_draft(self, round_: int, number: int, given: OuterInput) -> Draft:
        """Run and publish the outer loops of a slice of a round from there, but for what is known. Raises
        ProgressLost where it is not the state that the claims before say."""
        state, known = given.state, given.known
        leaves = [self._stored(state)]
        if leaves[0].root != given.root:
            self._distrust()
            raise ProgressLost(
                f"what the outer step of round {round_} starts from is not in memory as it was; nothing was"
                " committed",
                hint="it is read again; check this machine's memory",
            )
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
        return drafted(self._blocks, Place(self.job_id, kind, round_, shard), leaves)
