"""Operands and models with outliers, for ``scripts/bench/accuracy.py``.

Contract: all come from fixed seeds. `Llama.plant` changes no function: what becomes 2^15 times as large is
read by weights that become as much smaller, as in pretrained networks that have such features.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

ROWS, LENGTH = 128, 1024
FEATURE = 7
OUTLIER = 30_000.0
PLANTED = 2.0**15
"""A power of two, so that planting is exact."""


def distributions() -> Iterator[tuple[str, Tensor, Tensor]]:
    """Name, left and right operand f32[128, 1024] of a product of rows by rows."""
    generator = torch.Generator().manual_seed(17)

    def normal() -> Tensor:
        return torch.randn((ROWS, LENGTH), generator=generator)

    def student() -> Tensor:
        squares = torch.randn((2, ROWS, LENGTH), generator=generator).square().sum(0)
        return normal() / (squares / 2).sqrt()

    left, right = normal(), normal()
    yield "Gaussian", left, right
    yield "Student t(2)", student(), student()
    without = right.clone()
    without[:, FEATURE] = 0
    for factor in (1_000.0, OUTLIER):
        column = left.clone()
        column[:, FEATURE] *= factor
        if factor == OUTLIER:
            yield f"one column × {factor:,.0f}, weight 0", column, without
        else:
            yield f"one column × {factor:,.0f}", column, right
            yield f"one column × {factor:,.0f}, weight 0", column, without
    gradient = functional.softmax(3 * normal(), -1)
    targets = torch.randint(LENGTH, (ROWS,), generator=generator)
    gradient[torch.arange(ROWS), targets] -= 1
    yield "softmax's gradient", gradient / ROWS, right


class Masked(nn.Module):
    """Three layers on 64 pixels; one hidden feature is 30,000 times as large, its weights are kept at 0."""

    scale: Tensor
    mask: Tensor

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.middle, self.last = (
            nn.Linear(64, width),
            nn.Linear(width, width),
            nn.Linear(width, 10),
        )
        at = torch.tensor([FEATURE])
        self.register_buffer("scale", torch.ones(width).index_fill(0, at, OUTLIER))
        self.register_buffer("mask", torch.ones(width).index_fill(0, at, 0.0))

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.first(x)) * self.scale
        middle = functional.linear(hidden, self.middle.weight * self.mask, self.middle.bias)
        return self.last(torch.relu(middle))


class Block(nn.Module):
    """RMS norm, grouped-query attention with rotary positions, SwiGLU."""

    def __init__(self, width: int, heads: int, groups: int) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.norm_1, self.norm_2 = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, groups * self.size, bias=False)
        self.value = nn.Linear(width, groups * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate = nn.Linear(width, 3 * width, bias=False)
        self.up = nn.Linear(width, 3 * width, bias=False)
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        batch, length, width = x.shape
        seen = self.norm_1(x)
        query = self.query(seen).view(batch, length, self.heads, self.size).transpose(1, 2)
        key = self.key(seen).view(batch, length, self.groups, self.size).transpose(1, 2)
        value = self.value(seen).view(batch, length, self.groups, self.size).transpose(1, 2)
        query, key = _rotated(query, cosine, sine), _rotated(key, cosine, sine)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        seen = self.norm_2(x)
        return x + self.down(functional.silu(self.gate(seen)) * self.up(seen))

    @torch.no_grad()
    def plant(self, feature: int) -> None:
        """One hidden feature of the feed-forward network and one of the norm before attention."""
        self.up.weight[feature] *= PLANTED
        self.down.weight[:, feature] /= PLANTED
        self.norm_1.weight[feature] *= PLANTED
        for layer in (self.query, self.key, self.value):
            layer.weight[:, feature] /= PLANTED


def _rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cosine + torch.cat([-second, first], -1) * sine


class Llama(nn.Module):
    """A byte-level decoder; one feature of the residual stream is large from the start."""

    def __init__(self, width: int = 64, layers: int = 2) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.embedding = nn.Embedding(256, width)
        self.blocks = nn.ModuleList(Block(width, 4, 2) for _ in range(layers))
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.head = nn.Linear(width, 256, bias=False)
        self.half = width // 4 // 2
        with torch.no_grad():
            self.embedding.weight[:, FEATURE] = 60.0

    def forward(self, tokens: Tensor) -> Tensor:
        rates = 10_000.0 ** (-torch.arange(self.half).float() / self.half)
        angles = torch.arange(tokens.shape[1]).float()[:, None] * rates
        angles = torch.cat([angles, angles], -1)
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, angles.cos(), angles.sin())
        return self.head(self.norm(x))

    def plant(self) -> None:
        """Outliers in every block."""
        for block in self.blocks:
            block.plant(FEATURE)
