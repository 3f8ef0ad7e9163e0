"""The product (docs/arithmetic.md, A32) as one Triton kernel: int8 products, their sum and its rounding.

Contract: out[b, m, n] = RN32(S * 2^(ea + eb - 26)) with S = 2^14 * HH + 2^7 * (HL + LH) + LL of the parts of
A51, whose sums stay in registers; NaN where an exponent is poisoned. K is 4096 at most. Every operation is on
integers that their type holds, or on f32 numbers that hold their exact results, until the one rounding:
contracting a multiplication and an addition changes nothing, and nothing is binary64. Only
``numerics.product_triton`` and ``gluon_kernel.py`` load this file, since it needs Triton. Not guaranteed:
anything for parts that A51 does not make.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.errors import TritonError

FAULTS = (RuntimeError, TritonError)
"""What compiling and launching raise."""
SHORT_K = 2040
"""Largest K for which i32 holds 2^7 * cross + low + 2^13: K * (2^20 + 2^12) + 2^13."""


@triton.jit
def bounded(e):
    """An exponent, or 129 where it is poisoned; no row of numbers has less than -125."""
    return tl.minimum(tl.maximum(e, -125), 129)


@triton.jit
def ordinary(ea, eb):
    """Whether one factor a row and one a column give each result: none of them is subnormal (S = 1 gives
    2^-126 or more) or poisoned, and the first multiplication does not overflow."""
    least_a, least_b = tl.min(ea, 0), tl.min(tl.where(eb == 129, -125, eb), 0)
    return (least_a >= -110) & (least_b >= -110) & (least_a + least_b >= -100) & (tl.max(ea, 0) <= 60)


@triton.jit
def rounded(high, cross, low, ea, eb, tame, SHORT: tl.constexpr):
    """RN32((2^14 * high + 2^7 * cross + low) * 2^(ea + eb - 26)), NaN where an exponent is poisoned: sums i32
    [M, N] of K products each, exponents i32 [M] and [N] of which `tame` says whether they are ordinary."""
    # S = 2^UNIT * above + lower, both exact in f32 and 0 where S is.
    UNIT: tl.constexpr = 14 if SHORT else 19
    if SHORT:
        # |above| is below 2^24, and |lower| at most 2^13.
        mixed = (cross << 7) + (low + 8192)
        above = high + (mixed >> 14)
        lower = (mixed & 16383) - 8192
    else:
        # Each line moves a multiple from one term to the other. |above| is below 2^20 and |lower| at most
        # 2^18 + 2^13.
        upper = high + (cross >> 7)
        lower = ((cross & 127) << 7) + low
        carried = (lower + 8192) >> 14
        lower -= carried << 14
        upper += carried
        above = (upper + 16) >> 5
        lower += (upper - (above << 5)) << 14

    if tame:
        # The sum is rounded once. It is +0 where S is 0.
        total = above.to(tl.float32) * (1 << UNIT) + lower.to(tl.float32)
        fa = ((ea + 114) << 23).to(tl.float32, bitcast=True)
        fb = ((eb + 114) << 23).to(tl.float32, bitcast=True)
        value = total * fa[:, None] * fb[None, :]
    else:
        # Two factors of one sign: the first multiplication overflows only where the result does. Below
        # 2^-190 every S gives less than half of the least number.
        poisoned = (ea == 129)[:, None] | (eb == 129)[None, :]
        e = tl.where(ea == 129, 0, ea)[:, None] + tl.where(eb == 129, 0, eb)[None, :] - 26
        near = tl.maximum(e, -190)
        half = near >> 1
        first = ((half + 127) << 23).to(tl.float32, bitcast=True)
        second = ((near - half + 127) << 23).to(tl.float32, bitcast=True)
        exact = (above.to(tl.int64) << UNIT) + lower
        value = exact.to(tl.float32) * first * second
        # A small result is a multiple of 2^-149, which is exact for e >= -149. Otherwise it is the integer
        # nearest to S * 2^(e + 149), the even one of two, and that integer is its pattern.
        size = tl.abs(exact)
        shift = tl.minimum(tl.maximum(-149 - e, 0), 41).to(tl.int64)
        nearest = (size + (((1 << shift) >> 1) - 1 + ((size >> shift) & 1))) >> shift
        sign = (exact < 0).to(tl.int32) << 31
        small = (nearest.to(tl.int32) | sign).to(tl.float32, bitcast=True)
        value = tl.where((e < -149) & (tl.abs(value) <= 1.1754943508222875e-38), small, value)
        value = tl.where(poisoned, float("nan"), value)
    return value


@triton.jit(do_not_specialize=["M"])
def product(
    a_high,
    a_low,
    b_high,
    b_low,
    a_exponents,
    b_exponents,
    out,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    SHORT: tl.constexpr,
):
    """One tile: parts int8 [B, M, K] and [B, N, K], exponents i32 [B, M] and [B, N], out f32 [B, M, N], all
    contiguous. SHORT only for K <= SHORT_K. The grid is (tiles of a matrix, B)."""
    # Tiles that run at the same time share rows of both operands: GROUP rows of tiles, column by column.
    tile = tl.program_id(0)
    batch = tl.program_id(1).to(tl.int64)
    tiles_m = (M + BLOCK_M - 1) // BLOCK_M
    tiles_n = (N + BLOCK_N - 1) // BLOCK_N
    first = tile // (GROUP * tiles_n) * GROUP
    height = tl.minimum(tiles_m - first, GROUP)
    within = tile % (GROUP * tiles_n)
    m = (first + within % height) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = within // height * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)

    # Rows beyond the last are the last again, and not stored. Within a matrix, places fit i32.
    a = tl.minimum(m, M - 1)[:, None] * K + k[None, :]
    b = tl.minimum(n, N - 1)[:, None] * K + k[None, :]
    before_a, before_b = batch * M * K, batch * N * K
    high = tl.zeros((BLOCK_M, BLOCK_N), tl.int32)
    cross = tl.zeros((BLOCK_M, BLOCK_N), tl.int32)
    low = tl.zeros((BLOCK_M, BLOCK_N), tl.int32)
    for start in range(0, K, BLOCK_K):
        inside = (k < K - start)[None, :]
        ah = tl.load(a_high + before_a + a, inside, other=0)
        bh = tl.trans(tl.load(b_high + before_b + b, inside, other=0))
        al = tl.load(a_low + before_a + a, inside, other=0)
        bl = tl.trans(tl.load(b_low + before_b + b, inside, other=0))
        high = tl.dot(ah, bh, high, out_dtype=tl.int32)
        cross = tl.dot(ah, bl, cross, out_dtype=tl.int32)
        cross = tl.dot(al, bh, cross, out_dtype=tl.int32)
        low = tl.dot(al, bl, low, out_dtype=tl.int32)
        a += BLOCK_K
        b += BLOCK_K

    ea = bounded(tl.load(a_exponents + batch * M + m, m < M, other=0))
    eb = bounded(tl.load(b_exponents + batch * N + n, n < N, other=0))
    value = rounded(high, cross, low, ea, eb, ordinary(ea, eb), SHORT)
    tl.store(out + batch * M * N + (m[:, None] * N + n[None, :]), value, (m < M)[:, None] & (n < N)[None, :])
