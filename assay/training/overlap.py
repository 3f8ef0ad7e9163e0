"""Rounds that do not wait for the wire: fragments that are sent in turn, and outer steps with late changes.

Contract: recipes beside ``training.algorithms``, of whose `Algorithm` they keep coding, mean and rule; they
say when something is sent and applied, and what a worker makes of it. All arithmetic is ordinary PyTorch of
operations that lower. Steps and rounds count from 0. `Streaming`'s place in a market's round:
``training.streaming``, `Eager`'s: ``training.eager``.

Sources: Streaming DiLoCo with overlapping communication, Douillard and others 2025; eager updates for
overlapped communication and computation in DiLoCo, Kale and others 2025.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from assay.program.isa import Program
from assay.program.lowering.recordless import lowered
from assay.training.algorithms import Algorithm, Nesterov, Rule
from assay.training.catalogue import CATALOGUE


@dataclass(frozen=True)
class Streaming:
    """Fragment p, of `fragments` lists of parameters, is sent after every `steps` steps, p·steps/P steps
    later than fragment 0; `delay` steps after that every worker mixes its own with what came of it."""

    fragments: tuple[tuple[int, ...], ...]
    steps: int = 100
    delay: int = 1
    alpha: float = 0.5
    algorithm: Algorithm = field(default_factory=lambda: CATALOGUE["streaming"].algorithm)

    def _after(self, done: int) -> list[int]:
        count = len(self.fragments)
        starts = [p * self.steps // count for p in range(count)]
        return [p for p, start in enumerate(starts) if done > 0 and (done - start) % self.steps == 0]

    def sent(self, done: int) -> list[int]:
        """Fragments whose change is taken when `done` steps are done."""
        return self._after(done)

    def applied(self, done: int) -> list[int]:
        """Fragments whose outer step and mixing come when `done` steps are done."""
        return self._after(done - self.delay)

    def mixed(self, theta: Tensor, local: Tensor) -> Tensor:
        """What a worker goes on with: α·local + (1 − α)·θ."""
        return local * self.alpha + theta * (1 - self.alpha)


@dataclass(frozen=True)
class Eager:
    """The own change of this round, and the others' of the round before: Δ̃ᵢ = Δ̄′ + (Δᵢ − Δ′ᵢ)/M.

    Every worker has a θ and an outer state of its own.
    """

    rule: Rule = field(default_factory=Nesterov)

    def step(
        self, theta: Tensor, state: Sequence[Tensor], late: Tensor, own: Tensor, before: Tensor, workers: int
    ) -> tuple[Tensor, list[Tensor]]:
        """The next θ and state of one parameter; `late` is the mean of the round before, `before` the
        worker's own part in it (both zero at first)."""
        return self.rule.step(theta, late + (own - before) * (1 / workers), state)


def eager_program(eager: Eager, shapes: Sequence[tuple[int, ...]], workers: int) -> Program:
    """[θ (P), state, late (P), before (P), own (P)] → θ and state renewed, the others as they were."""
    zeros = [torch.zeros(shape) for shape in shapes]
    count, slots = len(shapes), eager.rule.slots

    def step(state: list[Tensor], batch: Tensor) -> list[Tensor]:
        theta, held, rest = state[:count], state[count : count * (1 + slots)], state[count * (1 + slots) :]
        late, before, own = rest[:count], rest[count : 2 * count], rest[2 * count :]
        after, kept = [], []
        for i in range(count):
            mine = held[i * slots : (i + 1) * slots]
            new, left = eager.step(theta[i], mine, late[i], own[i], before[i], workers)
            after.append(new)
            kept += left
        return [*after, *kept, *late, *before, *own]

    start = [*zeros, *(x for z in zeros for x in eager.rule.start(z)), *zeros, *zeros, *zeros]
    return lowered(step, start, count)


def mixing_program(streaming: Streaming, shapes: Sequence[tuple[int, ...]]) -> Program:
    """[θ (P), local (P)] → [θ, mixed]."""
    zeros = [torch.zeros(shape) for shape in shapes]
    count = len(shapes)

    def step(state: list[Tensor], batch: Tensor) -> list[Tensor]:
        theta, local = state[:count], state[count:]
        return [*theta, *(streaming.mixed(t, p) for t, p in zip(theta, local, strict=True))]

    return lowered(step, [*zeros, *zeros], count)
