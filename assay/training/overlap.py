"""Rounds that do not wait for the wire: fragments that are sent in turn, and outer steps with late changes.

Contract: recipes beside ``training.algorithms``, of whose `Algorithm` they keep coding, mean and rule; they
say what a worker makes of what was sent. All arithmetic is ordinary PyTorch of
operations that lower. Steps and rounds count from 0. `Streaming`'s place in a market's round:
``training.streaming``, `Eager`'s: ``training.eager``.

Sources: Streaming DiLoCo with overlapping communication, Douillard and others 2025; eager updates for
overlapped communication and computation in DiLoCo, Kale and others 2025.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

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
