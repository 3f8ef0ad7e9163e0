"""Replays a run of steps: computes any state, root or trace of it on demand.

Contract: `state(i)` is the state after i steps from the given one; the first has step counter `first_step`.
Everything follows from public inputs, so two honest replays agree bit for bit. Memory: at most
`max_snapshots` states, one trace. Not guaranteed: honesty, if a fault was planted on purpose
(``program.fault``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from torch import Tensor

from assay.dispute.trace import StepTrace, trace_step
from assay.program.execute import Executor, Patch, Records, StepContext
from assay.program.fault import Fault
from assay.program.isa import Program
from assay.program.state import state_tree
from assay.protocol import trees

MOST_SNAPSHOTS = 16
"""Maximum number of states that a replay keeps, unless its caller says another."""


class Replay:
    """A lazily computed run of a program."""

    def __init__(
        self,
        program: Program,
        state0: Sequence[Tensor],
        dataset: Records | None,
        seed: bytes,
        shard: int,
        first_step: int,
        *,
        executor: Executor | None = None,
        snapshot_every: int = 16,
        max_snapshots: int = MOST_SNAPSHOTS,
        fault: Fault | None = None,
    ) -> None:
        self.program = program
        self.dataset = dataset
        self.first_step = first_step
        self._context = StepContext(dataset, seed, shard, first_step)
        self._executor = executor or Executor(program)
        self._every, self._max = snapshot_every, max_snapshots
        self._fault = fault
        self._snapshots: dict[int, list[Tensor]] = {0: list(state0)}
        self._latest: tuple[int, list[Tensor]] = (0, list(state0))
        self._trees: dict[int, trees.Tree] = {}
        self._trace: tuple[int, bytes, StepTrace] | None = None

    def context(self, i: int) -> StepContext:
        """Inputs of the step from state i to state i + 1."""
        return replace(self._context, step=self.first_step + i)

    def _patch(self, i: int) -> Patch | None:
        return None if self._fault is None else partial(self._fault.output, self.first_step + i)

    def _claimed(self, i: int, after: list[Tensor]) -> list[Tensor]:
        return after if self._fault is None else self._fault.state(self.first_step + i, after)

    def _arrive(self, i: int, state: list[Tensor]) -> None:
        self._latest = (i, state)
        if i % self._every:
            return
        self._snapshots[i] = state
        while len(self._snapshots) > max(self._max, 1):
            self._every *= 2
            self._snapshots = {at: x for at, x in self._snapshots.items() if at % self._every == 0}

    def state(self, i: int) -> list[Tensor]:
        """The state after i steps. Raises IndexError for a negative i."""
        if i < 0:
            raise IndexError(f"a replay has no state {i}")
        at = max(at for at in self._snapshots if at <= i)
        state = self._snapshots[at]
        if at < self._latest[0] <= i:
            at, state = self._latest
        while at < i:
            state = self._claimed(at, self._executor.step(state, self.context(at), None, self._patch(at)))
            at += 1
            self._arrive(at, state)
        return state

    def state_tree(self, i: int) -> trees.Tree:
        """State tree after i steps."""
        if i not in self._trees:
            self._trees[i] = state_tree(self.state(i))
        return self._trees[i]

    def root(self, i: int) -> bytes:
        """State root after i steps."""
        return self.state_tree(i).root

    def trace(self, i: int, key: bytes = b"") -> StepTrace:
        """Trace of the step from state i to state i + 1. The last one is cached."""
        if self._trace is None or self._trace[:2] != (i, key):
            state, context = self.state(i), self.context(i)
            traced = trace_step(
                self.program, state, context, key, executor=self._executor, patch=self._patch(i)
            )
            self._trace = (i, key, traced)
            if self._latest[0] == i:
                self._arrive(i + 1, self._claimed(i, list(traced.next_state)))
        return self._trace[2]
