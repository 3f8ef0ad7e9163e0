"""Algorithms that overlap communication: fragments sent in turn, and outer steps with late changes.

Contract: they extend ``training.algorithms`` and keep an `Algorithm`'s coding, mean and rule; they define how
a worker uses what was sent. All arithmetic is PyTorch that can be lowered. Steps and rounds count from 0.
``training.streaming`` and ``training.eager`` make rounds of them.

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
    """Fragment p, of `fragments` lists of parameters, is sent every `steps` steps, offset by p·steps/P.

    `delay` steps later every worker mixes its own value with the result.
    """

    fragments: tuple[tuple[int, ...], ...]
    steps: int = 100
    delay: int = 1
    alpha: float = 0.5
    algorithm: Algorithm = field(default_factory=lambda: CATALOGUE["streaming"].algorithm)

    def mixed(self, theta: Tensor, local: Tensor) -> Tensor:
        """Value with which a worker continues: α·local + (1 − α)·θ."""
        return local * self.alpha + theta * (1 - self.alpha)


@dataclass(frozen=True)
class Eager:
    """Applies this round's own change, and the others' of the previous round: Δ̃ᵢ = Δ̄′ + (Δᵢ − Δ′ᵢ)/M.

    Every worker has its own θ and outer state.
    """

    rule: Rule = field(default_factory=Nesterov)

    def step(
        self, theta: Tensor, state: Sequence[Tensor], late: Tensor, own: Tensor, before: Tensor, workers: int
    ) -> tuple[Tensor, list[Tensor]]:
        """The next θ and state of one parameter; `late` is the mean of the round before, `before` the
        worker's own part in it (both zero at first)."""
        return self.rule.step(theta, late + (own - before) * (1 / workers), state)
