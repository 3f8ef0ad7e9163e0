"""Optimisers as functions from (parameters, gradients, moments) to the next (parameters, moments).

Contract: everything that changes from step to step is a tensor of the state, so that a step can be replayed
from its input state alone: also the powers of the betas and the step counter, as f32 scalars. Constants are
rounded to f32 once.

Sources: AdamW, Loshchilov and Hutter 2019 (decoupled weight decay); SGD as in torch.optim.SGD without
dampening.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

Tensors = list[Tensor]


class Optimiser(Protocol):
    """What `training.job` needs of an optimiser."""

    def slots(self, names: Sequence[str]) -> list[str]:
        """Names of the optimiser's state for parameters of these names."""
        ...

    def genesis(self, params: Sequence[Tensor]) -> Tensors:
        """The state before the first step, in the order of `slots`."""
        ...

    def update(self, params: Tensors, grads: Sequence[Tensor], state: Tensors) -> tuple[Tensors, Tensors]:
        """Next parameters and next optimiser state."""
        ...


def _warmed(rate: float, warmup_steps: int, step: Tensor) -> Tensor:
    """rate · min(1, (step + 1) / warmup_steps)."""
    return torch.clamp((step + 1) / warmup_steps, max=1.0) * rate


def clipped(grads: Sequence[Tensor], norm: float | None) -> Sequence[Tensor]:
    """Gradients scaled so that their joint Euclidean norm is at most `norm` (None: unchanged)."""
    if norm is None:
        return grads
    total = torch.stack([(g * g).sum() for g in grads]).sum().sqrt()
    scale = torch.clamp(norm / (total + 1e-6), max=1.0)
    return [g * scale for g in grads]


@dataclass(frozen=True)
class AdamW:
    """Decoupled weight decay on tensors of two or more dimensions; bias correction by powers kept in the
    state.
    """

    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.1
    warmup_steps: int = 0
    clip_norm: float | None = None

    def slots(self, names: Sequence[str]) -> list[str]:
        moments = [f"{moment}.{name}" for moment in ("exp_avg", "exp_avg_sq") for name in names]
        return [*moments, "beta1_power", "beta2_power", *(["step"] if self.warmup_steps else [])]

    def genesis(self, params: Sequence[Tensor]) -> Tensors:
        moments = [torch.zeros_like(p) for _ in range(2) for p in params]
        return [*moments, torch.ones(()), torch.ones(()), *([torch.zeros(())] if self.warmup_steps else [])]

    def update(self, params: Tensors, grads: Sequence[Tensor], state: Tensors) -> tuple[Tensors, Tensors]:
        count = len(params)
        means, squares, (power1, power2, *step) = state[:count], state[count : 2 * count], state[2 * count :]
        power1, power2 = power1 * self.beta1, power2 * self.beta2
        rate = _warmed(self.lr, self.warmup_steps, step[0]) if step else self.lr
        stride, root = rate / (1 - power1), torch.sqrt(1 - power2)
        keep = 1 - rate * self.weight_decay
        grads = clipped(grads, self.clip_norm)
        means = [m * self.beta1 + g * (1 - self.beta1) for m, g in zip(means, grads, strict=True)]
        squares = [s * self.beta2 + (g * g) * (1 - self.beta2) for s, g in zip(squares, grads, strict=True)]
        after = []
        for p, m, s in zip(params, means, squares, strict=True):
            kept = p * keep if self.weight_decay and p.dim() >= 2 else p
            after.append(kept - stride * (m / (torch.sqrt(s) / root + self.eps)))
        return after, [*means, *squares, power1, power2, *(t + 1 for t in step)]


@dataclass(frozen=True)
class Sgd:
    """Momentum buffer b = momentum·b + g (first b = g); the step is b, or g + momentum·b with Nesterov."""

    lr: float = 0.1
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 0.0
    warmup_steps: int = 0
    clip_norm: float | None = None

    def slots(self, names: Sequence[str]) -> list[str]:
        buffers = [f"momentum.{name}" for name in names] if self.momentum else []
        return [*buffers, *(["step"] if self.warmup_steps else [])]

    def genesis(self, params: Sequence[Tensor]) -> Tensors:
        buffers = [torch.zeros_like(p) for p in params] if self.momentum else []
        return [*buffers, *([torch.zeros(())] if self.warmup_steps else [])]

    def update(self, params: Tensors, grads: Sequence[Tensor], state: Tensors) -> tuple[Tensors, Tensors]:
        count = len(params) if self.momentum else 0
        buffers, step = state[:count], state[count:]
        rate = _warmed(self.lr, self.warmup_steps, step[0]) if step else self.lr
        grads = clipped(grads, self.clip_norm)
        if self.weight_decay:
            grads = [g + p * self.weight_decay for p, g in zip(params, grads, strict=True)]
        moves = grads
        if self.momentum:
            buffers = [b * self.momentum + g for b, g in zip(buffers, grads, strict=True)]
            moves = buffers
            if self.nesterov:
                moves = [g + b * self.momentum for b, g in zip(buffers, grads, strict=True)]
        return [p - m * rate for p, m in zip(params, moves, strict=True)], [*buffers, *(t + 1 for t in step)]
