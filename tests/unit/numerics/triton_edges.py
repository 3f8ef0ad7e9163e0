"""The end of the products' kernel alone, on sums that a caller chooses. Needs Triton."""

from __future__ import annotations

from types import ModuleType

import torch
import triton
import triton.language as tl
from torch import Tensor


def rounded(high, cross, low, ea, eb, tame, SHORT):
    """Replaced by `run` with the kernel's."""


def ordinary(ea, eb):
    """Likewise."""


@triton.jit
def edges(
    high,
    cross,
    low,
    a_exponents,
    b_exponents,
    out,
    M: tl.constexpr,
    N: tl.constexpr,
    SHORT: tl.constexpr,
):
    m, n = tl.arange(0, M), tl.arange(0, N)
    at = m[:, None] * N + n[None, :]
    sums = tl.load(high + at), tl.load(cross + at), tl.load(low + at)
    ea, eb = tl.load(a_exponents + m), tl.load(b_exponents + n)
    value = rounded(sums[0], sums[1], sums[2], ea, eb, ordinary(ea, eb), SHORT)
    tl.store(out + at, value)


def run(
    module: ModuleType, sums: tuple[Tensor, Tensor, Tensor], ea: Tensor, eb: Tensor, short: bool
) -> Tensor:
    """f32 [M, N] of i32 sums [M, N] and exponents, by the short end or the other."""
    globals().update(rounded=module.rounded, ordinary=module.ordinary)
    out = torch.empty(sums[0].shape, dtype=torch.float32)
    given = (*(x.contiguous() for x in sums), ea, eb, out)
    edges[(1,)](*given, M=len(ea), N=len(eb), SHORT=short)
    return out
