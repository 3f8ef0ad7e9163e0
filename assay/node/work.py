"""Runs any part of a job's programs, from any state.

Contract: a claim runs steps of one of the job's two programs (docs/protocol.md, 2.6 and 4.3). This module
knows which steps, with which counter and shard. All replays of the job share its executors. Not thread-safe.
Honest roles never pass a fault (``program.fault``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

import torch
from torch import Tensor

from assay.dispute.replay import MOST_SNAPSHOTS, Replay
from assay.node.artifacts import LoadedJob, State
from assay.node.engine import REFERENCE_ENGINE, Engine
from assay.node.orders import Examined
from assay.program.execute import Executor
from assay.program.fault import Fault
from assay.program.isa import Program
from assay.program.state import state_root
from assay.program.validate import step_operations
from assay.protocol.loops import Byte, FromClaim, Located, Place, Stands, locate, source_of
from assay.protocol.params import task_operations
from assay.protocol.types import Kind, Terms

OPENED = 5
"""Steps that a move of a game may take beyond a segment's: the traced one, and one for each opened input."""
Faults = Mapping[tuple[int, ...], Fault]
"""Planted faults by (round, shard), in a task's main loop, or by (round, shard, loop)."""


def outer_share(terms: Terms, tasks: Sequence[Program], outers: Sequence[Program]) -> Fraction:
    """Operations of an outer claim over those of a task; of a slow shard's task, if there are slow shards.

    Its holder owes outer claims too, and is paid for a task with fewer steps.
    """
    task = task_operations(terms, terms.shards - 1, step_operations(tasks))
    loops = zip(terms.outer_loops, step_operations(outers), strict=True)
    outer = sum(loop.of(0).steps * each for loop, each in loops)
    return Fraction(outer, max(task, 1))


def examined(terms: Terms, tasks: Sequence[Program], outers: Sequence[Program]) -> Examined:
    """Facts on which a node decides about the job."""
    return Examined(outer_share(terms, tasks, outers), step_operations(tasks))


def put_together(
    terms: Terms, place: Place, stands: Stands, output: Callable[[Place, int], Tensor], genesis: State
) -> State:
    """Assembles a claim's input by the links (rule 4.4), if all outputs are available.

    `output` gives a slot of the claim at a place; `genesis` is the kind's genesis state.
    """
    found = []
    for slot in range(terms.slots_of(place[0])):
        source = source_of(terms, *place, slot, stands)
        if isinstance(source, Byte):
            found.append(torch.tensor(source.value))
        elif isinstance(source, FromClaim):
            found.append(output(source.place, source.slot))
        else:
            found.append(genesis[source.slot])
    return found


class Work:
    """Runs the programs of one job."""

    def __init__(
        self,
        terms: Terms,
        files: LoadedJob,
        *,
        engine: Engine = REFERENCE_ENGINE,
        faults: Faults | None = None,
    ) -> None:
        self.terms = terms
        self.files = files
        self.faults = dict(faults or {})
        self.outer_faults: dict[int, Fault] = {}
        """Planted faults of outer steps, by round; in the first loop."""
        self._engine = engine
        self.place = engine.place((*files.tasks, *files.outers))
        """Where states belong; None: in memory."""
        self._executors: dict[tuple[Kind, int], Executor] = {}

    def _executor(self, kind: Kind, loop: int) -> Executor:
        """Executor of a loop; only a task's main loop has enough steps to be compiled."""
        if (kind, loop) not in self._executors:
            program, steps = self.programs(kind)[loop], self.terms.rounds * self.terms.steps_per_round
            trains = kind == Kind.TASK and loop == self.files.main
            made = self._engine.executor(program, steps) if trains else self._engine.eager(program)
            self._executors[kind, loop] = made
        return self._executors[kind, loop]

    def programs(self, kind: Kind) -> tuple[Program, ...]:
        """Programs of the loops of this kind of claim; all have the same slots."""
        return self.files.tasks if kind == Kind.TASK else self.files.outers

    def program(self, kind: Kind) -> Program:
        """The first loop's program, which describes the state."""
        return self.programs(kind)[0]

    def segments(self, kind: Kind) -> int:
        """Number of segments of a claim; its segments tree has one leaf more."""
        return self.terms.segments_of(kind)

    def located(self, kind: Kind, segment: int, shard: int) -> Located:
        """The loop that contains a segment of a shard's claim."""
        return locate(self.terms.loops_of(kind), segment, shard)

    def segment_steps(self, kind: Kind, segment: int, shard: int) -> int:
        """Number of steps of a segment."""
        return self.located(kind, segment, shard).loop.segment_steps

    def move_s(self, kind: Kind, segment: int, shard: int) -> float:
        """Seconds that a move of a game about a segment may take whose steps are streamed; 0 for others, and
        infinite before the first step."""
        located = self.located(kind, segment, shard)
        step_s = self._executor(kind, located.number).streamed_s
        return (located.loop.segment_steps + OPENED) * step_s

    def first_step(self, kind: Kind, round_: int, segment: int, shard: int) -> int:
        """Step counter of a segment's first step."""
        return self.located(kind, segment, shard).first_step(round_)

    def _fault(self, kind: Kind, round_: int, shard: int, loop: int) -> Fault | None:
        if kind == Kind.OUTER:
            return None if loop else self.outer_faults.get(round_)
        found = self.faults.get((round_, shard, loop))
        return self.faults.get((round_, shard)) if found is None and loop == self.files.main else found

    def replay(self, kind: Kind, round_: int, shard: int, segment: int, state: Sequence[Tensor]) -> Replay:
        """The replay of a segment from `state`."""
        located = self.located(kind, segment, shard)
        executor = self._executor(kind, located.number)
        return Replay(
            self.programs(kind)[located.number],
            state,
            self.files.records if kind == Kind.TASK else None,
            self.terms.seed,
            shard,
            located.first_step(round_),
            executor=executor,
            max_snapshots=MOST_SNAPSHOTS if executor.room is None else 1,
            fault=self._fault(kind, round_, shard, located.number),
        )

    def run(
        self,
        kind: Kind,
        round_: int,
        shard: int,
        segment: int,
        state: Sequence[Tensor],
        told: Callable[[int, int], None] = lambda done, steps: None,
    ) -> State:
        """Runs a segment and returns its end state; `told`: the progress callback of `Executor.run`."""
        number, steps = self.located(kind, segment, shard).number, self.segment_steps(kind, segment, shard)
        replay = self.replay(kind, round_, shard, segment, state)
        if self._fault(kind, round_, shard, number) is None:
            return self._executor(kind, number).run(state, replay.context(0), steps, told)
        for done in range(steps):
            told(done, steps)
            replay.state(done)
        return list(replay.state(steps))

    def segment(
        self, kind: Kind, round_: int, shard: int, segment: int, state: Sequence[Tensor]
    ) -> tuple[State, bytes]:
        """Runs a segment and returns its end state and root."""
        end = self.run(kind, round_, shard, segment, state)
        return end, state_root(end)
