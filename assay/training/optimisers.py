"""Optimisers as functions from (parameters, gradients, state) to the next (parameters, state), all by name.

Contract: everything that changes from step to step is a tensor of the state, so that a step can be replayed
from its input state alone: also the powers of the betas and the step counter, as f32 scalars. Constants are
rounded to f32 once. Weight decay is left out for names that match a pattern of `no_decay` (as in a shell).

Sources: AdamW, Loshchilov and Hutter 2019 (decoupled weight decay); SGD as in torch.optim.SGD without
dampening; Lion, Chen and others 2023. Muon is in ``training.muon``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Protocol

import torch
from torch import Tensor

from assay.training.schedules import Schedule

Named = Mapping[str, Tensor]
STEP = "step"


class Optimiser(Protocol):
    """What `training.job` needs of an optimiser."""

    def genesis(self, params: Named) -> dict[str, Tensor]:
        """The state before the first step; its order is that of the slots."""
        ...

    def update(
        self, params: Named, grads: Named, state: Named
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Next parameters and next state, under the same names."""
        ...


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether a parameter's name matches one of the patterns, such as ``"*.bias"``."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def clipped(grads: Named, norm: float | None) -> dict[str, Tensor]:
    """Gradients scaled so that their joint Euclidean norm is at most `norm` (None: unchanged)."""
    if norm is None:
        return dict(grads)
    total = torch.stack([(g * g).sum() for g in grads.values()]).sum().sqrt()
    scale = torch.clamp(norm / (total + 1e-6), max=1.0)
    return {name: g * scale for name, g in grads.items()}


def counter(schedule: Schedule) -> dict[str, Tensor]:
    """The slot that a schedule counts in, at its start; none for a constant rate."""
    return {} if schedule.constant else {STEP: torch.zeros(())}


def rate_at(lr: float, schedule: Schedule, state: Named) -> float | Tensor:
    """The learning rate of this step."""
    return lr if schedule.constant else schedule.factor(state[STEP]) * lr


def counted(state: Named) -> dict[str, Tensor]:
    """The counter after this step."""
    return {STEP: state[STEP] + 1} if STEP in state else {}


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
    schedule: Schedule = field(default_factory=Schedule)
    clip_norm: float | None = None
    no_decay: tuple[str, ...] = ()

    def genesis(self, params: Named) -> dict[str, Tensor]:
        """Two moments for each parameter, two powers, and the counter of a schedule."""
        zeros = {
            f"{moment}.{name}": torch.zeros_like(p)
            for moment in ("exp_avg", "exp_avg_sq")
            for name, p in params.items()
        }
        powers = {"beta1_power": torch.ones(()), "beta2_power": torch.ones(())}
        return {**zeros, **powers, **counter(self.schedule)}

    def update(
        self, params: Named, grads: Named, state: Named
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """One step of AdamW."""
        power1, power2 = state["beta1_power"] * self.beta1, state["beta2_power"] * self.beta2
        rate = rate_at(self.lr, self.schedule, state)
        stride, root = rate / (1 - power1), torch.sqrt(1 - power2)
        keep = 1 - rate * self.weight_decay
        grads = clipped(grads, self.clip_norm)
        means = {n: state[f"exp_avg.{n}"] * self.beta1 + g * (1 - self.beta1) for n, g in grads.items()}
        squares = {
            n: state[f"exp_avg_sq.{n}"] * self.beta2 + (g * g) * (1 - self.beta2) for n, g in grads.items()
        }
        after = {}
        for n, p in params.items():
            decays = self.weight_decay and p.dim() >= 2 and not matches(n, self.no_decay)
            kept = p * keep if decays else p
            after[n] = kept - stride * (means[n] / (torch.sqrt(squares[n]) / root + self.eps))
        return after, {
            **{f"exp_avg.{n}": m for n, m in means.items()},
            **{f"exp_avg_sq.{n}": s for n, s in squares.items()},
            "beta1_power": power1,
            "beta2_power": power2,
            **counted(state),
        }


@dataclass(frozen=True)
class Sgd:
    """Momentum buffer b = momentum·b + g (first b = g); the step is b, or g + momentum·b with Nesterov."""

    lr: float = 0.1
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 0.0
    schedule: Schedule = field(default_factory=Schedule)
    clip_norm: float | None = None
    no_decay: tuple[str, ...] = ()

    def genesis(self, params: Named) -> dict[str, Tensor]:
        """A buffer for each parameter if there is momentum, and the counter of a schedule."""
        buffers = {f"momentum.{n}": torch.zeros_like(p) for n, p in params.items()} if self.momentum else {}
        return {**buffers, **counter(self.schedule)}

    def update(
        self, params: Named, grads: Named, state: Named
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """One step of SGD."""
        rate = rate_at(self.lr, self.schedule, state)
        grads = clipped(grads, self.clip_norm)
        if self.weight_decay:
            grads = {
                n: g if matches(n, self.no_decay) else g + params[n] * self.weight_decay
                for n, g in grads.items()
            }
        moves, buffers = grads, {}
        if self.momentum:
            buffers = {n: state[f"momentum.{n}"] * self.momentum + g for n, g in grads.items()}
            moves = buffers
            if self.nesterov:
                moves = {n: g + buffers[n] * self.momentum for n, g in grads.items()}
        after = {n: p - moves[n] * rate for n, p in params.items()}
        return after, {**{f"momentum.{n}": b for n, b in buffers.items()}, **counted(state)}


@dataclass(frozen=True)
class Lion:
    """The sign of an interpolated momentum; decoupled weight decay as in `AdamW`."""

    lr: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.99
    weight_decay: float = 0.1
    schedule: Schedule = field(default_factory=Schedule)
    clip_norm: float | None = None
    no_decay: tuple[str, ...] = ()

    def genesis(self, params: Named) -> dict[str, Tensor]:
        """A momentum for each parameter, and the counter of a schedule."""
        return {**{f"exp_avg.{n}": torch.zeros_like(p) for n, p in params.items()}, **counter(self.schedule)}

    def update(
        self, params: Named, grads: Named, state: Named
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """One step of Lion."""
        rate = rate_at(self.lr, self.schedule, state)
        grads = clipped(grads, self.clip_norm)
        keep = 1 - rate * self.weight_decay
        after, means = {}, {}
        for n, p in params.items():
            mean, g = state[f"exp_avg.{n}"], grads[n]
            move = torch.sign(mean * self.beta1 + g * (1 - self.beta1))
            decays = self.weight_decay and p.dim() >= 2 and not matches(n, self.no_decay)
            after[n] = (p * keep if decays else p) - move * rate
            means[f"exp_avg.{n}"] = mean * self.beta2 + g * (1 - self.beta2)
        return after, {**means, **counted(state)}
