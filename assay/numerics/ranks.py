"""Contractions of a dimension of which each of several ranks holds a part.

Contract: each function has the bits of its namesake in `numerics.contraction` on the whole dimension, on
every rank: exponents are maxima of the ranks' own, what is added up are integers below 2^53, exact in any
order, and the one rounding comes after (A50 of docs/arithmetic.md). Every rank must call the same functions
in the same order. Not guaranteed: an answer, if a rank does not call; `Exchange` says what then is raised.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from assay.numerics import constants as c
from assay.numerics import contraction, product_kernel
from assay.numerics.backends import integer_product_f64

_NAN_KEY = torch.iinfo(torch.int32).max


class Exchange(Protocol):
    """What ranks tell each other. Each call raises `protocol.errors.Retry` where a rank is gone."""

    def largest(self, x: Tensor) -> Tensor:
        """Element-wise maximum over all ranks, i32."""
        ...

    def total(self, x: Tensor) -> Tensor:
        """Element-wise sum over all ranks, f64 integers below 2^53; x is overwritten."""
        ...

    def total_of_mine(self, x: Tensor, sizes: list[int]) -> Tensor:
        """This rank's rows of `total`, where the ranks' parts of x, along the first dimension, are of these
        sizes."""
        ...

    def mine(self, size: int) -> tuple[int, list[int]]:
        """Where this rank's part of so many rows begins, and how many rows each rank has."""
        ...

    def joined(self, x: Tensor, dim: int, sizes: list[int]) -> Tensor:
        """All ranks' tensors one after another along `dim`, where theirs are of these sizes."""
        ...


def exponent(exchange: Exchange, x: Tensor) -> Tensor:
    """f32[..., part of K] -> i16[...] (A30): poisoned is the largest exponent there is."""
    return exchange.largest(contraction.exponent(x).to(torch.int32)).to(torch.int16)


def amax(exchange: Exchange, x: Tensor) -> Tensor:
    """f32[..., part of n] -> f32[...] (A35)."""
    most = contraction.amax(x)
    bits = most.view(torch.int32)
    key = torch.where(bits < 0, bits ^ _NAN_KEY, bits)  # in the order of the numbers
    key = exchange.largest(torch.where(most.isnan(), _NAN_KEY, key))
    found = torch.where(key < 0, key ^ _NAN_KEY, key).view(torch.float32)
    return torch.where(key == _NAN_KEY, float("nan"), found)


def sum(exchange: Exchange, x: Tensor, length: int) -> Tensor:  # the instruction's name, kept
    """f32[..., part of n] -> f32[...] (A33); `length` is n."""
    shift = contraction.sum_shift(length)
    low, high = x.amin(-1), x.amax(-1)
    e = contraction.field_exponent(torch.maximum(high.abs(), low.abs()))
    strange = [high.isnan(), high == torch.inf, low == -torch.inf]
    e, nan, up, down = exchange.largest(torch.stack([e, *(flag.to(torch.int32) for flag in strange)]))
    poisoned = e == c.EXPONENT_POISONED
    scaled = (x * contraction.power_of_two(shift - e).unsqueeze(-1)).round_().sum(-1)
    added = exchange.total(torch.where(poisoned, 0.0, scaled).contiguous())
    total = contraction.positive_zero(added) * contraction.power_of_two(e - shift)
    infinite = torch.where(up > down, torch.inf, torch.where(down > up, -torch.inf, float("nan")))
    special = torch.where(nan > 0, float("nan"), infinite)
    return torch.where(poisoned, special, total.to(torch.float32))


def product(exchange: Exchange, qa: Tensor, ea: Tensor, qb: Tensor, eb: Tensor) -> Tensor:
    """(i16[b..., M, part of K], i16[b..., M], the same of N) -> f32[b..., M, N] (A32), |q| <= 8192.

    Of a matrix each rank adds up and rounds some rows, and gets the others rounded, which is less to send.
    """
    kernel = product_kernel.load() if qa.device.type == "cpu" else None
    sums = integer_product_f64(qa, qb) if kernel is None else kernel.sums(qa, qb)
    start, sizes = exchange.mine(len(ea))
    if sums.dim() > 2 or min(sizes) == 0:
        return contraction.scale_product(exchange.total(sums), ea, eb)
    rows = exchange.total_of_mine(sums, sizes)
    made = contraction.scale_product(rows, ea[start : start + len(rows)], eb)
    return exchange.joined(made, 0, sizes)


def scatter_sum(exchange: Exchange, x: Tensor, idx: Tensor, *, V: int, length: int) -> Tensor:
    """(f32[D, part of N], i32[part of N]) -> f32[D, V] (A34); `length` is N."""
    shift = contraction.sum_shift(length)
    e = exchange.largest(contraction.field_exponent(x.abs().amax(-1)))
    poisoned = (e == c.EXPONENT_POISONED).unsqueeze(-1)
    sums = contraction.scattered(x, idx, contraction.power_of_two(shift - e), V)
    total = contraction.positive_zero(exchange.total(torch.where(poisoned, 0.0, sums)))
    scaled = total * contraction.power_of_two(e - shift).unsqueeze(-1)
    return torch.where(poisoned, float("nan"), scaled.to(torch.float32))
