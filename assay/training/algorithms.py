"""Algorithms of low communication as recipes: what a shard sends, and how all that was sent becomes θ.

Contract: an `Algorithm` is data: a `Coding` with or without error feedback, a mean of those present, and an
outer rule. `compress` and `outer` are ordinary PyTorch of operations that lower; `programs` makes the
programs of both, which differ from one machine to another in no bit. A shard that is absent has no part in
any sum, whatever its wire holds. Residuals are zeros at the start, and so is what our own rules keep. Their
place in a market's round: ``training.rounds``. Not guaranteed: that an algorithm suits a model.

Sources, in their own signs: Δ = θ − θ_k, and θ goes against it. FedAvg, McMahan 2017; FedOpt, Reddi 2021;
lo-fi, Wortsman 2022; DiLoCo, Douillard 2023; DeMo, Peng 2024; SparseLoCo, Sarfi 2025; MuLoCo, Thérien 2025;
PowerSGD, Vogels 2019; centred clipping, Karimireddy 2021; trimmed mean, Yin 2018; delayed Nesterov, Liu 2024.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from assay.program.isa import Program
from assay.program.lowering.recordless import lowered
from assay.training.codings import E3M0, Bins, Coding, Integers, Largest, LowRank, Whole

Tensors = Sequence[Tensor]


class Rule(Protocol):
    """How θ follows a mean change."""

    @property
    def slots(self) -> int:
        """Tensors of state for each parameter."""
        ...

    def start(self, theta: Tensor) -> list[Tensor]:
        """A parameter's state before the first step."""
        ...

    def step(self, theta: Tensor, delta: Tensor, state: Tensors) -> tuple[Tensor, list[Tensor]]:
        """The next θ and state of one parameter."""
        ...


class FromZeros:
    """A rule whose state is so many tensors of a parameter's shape, zeros at first."""

    slots: int

    def start(self, theta: Tensor) -> list[Tensor]:
        return [torch.zeros_like(theta) for _ in range(self.slots)]


@dataclass(frozen=True)
class OuterSgd(FromZeros):
    """θ −= lr·Δ; FedAvg with lr = 1."""

    lr: float = 1.0
    slots: int = 0

    def step(self, theta: Tensor, delta: Tensor, state: Tensors) -> tuple[Tensor, list[Tensor]]:
        return theta - delta * self.lr, []


@dataclass(frozen=True)
class Nesterov(FromZeros):
    """m = µm + Δ, θ −= lr·(Δ + µm): the first m is Δ."""

    lr: float = 0.7
    momentum: float = 0.9
    slots: int = 1

    def step(self, theta: Tensor, delta: Tensor, state: Tensors) -> tuple[Tensor, list[Tensor]]:
        moment = state[0] * self.momentum + delta
        return theta - (delta + moment * self.momentum) * self.lr, [moment]


@dataclass(frozen=True)
class DelayedNesterov:
    """θ −= lr·Δ/N after each round; after every N-th also m = µm + B/N, θ −= lr·µm, B being the sum of Δ
    since the one before: momentum moves once for N changes. N = `every`; with N = 1 it is `Nesterov`."""

    lr: float = 0.7
    momentum: float = 0.9
    every: int = 4
    slots: int = 3

    def start(self, theta: Tensor) -> list[Tensor]:
        """m, B, and the number of rounds so far."""
        return [torch.zeros_like(theta), torch.zeros_like(theta), torch.zeros((), dtype=torch.int32)]

    def step(self, theta: Tensor, delta: Tensor, state: Tensors) -> tuple[Tensor, list[Tensor]]:
        moment, buffer, done = state
        done = done + 1
        turn = torch.remainder(done, self.every) == 0
        buffer = buffer + delta
        moment = torch.where(turn, moment * self.momentum + buffer / self.every, moment)
        push = torch.where(turn, moment * self.momentum, 0.0)
        after = theta - (delta / self.every + push) * self.lr
        return after, [moment, torch.where(turn, 0.0, buffer), done]


@dataclass(frozen=True)
class OuterAdam(FromZeros):
    """FedAdam: m = β₁m + (1 − β₁)Δ, v = β₂v + (1 − β₂)Δ², θ −= lr·m/(√v + ε), without bias correction."""

    lr: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.99
    eps: float = 0.1
    slots: int = 2

    def step(self, theta: Tensor, delta: Tensor, state: Tensors) -> tuple[Tensor, list[Tensor]]:
        mean = state[0] * self.beta1 + delta * (1 - self.beta1)
        square = state[1] * self.beta2 + (delta * delta) * (1 - self.beta2)
        return theta - mean / (torch.sqrt(square) + self.eps) * self.lr, [mean, square]


@dataclass(frozen=True)
class Sign(FromZeros):
    """θ −= lr·sign(Δ)."""

    lr: float = 1e-3
    slots: int = 0

    def step(self, theta: Tensor, delta: Tensor, state: Tensors) -> tuple[Tensor, list[Tensor]]:
        return theta - torch.sign(delta) * self.lr, []


# Means: changes [K] of one parameter, whether each is present, 1 where each was sent (None: everywhere)


class Mean(Protocol):
    """One change of the changes of those present."""

    def __call__(self, deltas: Tensors, present: Tensors, sent: Sequence[Tensor | None]) -> Tensor: ...


def of_present(x: Tensor, here: Tensor) -> Tensor:
    """x, or zeros where its shard is absent: whatever is there then, NaN too, is not looked at."""
    return torch.where(here, x, 0.0)


@dataclass(frozen=True)
class Average:
    """The sum in the order of the shards over how many are present, or, of sparse wires, sent the place."""

    def __call__(self, deltas: Tensors, present: Tensors, sent: Sequence[Tensor | None]) -> Tensor:
        total, count = torch.zeros(()), torch.zeros(())
        for delta, here, mask in zip(deltas, present, sent, strict=True):
            total = total + of_present(delta, here)
            count = count + (here.float() if mask is None else of_present(mask, here))
        return total / count.clamp(min=1.0)


def norm(x: Tensor) -> Tensor:
    return torch.sqrt((x * x).sum())


def norms(deltas: Tensors, present: Tensors) -> Tensor:
    """f32 [K]; of who is absent 0."""
    return torch.stack([norm(of_present(d, h)) for d, h in zip(deltas, present, strict=True)])


def median(sizes: Tensor, present: Tensors) -> Tensor:
    """The (lower) median of those present, a scalar."""
    here = torch.stack(list(present))
    ordered = torch.where(here, sizes, torch.inf).sort()[0]
    middle = ((here.float().sum() - 1) / 2).floor().clamp(min=0).int()
    return ordered.gather(0, middle.long().reshape(1))[0]


def clipped(delta: Tensor, size: Tensor, bound: Tensor) -> Tensor:
    """A change of this norm, no longer than `bound`."""
    return delta * torch.where(size > bound, bound / torch.where(size > 0, size, 1.0), 1.0)


@dataclass(frozen=True)
class MedianNorm:
    """Every change clipped to the (lower) median norm of those present, then `Average`."""

    def __call__(self, deltas: Tensors, present: Tensors, sent: Sequence[Tensor | None]) -> Tensor:
        sizes = norms(deltas, present)
        bound = median(sizes, present)
        return Average()([clipped(d, sizes[k], bound) for k, d in enumerate(deltas)], present, sent)


@dataclass(frozen=True)
class Trimmed:
    """In each coordinate the mean without the `cut` least and the `cut` greatest of those present."""

    cut: int = 1

    def __call__(self, deltas: Tensors, present: Tensors, sent: Sequence[Tensor | None]) -> Tensor:
        held = [torch.where(h, d, torch.inf) for d, h in zip(deltas, present, strict=True)]
        ordered = torch.stack(held, -1).sort(-1)[0]
        rank = torch.arange(len(deltas)).float()
        count = torch.stack(list(present)).float().sum()
        kept = (rank >= self.cut) & (rank < count - self.cut)
        return torch.where(kept, ordered, 0.0).sum(-1) / (count - 2 * self.cut).clamp(min=1.0)


@dataclass(frozen=True)
class CentredClip:
    """v += mean of (Δ_k − v)·min(1, τ/‖Δ_k − v‖), some times, from v = 0, where τ is `radius` times the
    (lower) median of the distances ‖Δ_k − v‖. With one τ for all parameters liars rule those whose changes
    are shorter (docs/measurements.md, failures)."""

    radius: float = 1.0
    steps: int = 3

    def __call__(self, deltas: Tensors, present: Tensors, sent: Sequence[Tensor | None]) -> Tensor:
        centre = torch.zeros_like(deltas[0])
        for _ in range(self.steps):
            apart = [delta - centre for delta in deltas]
            sizes = norms(apart, present)
            bound = median(sizes, present) * self.radius
            moves = [clipped(x, sizes[k], bound) for k, x in enumerate(apart)]
            centre = centre + Average()(moves, present, [None] * len(moves))
        return centre


@dataclass(frozen=True)
class Algorithm:
    """A coding, error feedback e = feedback·e + gain·Δ (None: gain·Δ is sent and forgotten), a mean and a
    rule; `late`: how many rounds older the θ is that a shard begins from than the one that its change goes
    against."""

    rule: Rule = field(default_factory=Nesterov)
    coding: Coding = field(default_factory=Whole)
    feedback: float | None = None
    gain: float = 1.0
    mean: Mean = field(default_factory=Average)
    late: int = 0

    def compress(
        self, base: Tensor, theta: Tensor, residual: Tensor | None
    ) -> tuple[tuple[Tensor, ...], Tensor | None]:
        """The wire of one parameter that went from `base` to `theta`, and the next residual."""
        change = base - theta
        change = change if self.gain == 1.0 else change * self.gain
        if self.feedback is None or residual is None:
            return self.coding.encode(change), None
        change = (residual if self.feedback == 1.0 else residual * self.feedback) + change
        wire = self.coding.encode(change)
        return wire, change - self.coding.decode(wire, change.shape)

    def outer(
        self, theta: Tensor, state: Tensors, wires: Sequence[Tensors], present: Tensors
    ) -> tuple[Tensor, list[Tensor]]:
        """The next θ and outer state of one parameter."""
        return self.rule.step(theta, self.change(wires, present, theta.shape), state)

    def change(self, wires: Sequence[Tensors], present: Tensors, shape: Sequence[int]) -> Tensor:
        """The mean change of a parameter of this shape, of the wires of those present."""
        deltas = [self.coding.decode(wire, shape) for wire in wires]
        return self.mean(deltas, present, [self.coding.sent(wire, shape) for wire in wires])


RECIPES: dict[str, Algorithm] = {
    "fedavg": Algorithm(OuterSgd()),
    "fedopt": Algorithm(OuterAdam()),
    "lofi": Algorithm(OuterSgd()),
    "data-parallel": Algorithm(OuterSgd()),
    "diloco": Algorithm(Nesterov()),
    "diloco-u8": Algorithm(Nesterov(), Bins(8), feedback=1.0),
    "diloco-4bit": Algorithm(Nesterov(), E3M0(), feedback=1.0),
    "diloco-int4": Algorithm(Nesterov(), Integers(4), feedback=1.0),
    "diloco-2bit": Algorithm(Nesterov(), Bins(2, 64), feedback=1.0),
    "muloco": Algorithm(Nesterov(0.7, 0.6), Bins(2, 64), feedback=1.0),
    "demo": Algorithm(Sign(1e-3), Largest(32, 64), feedback=0.999, gain=1e-3),
    "sparseloco": Algorithm(
        OuterSgd(), Largest(64, 64, cosine=False, values=Bins(2)), feedback=0.95, mean=MedianNorm()
    ),
    "powersgd": Algorithm(Nesterov(), LowRank(4), feedback=1.0),
    "diloco-late": Algorithm(Nesterov(0.7, 0.0), E3M0(), feedback=1.0, late=1),
    "diloco-trimmed": Algorithm(Nesterov(), mean=Trimmed()),
    "diloco-median": Algorithm(Nesterov(), mean=MedianNorm()),
    "diloco-centred": Algorithm(Nesterov(), mean=CentredClip()),
    "delayed-nesterov": Algorithm(DelayedNesterov()),
}
"""By name, with the numbers of the papers above, as far as those have one; late changes without momentum
(decision 0061). Where they have none or another case: the rate and ε of FedOpt are tuned for every task in
Reddi 2021, and 0.1 for both is where to begin. Liu 2024 takes Δ/N for changes that come singly, each of one
worker, so that N of them move θ as far as one round of DiLoCo does; a round's change here is the mean of all
shards, and N rounds move it as far as one would. Of MuLoCo's residual all is kept (β = 1), as by the codings
beside it: which β belongs to two bits is not known here. PowerSGD's rank is a parameter of Vogels 2019.
The median norm is SparseLoCo's, here before DiLoCo's mean.

MuLoCo's shards train with ``training.muon``, the others with AdamW; one of DeMo's rounds is one step, whose
change is the gradient. lo-fi is FedAvg whose one round is all of it, data parallel FedAvg whose round is one
step of SGD: the mean of steps that are linear in the gradient is the step of the mean gradient."""


@dataclass(frozen=True)
class Programs:
    """The programs of an algorithm for parameters of given shapes."""

    compress: Program
    """[base (P), θ_k (P), residuals (P or 0), wires] → the same with residuals and wires renewed."""
    outer: Program
    """[θ (P), state, wires of shard 0, 1, ..., present (K)] → θ and state renewed."""
    wires: tuple[tuple[Tensor, ...], ...]
    """An empty wire of each parameter: its tensors' shapes and dtypes."""


def split(tensors: Tensors, sizes: Sequence[int]) -> list[list[Tensor]]:
    """The first so many, the next so many, and so on."""
    made, at = [], 0
    for size in sizes:
        made.append(list(tensors[at : at + size]))
        at += size
    return made


def programs(
    algorithm: Algorithm, shapes: Sequence[tuple[int, ...]], shards: int, part: int | None = None
) -> Programs:
    """Trace both; the outer step of the first `part` parameters, by default of all. Raises
    UnsupportedOperation where a rule of one's own uses what does not lower."""
    zeros = [torch.zeros(shape) for shape in shapes]
    wires = tuple(tuple(torch.zeros_like(t) for t in algorithm.coding.encode(z)) for z in zeros)
    count, widths = len(shapes), [len(wire) for wire in wires]
    some = count if part is None else part
    sent_widths = widths[:some]
    fed = algorithm.feedback is not None

    def compress(state: list[Tensor], batch: Tensor) -> list[Tensor]:
        base, theta, residuals, *_ = split(state, [count, count, count if fed else 0, sum(widths)])
        made = [
            algorithm.compress(b, p, e)
            for b, p, e in zip(base, theta, residuals if fed else [None] * count, strict=True)
        ]
        after = [e for _, e in made if e is not None]
        return [*base, *theta, *after, *(t for wire, _ in made for t in wire)]

    def outer(state: list[Tensor], batch: Tensor) -> list[Tensor]:
        slots = algorithm.rule.slots
        theta, held, *sent, present = split(
            state, [some, slots * some, *([sum(sent_widths)] * shards), shards]
        )
        after, kept = [], []
        own = split(held, [slots] * some)
        each = [split(wire, sent_widths) for wire in sent]
        for i in range(some):
            new, left = algorithm.outer(theta[i], own[i], [wire[i] for wire in each], present)
            after.append(new)
            kept += left
        return [*after, *kept, *(t for wire in sent for t in wire), *present]

    flat = [t for wire in wires for t in wire]
    inner = [*zeros, *zeros, *(zeros if fed else []), *flat]
    there = [torch.zeros((), dtype=torch.bool) for _ in range(shards)]
    own = [*zeros[:some], *(x for z in zeros[:some] for x in algorithm.rule.start(z))]
    beyond = [*own, *([t for wire in wires[:some] for t in wire] * shards), *there]
    return Programs(
        lowered(compress, inner, count),
        lowered(outer, beyond, some),
        wires,
    )
