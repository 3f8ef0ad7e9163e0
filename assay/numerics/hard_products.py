"""Hard operands with which product kernels are compared before use.

Contract: `hard_pairs` yields operands of all kinds (Inf, NaN, subnormals, cancelling sums, equal rows, the
largest integers, subnormal results, results near overflow), with exponents of their own rows and of others.
`same` compares results to the last bit, all NaNs being equal. Not guaranteed: that a wrong kernel is
detected.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from assay.numerics import contraction


def hard_pairs(rows: int, others: int, length: int) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """(x, ex, y, ey): f32[b..., rows, length] and f32[b..., others, length] in any memory layout, and i32
    exponents of their rows."""
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
    """True if two f32 tensors have the same bits, except in NaNs."""
    one, other = (torch.where(x.isnan(), float("nan"), x).view(torch.int32) for x in (a, b))
    return torch.equal(one, other)


def _seen(line: Tensor, shape: tuple[int, ...]) -> list[Tensor]:
    """Matrices of these numbers: in rows, in columns, and with equal rows."""
    *batch, rows, length = shape
    own = line[: torch.Size(shape).numel()]
    turned = own.view(*batch, length, rows).transpose(-1, -2)
    return [own.view(shape), turned, own[:length].expand(shape)]


def _exponents(x: Tensor) -> Tensor:
    """i32: exponents of the rows, with every third replaced by an unrelated one."""
    e = contraction.exponent(x).to(torch.int32)
    return torch.where(torch.arange(e.numel()).view(e.shape) % 3 == 1, e % 11, e)
