"""Muon: momentum whose matrices are brought near an orthogonal one by Newton and Schulz's iteration.

Contract: weights of two or more dimensions whose name matches no pattern of `others_of` take Muon's step (a
convolution's weight as [out, rest]); embeddings, heads, norms and biases take AdamW's. Every product is a
product of the program, so a step is replayed like any other.

Source: Jordan and others 2024, with its five steps and coefficients.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from assay.training.optimisers import AdamW, Named, clipped, counted, counter, matches, rate_at
from assay.training.schedules import Schedule

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
STEPS = 5


def orthogonalised(x: Tensor) -> Tensor:
    """f32 [m, n] with singular values between about 0.7 and 1.2 and x's singular vectors."""
    a, b, c = COEFFICIENTS
    tall = x.shape[0] > x.shape[1]
    x = x.t() if tall else x
    x = x / ((x * x).sum().sqrt() + 1e-7)
    for _ in range(STEPS):
        gram = x @ x.t()
        x = x * a + (gram * b + (gram @ gram) * c) @ x
    return x.t() if tall else x


@dataclass(frozen=True)
class Muon:
    """Nesterov momentum, orthogonalised, scaled by √max(1, rows ÷ columns); `others` for all other tensors.

    The schedule and the clipping are Muon's for both; those of `others` are not read.
    """

    lr: float = 0.02
    momentum: float = 0.95
    weight_decay: float = 0.0
    others: AdamW = field(default_factory=lambda: AdamW(lr=1e-3))
    others_of: tuple[str, ...] = ("*embed*", "*position*", "*head*", "*tok*")
    schedule: Schedule = field(default_factory=Schedule)
    clip_norm: float | None = None

    def _parted(self, params: Named) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        mine = {n: p for n, p in params.items() if p.dim() >= 2 and not matches(n, self.others_of)}
        return mine, {n: p for n, p in params.items() if n not in mine}

    def _adamw(self) -> AdamW:
        return replace(self.others, schedule=self.schedule, clip_norm=None)

    def genesis(self, params: Named) -> dict[str, Tensor]:
        """A momentum for each matrix, AdamW's state for the others, and the counter of a schedule."""
        mine, rest = self._parted(params)
        buffers = {f"momentum.{n}": torch.zeros_like(p) for n, p in mine.items()}
        return {**buffers, **(self._adamw().genesis(rest) if rest else counter(self.schedule))}

    def update(
        self, params: Named, grads: Named, state: Named
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """One step of Muon and of AdamW."""
        grads = clipped(grads, self.clip_norm)
        rate = rate_at(self.lr, self.schedule, state)
        mine, rest = self._parted(params)
        after, buffers = {}, {}
        for n, p in mine.items():
            buffer = state[f"momentum.{n}"] * self.momentum + grads[n]
            move = orthogonalised((grads[n] + buffer * self.momentum).reshape(p.shape[0], -1))
            scale = max(1.0, p.shape[0] / (p.numel() // p.shape[0])) ** 0.5
            kept = p * (1 - rate * self.weight_decay) if self.weight_decay else p
            after[n] = kept - move.reshape(p.shape) * (rate * scale)
            buffers[f"momentum.{n}"] = buffer
        left = counted(state)
        if rest:
            moved, left = self._adamw().update(rest, {n: grads[n] for n in rest}, state)
            after |= moved
        return {n: after[n] for n in params}, {**buffers, **left}
