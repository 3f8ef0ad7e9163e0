"""Reimplements PyTorch functions that draw, count or group, from operations that can be lowered.

They are random integers, histograms, grouped products and indexed extremes.

Contract: that of ``program.lowering.rewrites``, whose table includes them. Random numbers are the program's
own and independent of `torch.manual_seed`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from assay.program.lowering.rewrites import rewrites

_FRACTIONS = 1 << 24
"""Number of different values that ``torch.rand`` draws here."""

# Random numbers


def _whole(low: int, high: int, shape: Sequence[int], dtype: torch.dtype | None) -> Any:
    if high - low > _FRACTIONS:
        return NotImplemented
    drawn = torch.floor(torch.rand(tuple(shape)) * (high - low)).clamp(max=high - low - 1)
    return (drawn.to(torch.int64) + low).to(dtype or torch.int64)


@rewrites(torch.randint)
def randint(*ends: Any, size: Any = None, dtype: torch.dtype | None = None, **named: Any) -> Any:
    """(high, size) or (low, high, size)."""
    bounds = [*ends, *(named[name] for name in ("low", "high") if name in named)]
    shape = bounds.pop() if size is None else size
    low, high = (0, *bounds)[-2:]
    return _whole(int(low), int(high), shape, dtype)


@rewrites(torch.randint_like)
def randint_like(input: Tensor, *ends: Any, dtype: torch.dtype | None = None, **named: Any) -> Any:
    low, high = (0, *ends, *(named[name] for name in ("low", "high") if name in named))[-2:]
    return _whole(int(low), int(high), input.shape, dtype or input.dtype)


@rewrites(torch.randperm)
def randperm(n: int, *, dtype: torch.dtype | None = None, **_options: Any) -> Tensor:
    return torch.rand(n).argsort().to(dtype or torch.int64)


@rewrites(torch.normal)
def normal(mean: Any, std: Any = 1.0, size: Any = None, **_options: Any) -> Any:
    if size is not None:
        return torch.randn(tuple(size)) * std + mean
    shape = torch.broadcast_shapes(*(x.shape for x in (mean, std) if isinstance(x, Tensor)))
    return torch.randn(shape) * std + mean


@rewrites(torch.bernoulli)
def bernoulli(input: Tensor, p: float | None = None, **_options: Any) -> Any:
    return NotImplemented if p is not None else (torch.rand(input.shape) < input).to(input.dtype)


# Histograms


@rewrites(torch.histc, Tensor.histc)
def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Any:
    if min == max:
        return NotImplemented
    x = input.detach().reshape(-1)
    place = torch.floor((x - min) * (bins / (max - min))).clamp(max=bins - 1)
    hit = (place.unsqueeze(1) == torch.arange(bins)) & ((x >= min) & (x <= max)).unsqueeze(1)
    return hit.sum(0).to(input.dtype)


# Products by groups of rows


@rewrites(functional.grouped_mm, torch._grouped_mm)
def grouped_mm(
    mat_a: Tensor, mat_b: Tensor, *, offs: Tensor | None = None, bias: Any = None, out_dtype: Any = None
) -> Any:
    """Rows of [n, K] times their group's [K, N] of [groups, K, N]; group g ends at row offs[g].

    Each group multiplies all rows, with the others' set to zero, because the groups depend on the data.
    """
    if mat_a.dim() == 3 and mat_b.dim() == 3:
        made = mat_a @ mat_b
    elif mat_a.dim() == 2 and mat_b.dim() == 3 and offs is not None:
        row = torch.arange(mat_a.shape[0]).unsqueeze(0)
        begins = torch.cat([torch.zeros_like(offs[:1]), offs[:-1]]).unsqueeze(1)
        mine = (row >= begins) & (row < offs.unsqueeze(1))
        made = (torch.where(mine.unsqueeze(2), mat_a, 0.0) @ mat_b).sum(0)
    else:
        return NotImplemented
    return made if bias is None else made + bias


# Extremes by index


def _reduced(x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, include_self: bool) -> Any:
    """Reduces all entries that name each position by comparing every entry: [positions, entries, ..]."""
    if reduce not in ("amax", "amin", "mean", "sum") or not x.is_floating_point():
        return NotImplemented
    at = dim % x.dim()
    for d, size in enumerate(index.shape):
        source = source.narrow(d, 0, size)
        if d != at and size != x.shape[d]:
            return NotImplemented
    if reduce in ("sum", "mean"):
        begin = x if include_self else torch.where(_named(x, at, index), 0.0, x)
        total = begin.scatter_add(at, index, source)
        if reduce == "sum":
            return total
        ones = torch.ones_like(x) if include_self else torch.zeros_like(x)
        return total / ones.scatter_add(at, index, torch.ones_like(source)).clamp(min=1.0)
    sign = 1.0 if reduce == "amax" else -1.0
    entries = index.movedim(at, 0).unsqueeze(0)
    places = torch.arange(x.shape[at]).view([-1] + [1] * (entries.dim() - 1))
    found = torch.where(entries == places, (source * sign).movedim(at, 0).unsqueeze(0), -math.inf)
    if include_self:
        found = torch.cat([found, (x * sign).movedim(at, 0).unsqueeze(1)], 1)
        return (found.amax(1) * sign).movedim(0, at)
    named = (entries == places).any(1).movedim(0, at)
    return torch.where(named, (found.amax(1) * sign).movedim(0, at), x)


def _named(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """bool like x: positions that an entry names."""
    return torch.zeros_like(x).scatter_add(dim, index, torch.ones(index.shape)) > 0


@rewrites(torch.scatter_reduce, Tensor.scatter_reduce)
def scatter_reduce(
    input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Any:
    return _reduced(input, dim, index, src, reduce, include_self)


@rewrites(Tensor.scatter_reduce_)
def scatter_reduce_(
    self: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Any:
    made = _reduced(self, dim, index, src, reduce, include_self)
    return made if made is NotImplemented else self.copy_(made)
