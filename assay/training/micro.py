"""Gradient accumulation over steps: the state holds the sum, a counter selects the update.

Contract: `MicroSteps(rule, count)` is an optimiser whose parameters and whose rule's state change at every
`count`-th step alone, by what `rule` does with the mean of the gradients since; in between, bit for bit, they
stay. So a batch of many passes costs no more nodes than one, and a step no more memory than one pass and the
sum; the rule's arithmetic is done at each step and thrown away at most of them. The loss that a step shows is
that of its own pass. Not guaranteed: the bits of `accumulate`, which adds in another order.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.protocol.errors import Stop
from assay.training.optimisers import Named, Optimiser

COUNTER = "micro_step"
SUM = "grad_sum."


@dataclass(frozen=True)
class MicroSteps:
    """`rule` once in `count` steps, on the mean of their gradients. Raises Stop for a `count` below 1."""

    rule: Optimiser
    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise Stop(f"{self.count} micro-steps make no step", hint="give 1 or more", code="bad-job")

    def genesis(self, params: Named) -> dict[str, Tensor]:
        """The rule's state, a sum for each parameter, and the counter."""
        sums = {SUM + name: torch.zeros_like(p) for name, p in params.items()}
        return {**self.rule.genesis(params), **sums, COUNTER: torch.zeros(())}

    def update(
        self, params: Named, grads: Named, state: Named
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """One pass: the sum grows, or the rule has its step and the sum begins anew."""
        first, last = state[COUNTER] == 0, state[COUNTER] == self.count - 1
        sums = {name: torch.where(first, g, state[SUM + name] + g) for name, g in grads.items()}
        after, rest = self.rule.update(params, {n: s / self.count for n, s in sums.items()}, state)
        counter = torch.where(last, torch.zeros(()), state[COUNTER] + 1)
        return (
            {name: torch.where(last, after[name], p) for name, p in params.items()},
            {
                **{name: torch.where(last, x, state[name]) for name, x in rest.items()},
                **{SUM + name: x for name, x in sums.items()},
                COUNTER: counter,
            },
        )
