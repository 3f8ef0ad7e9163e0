"""Low-communication algorithms as data: what a shard sends, and how θ follows.

Contract: an `Algorithm` has a `Coding` with or without error feedback, a mean over present shards, and an
outer rule. `compress` and `outer` are ordinary PyTorch that can be lowered; ``training.rounds`` traces both,
so all machines get the same bits. An absent shard enters no sum, whatever its wire holds. Residuals start at
zero, and so does the state of our own rules. Not guaranteed: that an algorithm suits a model.

Signs: Δ = θ − θ_k, and θ moves against it. The algorithms by name, with their papers: ``training.catalogue``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias

from assay.protocol.errors import Stop
from assay.training.bounds import decay, positive, require, whole
from assay.training.codings import Coding, Whole
from assay.training.lazy_torch import torch

if TYPE_CHECKING:
    from torch import Tensor

Tensors: TypeAlias = "Sequence[Tensor]"


class Rule(Protocol):
    """An outer rule: how θ follows a mean change."""

    @property
    def slots(self) -> int:
        """State tensors per parameter."""
        ...

    def start(self, theta: Tensor) -> list[Tensor]:
        """A parameter's initial state."""
        ...

    def step(self, theta: Tensor, delta: Tensor, state: Tensors) -> tuple[Tensor, list[Tensor]]:
        """Next θ and state of one parameter."""
        ...


class FromZeros:
    """A rule whose state is a number of tensors of the parameter's shape, initially zero."""

    slots: int

    def start(self, theta: Tensor) -> list[Tensor]:
        return [torch.zeros_like(theta) for _ in range(self.slots)]


@dataclass(frozen=True)
class OuterSgd(FromZeros):
    """θ −= lr·Δ; FedAvg with lr = 1."""

    lr: float = 1.0
    slots: int = 0

    def check(self) -> None:
        """Raises Stop if these numbers cannot train θ."""
        require(self.slots == 0, "OuterSgd.slots", self.slots, "0, as its steps return")
        positive("OuterSgd.lr", self.lr)

    def step(self, theta: Tensor, delta: Tensor, state: Tensors) -> tuple[Tensor, list[Tensor]]:
        return theta - delta * self.lr, []


@dataclass(frozen=True)
class Nesterov(FromZeros):
    """m = µm + Δ, θ −= lr·(Δ + µm): the first m is Δ."""

    lr: float = 0.7
    momentum: float = 0.9
    slots: int = 1

    def check(self) -> None:
        """Raises Stop if these numbers cannot train θ."""
        require(self.slots == 1, "Nesterov.slots", self.slots, "1, as its steps return")
        positive("Nesterov.lr", self.lr)
        decay("Nesterov.momentum", self.momentum)

    def step(self, theta: Tensor, delta: Tensor, state: Tensors) -> tuple[Tensor, list[Tensor]]:
        moment = state[0] * self.momentum + delta
        return theta - (delta + moment * self.momentum) * self.lr, [moment]


@dataclass(frozen=True)
class DelayedNesterov:
    """θ −= lr·Δ/N after each round; after every N-th also m = µm + B/N, θ −= lr·µm, where B sums Δ since the
    last time.

    So momentum moves once per N changes. N = `every`; with N = 1 it is `Nesterov`.
    """

    lr: float = 0.7
    momentum: float = 0.9
    every: int = 4
    slots: int = 3

    def check(self) -> None:
        """Raises Stop if these numbers cannot train θ."""
        require(self.slots == 3, "DelayedNesterov.slots", self.slots, "3, as its steps return")
        positive("DelayedNesterov.lr", self.lr)
        decay("DelayedNesterov.momentum", self.momentum)
        whole("DelayedNesterov.every", self.every, 1, (1 << 31) - 1)

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

    def check(self) -> None:
        """Raises Stop if these numbers cannot train θ."""
        require(self.slots == 2, "OuterAdam.slots", self.slots, "2, as its steps return")
        positive("OuterAdam.lr", self.lr)
        decay("OuterAdam.beta1", self.beta1)
        decay("OuterAdam.beta2", self.beta2)
        positive("OuterAdam.eps", self.eps)

    def step(self, theta: Tensor, delta: Tensor, state: Tensors) -> tuple[Tensor, list[Tensor]]:
        mean = state[0] * self.beta1 + delta * (1 - self.beta1)
        square = state[1] * self.beta2 + (delta * delta) * (1 - self.beta2)
        return theta - mean / (torch.sqrt(square) + self.eps) * self.lr, [mean, square]


@dataclass(frozen=True)
class Sign(FromZeros):
    """θ −= lr·sign(Δ)."""

    lr: float = 1e-3
    slots: int = 0

    def check(self) -> None:
        """Raises Stop if these numbers cannot train θ."""
        require(self.slots == 0, "Sign.slots", self.slots, "0, as its steps return")
        positive("Sign.lr", self.lr)

    def step(self, theta: Tensor, delta: Tensor, state: Tensors) -> tuple[Tensor, list[Tensor]]:
        return theta - torch.sign(delta) * self.lr, []


# Means: changes [K] of one parameter, whether each is present, 1 where each was sent (None: everywhere)


class Mean(Protocol):
    """Combines the changes of present shards to one."""

    def __call__(self, deltas: Tensors, present: Tensors, sent: Sequence[Tensor | None]) -> Tensor: ...


def of_present(x: Tensor, here: Tensor) -> Tensor:
    """x, or zeros if its shard is absent, whatever (even NaN) x holds then."""
    return torch.where(here, x, 0.0)


@dataclass(frozen=True)
class Average:
    """Sum in order of the shards divided by the number present; for sparse wires, by the number that sent the
    position."""

    def __call__(self, deltas: Tensors, present: Tensors, sent: Sequence[Tensor | None]) -> Tensor:
        total, count = torch.zeros(()), torch.zeros(())
        for delta, here, mask in zip(deltas, present, sent, strict=True):
            total = total + of_present(delta, here)
            count = count + (here.float() if mask is None else of_present(mask, here))
        return total / count.clamp(min=1.0)


def norm(x: Tensor) -> Tensor:
    return torch.sqrt((x * x).sum())


def norms(deltas: Tensors, present: Tensors) -> Tensor:
    """f32 [K]; 0 for absent shards."""
    return torch.stack([norm(of_present(d, h)) for d, h in zip(deltas, present, strict=True)])


def median(sizes: Tensor, present: Tensors) -> Tensor:
    """The (lower) median over present shards, a scalar."""
    here = torch.stack(list(present))
    ordered = torch.where(here, sizes, torch.inf).sort()[0]
    middle = ((here.float().sum() - 1) / 2).floor().clamp(min=0).int()
    return ordered.gather(0, middle.long().reshape(1))[0]


def clipped(delta: Tensor, size: Tensor, bound: Tensor) -> Tensor:
    """A change of this norm, scaled down to at most `bound`."""
    return delta * torch.where(size > bound, bound / torch.where(size > 0, size, 1.0), 1.0)


@dataclass(frozen=True)
class MedianNorm:
    """Clips every change to the (lower) median norm of present shards, then `Average`."""

    mixes: ClassVar[str] = "it clips by norms of whole parameters, of which a slice has a part"
    """Why a slice of a parameter has no mean by itself."""

    def check(self, shards: int, min_shards: int) -> None:
        """Raises Stop if these numbers cannot train θ."""
        if shards < 2:
            raise Stop(
                "this algorithm clips each change to the median of all shards' norms, which does nothing with"
                " one shard",
                hint="ask for 2 shards or more, or take an algorithm with a plain mean",
            )

    def __call__(self, deltas: Tensors, present: Tensors, sent: Sequence[Tensor | None]) -> Tensor:
        sizes = norms(deltas, present)
        bound = median(sizes, present)
        return Average()([clipped(d, sizes[k], bound) for k, d in enumerate(deltas)], present, sent)


@dataclass(frozen=True)
class Algorithm:
    """A coding, error feedback e = feedback·e + gain·Δ (None: gain·Δ is sent and forgotten), a mean and a
    rule.

    `late`: number of rounds by which a shard's initial θ is older than the θ that its change is applied to.
    """

    rule: Rule = field(default_factory=Nesterov)
    coding: Coding = field(default_factory=Whole)
    feedback: float | None = None
    gain: float = 1.0
    mean: Mean = field(default_factory=Average)
    late: int = 0

    def compress(
        self, base: Tensor, theta: Tensor, residual: Tensor | None
    ) -> tuple[tuple[Tensor, ...], Tensor | None]:
        """Wire of one parameter that moved from `base` to `theta`, and the next residual."""
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
        """Next θ and outer state of one parameter."""
        return self.rule.step(theta, self.change(wires, present, theta.shape), state)

    def change(self, wires: Sequence[Tensors], present: Tensors, shape: Sequence[int]) -> Tensor:
        """Mean change of a parameter of this shape, from the wires of present shards."""
        deltas = [self.coding.decode(wire, shape) for wire in wires]
        return self.mean(deltas, present, [self.coding.sent(wire, shape) for wire in wires])
