"""A job made ready to compute: any run of its programs, from any state, as a `Replay`.

Contract: a claim is a run of steps of one of the job's two programs (docs/protocol.md, 2.6 and 4.3); this
module knows which steps, with which counter and shard. Executors are made once and shared by all replays of
the job. Not thread-safe. Honest roles never give a fault (``program.fault``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from torch import Tensor

from assay.dispute.replay import Replay
from assay.node.artifacts import LoadedJob, State
from assay.node.engine import REFERENCE_ENGINE, Engine
from assay.node.replays import Replays
from assay.program.execute import Executor
from assay.program.fault import Fault
from assay.program.isa import Program
from assay.program.state import state_root
from assay.protocol.types import Kind, Terms

Faults = Mapping[tuple[int, int], Fault]
"""Planted faults by (round, shard)."""


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
        """Planted faults of outer steps, by round."""
        self._engine = engine

    @cached_property
    def _inner(self) -> Executor:
        return self._engine.executor(self.files.inner, self.terms.rounds * self.terms.steps_per_round)

    @cached_property
    def _outer(self) -> Executor:
        return self._engine.eager(self.files.outer)

    @property
    def replays(self) -> Replays | None:
        """Where segments are replayed several at a time; None where a fault is planted."""
        return None if self.faults or self.outer_faults else self._engine.replays

    def program(self, kind: Kind) -> Program:
        """Inner program for tasks, outer program for outer claims."""
        return self.files.inner if kind == Kind.TASK else self.files.outer

    def segments(self, kind: Kind) -> int:
        """Segments of a claim; its segments tree has one leaf more."""
        return self.terms.segments if kind == Kind.TASK else 1

    def segment_steps(self, kind: Kind) -> int:
        return self.terms.segment_steps if kind == Kind.TASK else 1

    def first_step(self, kind: Kind, round_: int, segment: int) -> int:
        """Step counter of a segment's first step."""
        if kind == Kind.OUTER:
            return round_
        return round_ * self.terms.steps_per_round + segment * self.terms.segment_steps

    def replay(self, kind: Kind, round_: int, shard: int, segment: int, state: Sequence[Tensor]) -> Replay:
        """The run that starts with `state` at the beginning of a segment."""
        executor = self._inner if kind == Kind.TASK else self._outer
        fault = self.faults.get((round_, shard)) if kind == Kind.TASK else self.outer_faults.get(round_)
        first = self.first_step(kind, round_, segment)
        records = self.files.records if kind == Kind.TASK else None
        return Replay(
            self.program(kind),
            state,
            records,
            self.terms.seed,
            shard,
            first,
            executor=executor,
            fault=fault,
        )

    def run(self, kind: Kind, round_: int, shard: int, segment: int, state: Sequence[Tensor]) -> State:
        """The state at a segment's end."""
        return list(self.replay(kind, round_, shard, segment, state).state(self.segment_steps(kind)))

    def segment(
        self, kind: Kind, round_: int, shard: int, segment: int, state: Sequence[Tensor]
    ) -> tuple[State, bytes]:
        """The state at a segment's end, and its root."""
        end = self.run(kind, round_, shard, segment, state)
        return end, state_root(end)
