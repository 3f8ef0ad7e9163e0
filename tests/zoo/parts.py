"""What the zoo's models are made of: inputs, a module from a function, losses with built-in targets."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

GENERATOR = torch.Generator().manual_seed(20)


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=GENERATOR)


def words(*shape: int, below: int = 11) -> Tensor:
    return torch.randint(0, below, shape, generator=GENERATOR)


ROWS, OTHER = normal(4, 8), normal(4, 8)
IMAGES = normal(2, 3, 8, 8)
LINES = normal(2, 6, 8)
WORDS = words(2, 6)
POINTS = normal(2, 5, 3)


class Part(nn.Module):
    """A layer from a function of itself and its input: modules, parameters and a forward that is given."""

    def __init__(self, forward: Callable[..., Tensor], **parts: Any) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, nn.Parameter(part) if type(part) is Tensor else part)
        self._forward = forward

    def __getattr__(self, name: str) -> Any:
        """A part under its name: a module, a parameter or a plain value."""
        return super().__getattr__(name)

    def forward(self, *inputs: Tensor) -> Tensor:
        return self._forward(self, *inputs)


class Net(Part):
    """A whole model."""


def labelled(logits: Tensor) -> Tensor:
    """Cross entropy of [.., classes] with labels 0, 1, 2, ... in turn."""
    flat = logits.reshape(-1, logits.shape[-1])
    return F.cross_entropy(flat, torch.arange(flat.shape[0]) % flat.shape[1])


def to_wave(x: Tensor) -> Tensor:
    """Mean squared distance from a wave."""
    return F.mse_loss(x, torch.cos(torch.arange(x.numel()).float()).view(x.shape))


def conv(a: int, b: int, k: int = 3, **given: Any) -> nn.Conv2d:
    return nn.Conv2d(a, b, k, padding=given.pop("padding", k // 2), **given)


def mlp(*widths: int, act: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise(widths):
        layers += [nn.Linear(a, b), act()]
    return nn.Sequential(*layers[:-1])


def pooled(x: Tensor) -> Tensor:
    return x.mean((2, 3))


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -1e9)
    return scores.softmax(-1) @ v


def causal(length: int) -> Tensor:
    place = torch.arange(length)
    return place.unsqueeze(1) >= place


@dataclass(frozen=True)
class Entry:
    """A model whose call gives its loss, and the inputs of one batch."""

    model: Net
    inputs: tuple[Tensor, ...]


ZOO: dict[str, Callable[[], Entry]] = {}


def model(*inputs: Tensor) -> Callable[[Callable[[], Net]], Callable[[], Net]]:
    """Register a function that builds a model under its name."""

    def register(build: Callable[[], Net]) -> Callable[[], Net]:
        def make() -> Entry:
            torch.manual_seed(7)
            return Entry(build(), inputs)

        ZOO[build.__name__] = make
        return build

    return register
