"""Trains one job's tasks in a worker, segment by segment, and publishes their states.

Contract: published states have the claimed roots. INVARIANT checked-here: every root in a draft was computed
by this process, from the state that it is the root of. Records of an earlier process (``solver.progress``)
only say where those states are. Input states come from ``node.states``.

A large state is hashed and published while further segments are trained (``solver.state_publisher``). It
enters a claim only once it is stored and its root is known, so a crash loses at most the two segments being
stored and the one in training. Work that builds on a task's last state may start before that is stored.

Not guaranteed: that a state is what the program gives, if memory or processor failed an earlier process;
``solver.convictions`` bounds what that costs. Not thread-safe.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from assay.compute.orders import Cancelled
from assay.node.artifacts import State
from assay.node.checkpoints import Checkpoint
from assay.node.divergence import Divergence, divergence_in, not_finite
from assay.node.published_states import publish_state
from assay.node.states import StateProvider
from assay.node.work import Work
from assay.program.state import BACKGROUND_BYTES
from assay.protocol import trees
from assay.protocol.ports import Blocks, MarketView
from assay.protocol.types import ZERO_DIGEST, JobId, Kind
from assay.solver.disk_budget import DiskBudget
from assay.solver.drafting import Draft, Place, ProgressLost, claim_of, drafted
from assay.solver.input_roots import TaskInputs
from assay.solver.resuming import Resuming, TaskKey
from assay.solver.speculation import End, Speculation
from assay.solver.state_publisher import OpenTask, Storing
from assay.training.evaluate import training_loss
from assay.training.losses import LOSS_SLOT

Told = Callable[[int, int], None]


class TaskTrainer:
    """Trains and publishes for one job. `books`: receives its reports (``solver.worker_reports``)."""

    background_bytes = BACKGROUND_BYTES
    """Minimum size of states that are published while training goes on."""

    def __init__(
        self,
        market: MarketView,
        blocks: Blocks,
        states: StateProvider,
        books: Any,
        budget: DiskBudget | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.job_id: JobId = states.job_id
        self.work: Work = states.work
        self.state_provider = states
        self._blocks, self._books, self._budget, self._clock = blocks, books, budget, clock
        self._segment_s = 0.0
        """Recent duration of a segment in seconds."""
        self._task: OpenTask | None = None
        self._over: dict[TaskKey, OpenTask] = {}
        """Recently completed tasks."""
        self._lent: dict[TaskKey, bytes] = {}
        """Roots of last states offered to speculation before they are stored."""
        self._storing = Storing(blocks, books, self.job_id, self.draft_of, self.work.segments(Kind.TASK))
        self._diverged = False
        self._resuming = Resuming(blocks, books, self.job_id, self.work.program(Kind.TASK))
        self.inputs = TaskInputs(market, states)
        self._ahead = Speculation(states)

    def _place_of(self, task: OpenTask) -> Place:
        return Place(self.job_id, Kind.TASK, task.round, task.shard)

    def draft_of(self, task: OpenTask) -> Draft:
        """Builds the claim of a task whose states are all stored (a drill overrides this)."""
        return drafted(self._blocks, self._place_of(task), task.leaves)

    # -- training

    def train(self, round_: int, shard: int, *, ahead: bool, told: Told) -> None:
        """Trains a task's segments until it is complete or the node wants something else.

        `ahead`: a task of the coming round, as if all tasks of the present one are accepted. Raises
        SourceMissing, DiskFull, errors of storing, and Cancelled, once trained segments are stored.
        """
        task = self._open_ahead(round_, shard) if ahead else self._open_task(round_, shard)
        place, last = (self.job_id, round_, shard), self.work.segments(Kind.TASK)
        sources = None if ahead else self.inputs.sources(round_, shard)
        self._books.opened(*place, task.input_root, sources, task.segments)
        going = True
        while going and task.segments < last:
            segment = task.segments
            try:
                start, end = self._segment(task, told)
            except Cancelled:
                self._take_in(task)  # what is trained is not lost with what is not
                raise
            step = self.work.first_step(Kind.TASK, round_, segment, shard)
            step += self.work.segment_steps(Kind.TASK, segment, shard)
            found = self._divergence(task, segment, start, end)
            told_of = None if found is None else (found.step, found.what, str(found))
            loss = self.loss(end)
            going = self._books.trained(*place, task.input_root, task.segments, step, loss, told_of)
        if task.segments == last and not ahead:
            self._storing.tell(task)

    def _segment(self, task: OpenTask, told: Told) -> tuple[State, State]:
        """Trains the task's next segment; returns its start and end state."""
        segment, start = task.segments, task.state
        if self._budget is not None and self._is_kept(segment + 1):
            self._budget.require(self.work.files.inner.state_bytes)
        begun_s = self._clock()
        end = self.work.run(Kind.TASK, task.round, task.shard, segment, start, told)
        self._segment_s = self._clock() - begun_s
        with self._whole(task):
            task.state = end
            self._publish(task)
        self._take_in(task, 1)
        return start, end

    def loss(self, state: State) -> float | None:
        """Loss in the metric slot after the last step; None if the job has no such slot."""
        names = self.work.files.slot_names
        return training_loss(names, state) if LOSS_SLOT in names else None

    def _divergence(self, task: OpenTask, segment: int, start: State, end: State) -> Divergence | None:
        """Finds the divergence in a segment, once a job: replaying costs a segment."""
        files = self.work.files
        if self._diverged or not not_finite(files.slot_names, files.inner.params, end):
            return None
        self._diverged = True
        return divergence_in(self.work, task.round, task.shard, segment, start)

    # -- the task that is open

    def _open_task(self, round_: int, shard: int) -> OpenTask:
        return self._open((round_, shard, self.inputs.root(round_, shard)), self.state_provider)

    def _open_ahead(self, round_: int, shard: int) -> OpenTask:
        for task in self._in_memory():
            if task.round != round_ - 1 or task.place in self._lent:
                continue
            if task.draft is not None:
                self._ahead.made(task.draft.claim, task.draft.roots)
            elif task.roots is not None:
                self._lend(task, trees.build(task.roots()))
        expected = self._ahead.expect(round_ - 1)
        return self._open((round_, shard, expected.input_root(shard)), expected)

    def _open(self, key: TaskKey, states: StateProvider) -> OpenTask:
        """Opens a task and resumes it; `states` provides its input."""
        if self._task is not None and self._task.place == key:
            task = self._task
            self._take_in(task, 1)
            return task
        if (over := self._over.get(key)) is not None:
            self._take_in(over, len(over.publishing))
            return over
        done, state = self._resuming.resumed(key)
        if state is None:
            state = states.input_state(Kind.TASK, *key[:2])
        self._close_open_task(key[0])
        self._task = task = OpenTask(*key, done, state)
        if not done:
            with self._whole(task):
                self._publish(task)
        elif task.segments == self.work.segments(Kind.TASK):
            self._storing.finish(task)
        return task

    @contextmanager
    def _whole(self, task: OpenTask) -> Iterator[None]:
        """Guards a change to a task: on an error its state in memory is dropped, except what is stored."""
        try:
            yield
        except BaseException as error:
            if task.leaves and not isinstance(error, ProgressLost):
                self._resuming.remember(task.place, task.leaves)
            if isinstance(error, ProgressLost):
                self._distrust()
            self._over.pop(task.place, None)
            self._take_back(task.place)
            if self._task is task:
                self._task = None
            raise

    def _close_open_task(self, round_: int) -> None:
        """Closes the open task, before one of `round_` is opened; a complete task is still stored in the
        background."""
        task, self._task = self._task, None
        if task is not None and task.segments == self.work.segments(Kind.TASK):
            self._over[task.place] = task
            self._spare(task)
        elif task is not None:
            self._take_in(task)
        self._over = {key: over for key, over in self._over.items() if abs(over.round - round_) <= 1}
        for key in self._lent.keys() - self._over.keys():
            self._take_back(key)

    def _spare(self, task: OpenTask) -> None:
        """Frees the state of a complete and stored task."""
        if not task.publishing:
            self._take_back(task.place)
            task.state, task.roots = [], None

    def _in_memory(self) -> list[OpenTask]:
        """The open task and recently completed ones."""
        return [*self._over.values(), *([] if self._task is None else [self._task])]

    # -- publishing

    def _publish(self, task: OpenTask) -> None:
        """Starts publishing the task's state, or hashing it if its end is not kept; waits for it if it is
        small.

        The last state is hashed as a whole and compared with the files on disk. So an error in a slot that
        stayed the same does not enter the claim, and no file that it names is missing.
        """
        end = task.segments + 1 if task.leaves or task.publishing else 0
        self._storing.begin(task, kept=self._is_kept(end), anew=end == self.work.segments(Kind.TASK))
        if self.work.files.inner.state_bytes < self.background_bytes:
            self._take_in(task)

    def _is_kept(self, end: int) -> bool:
        """True if the state at a segment's end is kept and published."""
        if self._budget is None or end in (0, self.work.segments(Kind.TASK)):
            return True
        size = self.work.files.inner.state_bytes
        return end % self._budget.stride(self.work.terms, size, self._segment_s) == 0

    def _take_in(self, task: OpenTask, most: int = 0) -> None:
        """Waits until at most `most` of a task's states are being stored.

        Raises errors of storing; the task is then opened again from disk.
        """
        with self._whole(task):
            while task.publishing and (len(task.publishing) > most or task.publishing[0].done()):
                task.publishing.popleft().result()
        if task.place in self._over:
            self._spare(task)
        else:
            self._resuming.remember(task.place, task.leaves)

    @property
    def is_storing(self) -> bool:
        """True if a task's states are being stored."""
        return any(not begun.done() for task in self._in_memory() for begun in task.publishing)

    def close(self) -> None:
        """Stops accepting work; results in progress are discarded."""
        self._storing.close()

    def _distrust(self) -> None:
        """Drops everything in memory."""
        self._task, self._over = None, {}
        self._lent.clear()
        self._resuming.forget()
        self._ahead.forget()
        self.state_provider.forget()

    # -- ahead

    def _lend(self, task: OpenTask, tree: trees.Tree) -> None:
        """Offers a task's last state to speculation before it is stored, unless the task itself is
        speculative."""
        if not self.inputs.is_due(task.place):
            return
        between = [ZERO_DIGEST] * (self.work.segments(Kind.TASK) - 1)
        roots = (task.input_root, *between, tree.root)
        self._ahead.lend(claim_of(self._place_of(task), roots, ZERO_DIGEST), roots, End(task.state, tree))
        self._lent[task.place] = tree.root

    def _take_back(self, key: TaskKey) -> None:
        if (root := self._lent.pop(key, None)) is not None:
            self._ahead.take_back(root)

    # -- outer claims

    def outer_draft(self, round_: int, number: int, told: Told) -> Draft:
        """Runs and publishes the outer loops of a slice, reusing speculative results.

        Raises SourceMissing, and ProgressLost if the input in memory does not match the claims before.
        """
        state = self.state_provider.input_state(Kind.OUTER, round_, number)
        root = self.state_provider.input_tree(Kind.OUTER, round_, number).root
        known = self._ahead.known(round_)
        leaves: list[Checkpoint] = [publish_state(self._blocks, state)]
        if leaves[0].root != root:
            self._distrust()
            raise ProgressLost(
                f"the input of round {round_}'s outer step changed in memory; nothing was committed",
                hint="it is read again; check this machine's memory",
            )
        ends = None if known is None else known.outer_ends(number, leaves[0].root)
        for segment in range(self.work.segments(Kind.OUTER)):
            run = self.work.run
            state = run(Kind.OUTER, round_, number, segment, state, told) if ends is None else ends[segment]
            leaves.append(publish_state(self._blocks, state))
        return drafted(self._blocks, Place(self.job_id, Kind.OUTER, round_, number), leaves)
