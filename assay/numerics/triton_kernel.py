"""The product (docs/arithmetic.md, A32) as one Triton kernel: int8 products, their sum and its rounding.

Contract: out[b, m, n] = RN32(S * 2^(ea + eb - 26)) with S from the three int8 products of A51, which stay in
registers; NaN where an exponent is poisoned. `EXACT_F32` asserts K <= 4032. Every operation is on integers
below 2^32 modulo 2^32, or on floating-point numbers that hold their exact results, until the one rounding:
contracting a multiplication and an addition changes nothing. Only ``numerics.product_triton`` loads this
file, since it needs Triton. Not guaranteed: anything for parts that A51 does not make.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.errors import TritonError

FAULTS = (RuntimeError, TritonError)
"""What compiling and launching raise."""


@triton.jit(do_not_specialize=["M"])
def product(
    a_high,
    a_low,
    a_both,
    b_high,
    b_low,
    b_both,
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
    EXACT_F32: tl.constexpr,
):
    """One tile: parts int8 [B, M, K] and [B, N, K], exponents i32 [B, M] and [B, N], out f32 [B, M, N], all
    contiguous. The grid is (tiles of a matrix, B)."""
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
    low = tl.zeros((BLOCK_M, BLOCK_N), tl.int32)
    both = tl.zeros((BLOCK_M, BLOCK_N), tl.int32)
    for start in range(0, K, BLOCK_K):
        inside = (k < K - start)[None, :]
        left = tl.load(a_high + before_a + a, inside, other=0)
        right = tl.load(b_high + before_b + b, inside, other=0)
        high = tl.dot(left, tl.trans(right), high)
        left = tl.load(a_low + before_a + a, inside, other=0)
        right = tl.load(b_low + before_b + b, inside, other=0)
        low = tl.dot(left, tl.trans(right), low)
        left = tl.load(a_both + before_a + a, inside, other=0)
        right = tl.load(b_both + before_b + b, inside, other=0)
        both = tl.dot(left, tl.trans(right), both)
        a += BLOCK_K
        b += BLOCK_K

    ea = tl.load(a_exponents + batch * M + m, m < M, other=0)
    eb = tl.load(b_exponents + batch * N + n, n < N, other=0)
    ea = tl.minimum(tl.maximum(ea, -125), 129)
    eb = tl.minimum(tl.maximum(eb, -125), 129)
    poisoned = (ea == 129)[:, None] | (eb == 129)[None, :]
    ea = tl.where(ea == 129, 0, ea)
    eb = tl.where(eb == 129, 0, eb)

    # f32 does where both factors are normal, no result is subnormal (S = 1 gives 2^-126 or more) and the
    # first multiplication does not overflow.
    # S = 2^19 * upper + lower, both exact, so that their sum is rounded once; S is +0 where it is 0.
    least_a, least_b = tl.min(ea, 0), tl.min(eb, 0)
    tame = (least_a >= -110) & (least_b >= -110) & (least_a + least_b >= -100)
    tame = tame & (tl.max(ea, 0) <= 60)
    if EXACT_F32 and tame:
        middle = both + 127 * high - low
        upper = (middle + 2048) >> 12
        lower = ((middle - (upper << 12)) << 7) + low
        total = upper.to(tl.float32) * 524288.0 + lower.to(tl.float32)
        fa = ((ea + 114) << 23).to(tl.float32, bitcast=True)
        fb = ((eb + 114) << 23).to(tl.float32, bitcast=True)
        value = total * fa[:, None] * fb[None, :]
    else:
        cross = (both - high - low).to(tl.float64) * 128.0
        wide = high.to(tl.float64) * 16384.0 + cross + low.to(tl.float64)
        wide_a = ((ea.to(tl.int64) + 1010) << 52).to(tl.float64, bitcast=True)
        wide_b = ((eb.to(tl.int64) + 1010) << 52).to(tl.float64, bitcast=True)
        value = (wide * wide_a[:, None] * wide_b[None, :]).to(tl.float32)
    value = tl.where(poisoned, float("nan"), value)
    tl.store(out + batch * M * N + (m[:, None] * N + n[None, :]), value, (m < M)[:, None] & (n < N)[None, :])
