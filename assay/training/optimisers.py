"""Optimisers as pure functions of (parameters, gradients, state), by name.

Contract: everything that changes from step to step is a tensor of the state, so that a step can be replayed
from its input state: including the powers of the betas and the step counter, as f32 scalars. Constants are
rounded to f32 once. Weight decay skips names that match a pattern of `no_decay` (shell syntax).

An optimiser for job files is a dataclass of `option` fields and a row of `OPTIMISERS`: its job file section,
that section's template and the help of `assay job init` are made from them. Importing this module does not
import PyTorch.

Sources: AdamW, Loshchilov and Hutter 2019 (decoupled weight decay); SGD as in torch.optim.SGD without
dampening; Lion, Chen and others 2023; Muon, Jordan and others 2024, with its five steps and coefficients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from assay.protocol.errors import Stop
from assay.training.lazy_torch import torch
from assay.training.schedules import Schedule

if TYPE_CHECKING:
    from torch import Tensor

Named: TypeAlias = "Mapping[str, Tensor]"
STEP = "step"
COUNTER = "micro_step"
SUM = "grad_sum."
Bounds = Literal["rate", "decay", "positive"]
"""Bounds of a real option: at least 0; at least 0 and below 1; above 0."""


def option(default: Any, bounds: Bounds = "rate", *, start: Any = None, comment: str = "") -> Any:
    """A field that is a key of the job file's [optimiser].

    `start`: value that `assay job init` writes, if not the default; `comment`: its comment in the file.
    """
    written = default if start is None else start
    return field(default=default, metadata={"bounds": bounds, "start": written, "comment": comment})


class Optimiser(Protocol):
    """Interface of an optimiser."""

    def genesis(self, params: Named) -> dict[str, Tensor]:
        """State before the first step, in slot order."""
        ...

    def update(
        self, params: Named, grads: Named, state: Named
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Next parameters and next state, under the same names."""
        ...


def matches(name: str, patterns: Sequence[str]) -> bool:
    """True if a parameter's name matches a pattern such as ``"*.bias"``."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def clipped(grads: Named, norm: float | None) -> dict[str, Tensor]:
    """Gradients scaled so that their joint Euclidean norm is at most `norm` (None: unchanged)."""
    if norm is None:
        return dict(grads)
    total = torch.stack([(g * g).sum() for g in grads.values()]).sum().sqrt()
    scale = torch.clamp(norm / (total + 1e-6), max=1.0)
    return {name: g * scale for name, g in grads.items()}


def counter(schedule: Schedule) -> dict[str, Tensor]:
    """Initial slot of a schedule's step counter; none for a constant rate."""
    return {} if schedule.constant else {STEP: torch.zeros(())}


def rate_at(lr: float, schedule: Schedule, state: Named) -> float | Tensor:
    """Learning rate of this step."""
    return lr if schedule.constant else schedule.factor(state[STEP]) * lr


def counted(state: Named) -> dict[str, Tensor]:
    """The counter after this step."""
    return {STEP: state[STEP] + 1} if STEP in state else {}


@dataclass(frozen=True)
class AdamW:
    """Decoupled weight decay on tensors of `decay_dims` or more dimensions (two, in a job file); bias
    correction by powers kept in the state.
    """

    lr: float = option(1e-3, start=2e-3)
    beta1: float = option(0.9, "decay")
    beta2: float = option(0.95, "decay")
    eps: float = option(1e-8, "positive")
    weight_decay: float = option(0.1, comment="of tensors with two dimensions or more")
    no_decay: tuple[str, ...] = option((), comment='nor of these, such as ["*embedding*"]')
    clip_norm: float | None = option(None, comment="0: no clipping")
    schedule: Schedule = field(default_factory=Schedule)
    decay_dims: int = 2

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
            decays = self.weight_decay and p.dim() >= self.decay_dims and not matches(n, self.no_decay)
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

    lr: float = option(0.1)
    momentum: float = option(0.9, "decay")
    nesterov: bool = option(False, start=True)
    weight_decay: float = option(0.0)
    no_decay: tuple[str, ...] = option(())
    clip_norm: float | None = option(None, comment="0: no clipping")
    schedule: Schedule = field(default_factory=Schedule)

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

    lr: float = option(1e-4, start=3e-4)
    beta1: float = option(0.9, "decay")
    beta2: float = option(0.99, "decay")
    weight_decay: float = option(0.1, comment="of tensors with two dimensions or more")
    no_decay: tuple[str, ...] = option((), comment='nor of these, such as ["*embedding*"]')
    clip_norm: float | None = option(None, comment="0: no clipping")
    schedule: Schedule = field(default_factory=Schedule)

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
    """Nesterov momentum, orthogonalised by Newton and Schulz's iteration, scaled by √max(1, rows ÷ columns).

    Weights of two or more dimensions whose name matches no pattern of `others_of` take this step (a
    convolution's weight as [out, rest]); embeddings, heads, norms and biases take that of `others`. The
    schedule and the clipping are Muon's for both; those of `others` are not read.
    """

    lr: float = option(0.02)
    momentum: float = option(0.95, "decay")
    weight_decay: float = option(0.0)
    clip_norm: float | None = option(None, comment="0: no clipping")
    others_of: tuple[str, ...] = option(
        ("*embed*", "*position*", "*head*", "*tok*"), start=("*embed*", "*position*", "*head*")
    )
    others: AdamW = field(
        default_factory=lambda: AdamW(lr=1e-3),
        metadata={"comment": "AdamW for these, and for all that are no matrices"},
    )
    schedule: Schedule = field(default_factory=Schedule)

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


OPTIMISERS: dict[str, type[Optimiser]] = {
    "adamw": AdamW,
    "sgd": Sgd,
    "lion": Lion,
    "muon": Muon,
}
"""By their names in job files."""


@dataclass(frozen=True)
class MicroSteps:
    """Gradient accumulation over steps: `rule` runs once in `count` steps, on their mean gradient.

    Parameters and the rule's state only change at every `count`-th step; in between they stay, bit for bit.
    So a batch of many passes costs no more nodes than one, and a step no more memory than one pass and the
    sum. A step's loss is that of its own pass. Not guaranteed: the bits of `accumulate`, which adds in
    another order. Raises Stop for a `count` below 1.
    """

    rule: Optimiser
    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise Stop(
                f"a step needs at least 1 micro-step, not {self.count}", hint="give 1 or more", code="bad-job"
            )

    def genesis(self, params: Named) -> dict[str, Tensor]:
        """The rule's state, a gradient sum per parameter, and the counter."""
        sums = {SUM + name: torch.zeros_like(p) for name, p in params.items()}
        return {**self.rule.genesis(params), **sums, COUNTER: torch.zeros(())}

    def update(
        self, params: Named, grads: Named, state: Named
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """One pass: adds to the sum, or runs the rule and resets the sum."""
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
