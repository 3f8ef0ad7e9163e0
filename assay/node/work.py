"""A job made ready to compute: any run of its programs, from any state, as a `Replay`.

Contract: a claim is a run of steps of one of the job's two programs (docs/protocol.md, 2.6 and 4.3). This
module knows which steps, with which counter and shard. Executors are made once and shared by all replays of
the job. Not thread-safe. Honest roles never give a fault (``program.fault``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property

import torch
from torch import Tensor

from assay.dispute.replay import Replay
from assay.node.artifacts import LoadedJob, State
from assay.node.engine import REFERENCE_ENGINE, Engine
from assay.program.execute import Executor
from assay.program.fault import Fault
from assay.program.isa import Program
from assay.program.state import state_root
from assay.program.validate import measure
from assay.protocol.loops import Byte, FromClaim, Located, Place, Stands, locate, source_of
from assay.protocol.types import Kind, Terms

Faults = Mapping[tuple[int, ...], Fault]
"""Planted faults by (round, shard), in a task's main loop, or by (round, shard, loop)."""


def outer_share(terms: Terms, tasks: Sequence[Program], outers: Sequence[Program]) -> Fraction:
    """Operations of an outer claim over those of a task; of a slow shard, where there are any: who holds one
    owes outer claims too, and its price is that of a task with fewer steps."""
    last = terms.shards - 1
    outer, task = (
        sum(
            loop.of(shard).steps * measure(program).operations
            for loop, program in zip(terms.loops_of(kind), programs, strict=True)
        )
        for kind, programs, shard in ((Kind.OUTER, outers, 0), (Kind.TASK, tasks, last))
    )
    return Fraction(outer, max(task, 1))


def put_together(
    terms: Terms, place: Place, stands: Stands, output: Callable[[Place, int], Tensor], genesis: State
) -> State:
    """A claim's input by the terms' links (rule 4.4), where all outputs are at hand: `output` gives a slot of
    a place's, `genesis` is the kind's."""
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
    """Runs of one job's programs."""

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
        self._executors: dict[tuple[Kind, int], Executor] = {}

    def _executor(self, kind: Kind, loop: int) -> Executor:
        """A task's main loop is worth compiling; all others are few steps."""
        if (kind, loop) not in self._executors:
            program, steps = self.programs(kind)[loop], self.terms.rounds * self.terms.steps_per_round
            trains = kind == Kind.TASK and loop == self.files.main
            made = self._engine.executor(program, steps) if trains else self._engine.eager(program)
            self._executors[kind, loop] = made
        return self._executors[kind, loop]

    @cached_property
    def outer_share(self) -> Fraction:
        """`outer_share` of the job."""
        return outer_share(self.terms, self.files.tasks, self.files.outers)

    def programs(self, kind: Kind) -> tuple[Program, ...]:
        """Of the loops of such a claim; all have the same slots."""
        return self.files.tasks if kind == Kind.TASK else self.files.outers

    def program(self, kind: Kind) -> Program:
        """The first of them, for what it says of the state."""
        return self.programs(kind)[0]

    def segments(self, kind: Kind) -> int:
        """Segments of a claim; its segments tree has one leaf more."""
        return self.terms.segments_of(kind)

    def located(self, kind: Kind, segment: int, shard: int) -> Located:
        """The loop that a segment of a shard's claim lies in."""
        return locate(self.terms.loops_of(kind), segment, shard)

    def segment_steps(self, kind: Kind, segment: int, shard: int) -> int:
        """Steps of a segment."""
        return self.located(kind, segment, shard).loop.segment_steps

    def first_step(self, kind: Kind, round_: int, segment: int, shard: int) -> int:
        """Step counter of a segment's first step."""
        return self.located(kind, segment, shard).first_step(round_)

    def _fault(self, kind: Kind, round_: int, shard: int, loop: int) -> Fault | None:
        if kind == Kind.OUTER:
            return None if loop else self.outer_faults.get(round_)
        found = self.faults.get((round_, shard, loop))
        return self.faults.get((round_, shard)) if found is None and loop == self.files.main else found

    def replay(self, kind: Kind, round_: int, shard: int, segment: int, state: Sequence[Tensor]) -> Replay:
        """The run that starts with `state` at the beginning of a segment."""
        located = self.located(kind, segment, shard)
        return Replay(
            self.programs(kind)[located.number],
            state,
            self.files.records if kind == Kind.TASK else None,
            self.terms.seed,
            shard,
            located.first_step(round_),
            executor=self._executor(kind, located.number),
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
        """The state at a segment's end; `told` as `Executor.run` has it."""
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
        """The state at a segment's end, and its root."""
        end = self.run(kind, round_, shard, segment, state)
        return end, state_root(end)
