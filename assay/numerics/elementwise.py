"""Exact element-wise operations that PyTorch lacks (docs/arithmetic.md, A11-A19, A29).

Contract: inputs broadcast like numpy; dtypes are f32, i32, u8 and bool as A10-A19 list them; total on every
bit pattern. Not guaranteed: the sign and payload of a NaN (A3), and subnormals if the caller's process
flushes them to zero. The program's validation checks types, not these functions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from assay.numerics.blocks import by_element

I32_MIN = -(2**31)
I32_MAX = 2**31 - 1


def sqrt(x: Tensor) -> Tensor:
    """Correctly rounded square root (A11), through binary64: eager f32 torch.sqrt is not."""
    return by_element(lambda part: part.to(torch.float64).sqrt_().to(torch.float32), x)


def maximum(a: Tensor, b: Tensor) -> Tensor:
    """a where a > b or a is NaN, else b (A14): the second operand of equal zeros."""
    return torch.where((a > b) | (a != a), a, b)


def minimum(a: Tensor, b: Tensor) -> Tensor:
    """a where a < b or a is NaN, else b (A14): the second operand of equal zeros."""
    return torch.where((a < b) | (a != a), a, b)


def iadd(a: Tensor, b: Tensor) -> Tensor:
    """i32 sum modulo 2^32 (A18)."""
    return (a.to(torch.int64) + b.to(torch.int64)).to(torch.int32)


def isub(a: Tensor, b: Tensor) -> Tensor:
    """i32 difference modulo 2^32 (A18)."""
    return (a.to(torch.int64) - b.to(torch.int64)).to(torch.int32)


def imul(a: Tensor, b: Tensor) -> Tensor:
    """i32 product modulo 2^32 (A18)."""
    return (a.to(torch.int64) * b.to(torch.int64)).to(torch.int32)


def convert(x: Tensor, *, dtype: torch.dtype) -> Tensor:
    """Conversion between the pairs of dtypes that A19 lists.

    Raises TypeError for another pair: validation should have refused the program.
    """
    pair = (x.dtype, dtype)
    if pair == (torch.float32, torch.int32):
        whole = torch.trunc(x).to(torch.float64).clamp(I32_MIN, I32_MAX)
        return torch.where(torch.isnan(x), 0.0, whole).to(torch.int32)
    if pair == (torch.int32, torch.uint8):
        return (x & 255).to(torch.uint8)
    if pair in ((torch.int32, torch.bool), (torch.float32, torch.bool)):
        return x != 0
    if pair in _WIDENING:
        return x.to(dtype)
    raise TypeError(f"no conversion from {x.dtype} to {dtype} is defined; go through i32")


def bits(x: Tensor, *, dtype: torch.dtype) -> Tensor:
    """Bits of an f32 as i32, all NaNs as one; an f32 from the bits of an i32 (A29)."""
    same = x.contiguous().view(dtype)
    return torch.where(torch.isnan(x), NAN_BITS, same) if dtype is torch.int32 else same


NAN_BITS = 0x7FC00000
"""The one NaN of A3."""

_WIDENING = (
    (torch.int32, torch.float32),
    (torch.uint8, torch.int32),
    (torch.uint8, torch.float32),
    (torch.bool, torch.int32),
    (torch.bool, torch.float32),
)
