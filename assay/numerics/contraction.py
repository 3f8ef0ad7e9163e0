"""Contractions: sums, products and scatter-sums as exact integer sums with one rounding
(docs/arithmetic.md, A30-A36).

Contract: the reduced dimension is the last one, 1 to 4096 long. The result has the same bits for every
order, thread count, batch split, device and backend, because nothing is rounded between quantisation and
the one final rounding. Total on every bit pattern. Not guaranteed: agreement when the caller's process
flushes f32 subnormals to zero.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from assay.numerics import constants as c
from assay.numerics.backends import IntegerProduct, combined, int8_products, integer_product_f64, prefers_int8
from assay.numerics.blocks import block_rows, by_row

_NAN = float("nan")
AddedAt = Callable[[Tensor, Tensor, int], Tensor]
"""(slot i64[N] or [D, N], x f64[D, N], width) -> f64[D, width]."""


def power_of_two(n: Tensor) -> Tensor:
    """2^n as f64 for an integer tensor n, -1022 <= n <= 1023."""
    return ((n.to(torch.int64) + 1023) << 52).view(torch.float64)


def _power_of_two_f32(n: Tensor) -> Tensor:
    return ((n + 127) << 23).view(torch.float32)


def field_exponent(magnitude: Tensor) -> Tensor:
    """e of A30 as i32, from a row's largest magnitude (f32, sign clear; NaN where the row holds one)."""
    field = (magnitude.view(torch.int32) >> 23) & 255
    return torch.where(field == 255, c.EXPONENT_POISONED, field.clamp(min=1) - 126)


def _clamped(e: Tensor) -> Tensor:
    return e.to(torch.int32).clamp(c.EXPONENT_MIN, c.EXPONENT_POISONED)


def sum_shift(length: int) -> int:
    """k of A33: the bits above the binary point that leave room for `length` addends."""
    if not 1 <= length <= c.MAX_FAN_IN:
        raise ValueError(f"reduced length {length} is outside 1..{c.MAX_FAN_IN}; lower the program in chunks")
    return c.SUM_BITS - (length - 1).bit_length()


def positive_zero(x: Tensor) -> Tensor:
    """x with -0 replaced by +0."""
    return torch.where(x == 0, 0.0, x)


def exponent(x: Tensor) -> Tensor:
    """Shared exponent of each row, f32[..., K] -> i16[...] (A30); 129 where the row holds Inf or NaN."""
    return field_exponent(torch.maximum(x.amax(-1).abs(), x.amin(-1).abs())).to(torch.int16)


def quantise(x: Tensor, e: Tensor) -> Tensor:
    """RNE(x * 2^(13-e)) in [-8192, 8192], (f32[..., K], i16[...]) -> i16[..., K] (A31).

    The power is applied as two f32 factors: scaling up is exact; results that scaling down rounds early end
    as 0.
    """
    e = _clamped(e)
    shift = c.QUANTISED_BITS - e
    first = shift >> 1
    second = shift - first
    last = torch.where(e == c.EXPONENT_POISONED, 0.0, _power_of_two_f32(second))
    scaled = (x * _power_of_two_f32(first).unsqueeze(-1)).mul_(last.unsqueeze(-1)).round_()
    bound = float(c.QUANTISED_MAX)
    return scaled.nan_to_num_(nan=0.0, posinf=bound, neginf=-bound).clamp_(-bound, bound).to(torch.int16)


def product(
    qa: Tensor,
    ea: Tensor,
    qb: Tensor,
    eb: Tensor,
    *,
    integer_product: IntegerProduct = integer_product_f64,
) -> Tensor:
    """(i16[b..., M, K], i16[b..., M], i16[b..., N, K], i16[b..., N]) -> f32[b..., M, N], qa qb^T scaled.

    A32. Sums in binary64, exact for every i16 operand; the other backends are in numerics.backends.
    """
    return scale_product(integer_product(qa, qb), ea, eb)


def product_of_quantised(qa: Tensor, ea: Tensor, qb: Tensor, eb: Tensor) -> Tensor:
    """`product`, on the fastest backend for the shape; needs |q| <= 8192, as every output of quantise has.

    int8 products are combined a few rows at a time, so that intermediates stay in cache.
    """
    if not prefers_int8(qa):
        return product(qa, ea, qb, eb)
    parts = int8_products(qa, qb)
    left, right = _row_factor(ea).unsqueeze(-1), _row_factor(eb)
    out = torch.empty(parts[0].shape, dtype=torch.float32, device=qa.device)
    blocks = zip(*(x.split(block_rows(out)) for x in (out, left, *parts)), strict=True)
    for place, factor, high, low, both in blocks:
        place.copy_(combined(high, low, both, length=qa.shape[1]).mul_(factor).mul_(right))
    return out


def scale_product(total: Tensor, ea: Tensor, eb: Tensor) -> Tensor:
    """RN32(S * 2^(ea+eb-26)) for f64 integers S[b..., M, N]; NaN where an exponent is poisoned."""
    scaled = positive_zero(total).mul_(_row_factor(ea).unsqueeze(-1)).mul_(_row_factor(eb).unsqueeze(-2))
    return scaled.to(torch.float32)


def _row_factor(e: Tensor) -> Tensor:
    e = _clamped(e)
    return torch.where(e == c.EXPONENT_POISONED, _NAN, power_of_two(e - c.QUANTISED_BITS))


def sum(x: Tensor) -> Tensor:  # the instruction's name, kept
    """Order-free sum of each row, f32[..., n] -> f32[...] (A33)."""
    shift = sum_shift(x.shape[-1])
    low, high = x.amin(-1), x.amax(-1)
    e = field_exponent(torch.maximum(high.abs(), low.abs()))
    scaled = by_row(_scaled_sums, x, power_of_two(shift - e))
    total = positive_zero(scaled) * power_of_two(e - shift)
    return torch.where(e == c.EXPONENT_POISONED, high + low, total.to(torch.float32))


def _scaled_sums(x: Tensor, scale: Tensor) -> Tensor:
    return (x * scale.unsqueeze(-1)).round_().sum(-1)


def added_at(slot: Tensor, x: Tensor, width: int) -> Tensor:
    """f64[D, width] with the sum of x[d, i] over slot[i] = v, or slot[d, i] = v, at [d, v]; exact for
    integers below 2^53.
    """
    zeros = x.new_zeros(x.shape[0], width)
    return zeros.index_add_(1, slot, x) if slot.dim() == 1 else zeros.scatter_add_(1, slot, x)


def rows_added_at(slot: Tensor, x: Tensor, width: int) -> Tensor:
    """f64[width, D] with the sum of the rows x[i] over slot[i] = v at [v]; exact for integers below 2^53."""
    return x.new_zeros(width, x.shape[1]).index_add_(0, slot, x)


def first_places(slot: Tensor, width: int) -> Tensor:
    """i64[width] with the least i of slot[i] = v at [v], and the length of `slot` where there is none."""
    places = torch.arange(len(slot), device=slot.device)
    return slot.new_full((width,), len(slot)).scatter_reduce_(0, slot, places, "amin")


def scatter_sum(x: Tensor, idx: Tensor, *, V: int, add: AddedAt = added_at) -> Tensor:
    """out[d, v] = order-free sum of x[d, i] over idx[i] = v, (f32[D, N], i32[N]) -> f32[D, V] (A34).

    With idx i32[D, N] a row goes by its own indices: over idx[d, i] = v.

    Indices outside [0, V) take part in no sum; a row with Inf or NaN gives NaN throughout.
    """
    shift = sum_shift(x.shape[-1])
    e = field_exponent(x.abs().amax(-1))
    poisoned = (e == c.EXPONENT_POISONED).unsqueeze(-1)
    scaled = (x * power_of_two(shift - e).unsqueeze(-1)).round_()
    inside = (idx >= 0) & (idx < V)
    slot = torch.where(inside, idx, V).to(torch.int64)
    total = positive_zero(add(slot, scaled, V + 1)[:, :V]) * power_of_two(e - shift).unsqueeze(-1)
    return torch.where(poisoned, _NAN, total.to(torch.float32))


def amax(x: Tensor) -> Tensor:
    """Largest element of each row, f32[..., n] -> f32[...]; NaN if any, and a zero result is +0 (A35)."""
    return positive_zero(x.amax(-1))


def argmax(x: Tensor) -> Tensor:
    """Index of the first largest element, f32[..., n] -> i32[...]; NaN counts as largest (A36)."""
    return torch.argmax(x, dim=-1).to(torch.int32)
