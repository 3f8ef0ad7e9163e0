"""What a kernel for products is compared on before anybody gets it.

Contract: `hard_pairs` gives operands of all kinds of numbers (Inf, NaN, subnormals, sums whose parts cancel,
rows all alike, the largest integers, results that are subnormal, results whose factors almost overflow), with
exponents of their own rows and of others. `same` compares results to the last bit, one NaN with another. Not
guaranteed: that a wrong kernel is found out by them.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from assay.numerics import contraction


def hard_pairs(rows: int, others: int, length: int) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """(x, ex, y, ey): f32[b..., rows, length] and f32[b..., others, length], which lie in any order, and
    i32 exponents of their rows."""
    count = 2 * max(rows, others) * length
    any_bits = (torch.arange(count, dtype=torch.int64) * 0x9E3779B1).to(torch.int32).view(torch.float32)
    wave = (torch.arange(count) * 7919 % 16385 - 8192).to(torch.float32) / 2
    ones, large, small, tiny = torch.ones(count), wave * 2.0**100, wave * 2.0**-80, wave * 2.0**-140
    pairs = (any_bits, any_bits), (wave, wave), (ones, ones), (small, small), (large, small), (wave, tiny)
    for pair in pairs:
        for batch in ((), (2,)):
            lines = zip(pair, (rows, others), strict=True)
            a, b = (_seen(line, (*batch, n, length)) for line, n in lines)
            for x, y in ((a[0], b[0]), (a[1], b[1]), (a[0], b[2])):
                yield x, _exponents(x), y, _exponents(y)


def wanted(x: Tensor, ex: Tensor, y: Tensor, ey: Tensor) -> Tensor:
    """The definition's product of both, quantised (A31, A32)."""
    return contraction.product(contraction.quantise(x, ex), ex, contraction.quantise(y, ey), ey)


def same(a: Tensor, b: Tensor) -> bool:
    """Whether two f32 tensors have the same bits, but for those of NaNs."""
    one, other = (torch.where(x.isnan(), float("nan"), x).view(torch.int32) for x in (a, b))
    return torch.equal(one, other)


def _seen(line: Tensor, shape: tuple[int, ...]) -> list[Tensor]:
    """Matrices of these numbers: in rows, in columns, and every row alike."""
    *batch, rows, length = shape
    own = line[: torch.Size(shape).numel()]
    turned = own.view(*batch, length, rows).transpose(-1, -2)
    return [own.view(shape), turned, own[:length].expand(shape)]


def _exponents(x: Tensor) -> Tensor:
    """i32: those of the rows, but every third one of somebody else's."""
    e = contraction.exponent(x).to(torch.int32)
    return torch.where(torch.arange(e.numel()).view(e.shape) % 3 == 1, e % 11, e)
