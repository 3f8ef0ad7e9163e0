"""Operands of products (docs/arithmetic.md, A30, A31, A51), by rows and by columns in one reading, in Triton.

Contract: `maxima` leaves the largest pattern of a magnitude of each row and column, and `parts` the exponents
and parts that follow from it: exactly those of A30, A31 and A51, +0 where a row is poisoned. Maxima are of
integers, so their order does not matter. Only ``numerics.operand_triton`` loads this file, since it needs
Triton. Not guaranteed: anything for maxima of other tensors.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.errors import TritonError

FAULTS = (RuntimeError, TritonError)
"""What compiling and launching raise."""


@triton.jit
def tile_of(R, C, HEIGHT, WIDTH):
    """Rows and columns of this program's tile; the grid is (tiles of a matrix, matrices)."""
    across = (C + WIDTH - 1) // WIDTH
    r = tl.program_id(0) // across * HEIGHT + tl.arange(0, HEIGHT)
    c = tl.program_id(0) % across * WIDTH + tl.arange(0, WIDTH)
    return r, c


@triton.jit
def numbers(x, totals, factors, places, shares, r, c, R, C, left, matrices, outer, inner, line, LOSS):
    """The tile's numbers, and +0 outside of the matrix: f32 [HEIGHT, WIDTH]. Of a loss they are its gradient
    (`operand_triton.loss_gradient`), in columns from `left` on."""
    matrix = tl.program_id(1)
    start = (matrix // matrices).to(tl.int64) * outer + (matrix % matrices).to(tl.int64) * inner
    inside = (r < R)[:, None] & (c < C)[None, :]
    value = tl.load(x + start + (r[:, None] * line + c[None, :]), inside, other=0.0)
    if LOSS:
        total = tl.load(totals + r, r < R, other=1.0)[:, None]
        factor = tl.load(factors + r, r < R, other=0.0)[:, None]
        share = tl.load(shares + r, r < R, other=0.0)[:, None]
        hit = tl.load(places + r, r < R, other=0)[:, None] == (c + left)[None, :]
        value = tl.where(hit, share, 0.0) - tl.div_rn(value, total) * factor
        value = tl.where(inside, value, 0.0)
    return value


@triton.jit(do_not_specialize=["R", "left", "matrices"])
def maxima(
    x,
    totals,
    factors,
    places,
    shares,
    row_maxima,
    column_maxima,
    R,
    C,
    left,
    matrices,
    outer,
    inner,
    line,
    LOSS: tl.constexpr,
    BY_ROWS: tl.constexpr,
    BY_COLUMNS: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Raises i32 [B, R] and [B, C] to the patterns of the largest magnitudes; NaN's are above Inf's."""
    r, c = tile_of(R, C, HEIGHT, WIDTH)
    value = numbers(x, totals, factors, places, shares, r, c, R, C, left, matrices, outer, inner, line, LOSS)
    size = value.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    matrix = tl.program_id(1)
    if BY_ROWS:
        tl.atomic_max(row_maxima + matrix * R + r, tl.max(size, 1), r < R, sem="relaxed")
    if BY_COLUMNS:
        tl.atomic_max(column_maxima + matrix * C + c, tl.max(size, 0), c < C, sem="relaxed")


@triton.jit
def exponents(largest):
    """e of A30 from a row's largest pattern: 129 for Inf and NaN."""
    return tl.maximum(largest >> 23, 1) - 126


@triton.jit
def quantised(x, e):
    """RNE(x * 2^(13-e)) as i32 for |x| < 2^e, and 0 where e is 129."""
    shift = 13 - e
    first = shift >> 1
    one = ((first + 127) << 23).to(tl.float32, bitcast=True)
    other = ((shift - first + 127) << 23).to(tl.float32, bitcast=True)
    # Adding 1.5 * 2^23 rounds to an integer, which the low bits then hold.
    q = (x * one * other + 12582912.0).to(tl.int32, bitcast=True) - 0x4B400000
    return tl.where(e == 129, 0, q)


@triton.jit
def split(q):
    """Both parts of A51: q = 128 * high + low."""
    high = (q + 64) >> 7
    return high.to(tl.int8), (q - high * 128).to(tl.int8)


@triton.jit
def stored_by_columns(value, maxima, shared, high, low, r, c, matrix, R, C):
    """Stores exponents i32 [B, C] and parts int8 [B, C, R'] of the columns of a tile, from their maxima."""
    e = exponents(tl.load(maxima + matrix * C + c, c < C, other=0))
    q_high, q_low = split(quantised(value, e[None, :]))
    tall = (R + 15) // 16 * 16
    at = matrix.to(tl.int64) * C * tall + (c[:, None] * tall + r[None, :])
    inside = (c < C)[:, None] & (r < tall)[None, :]
    tl.store(high + at, tl.trans(q_high), inside)
    tl.store(low + at, tl.trans(q_low), inside)
    if tl.min(r, 0) == 0:
        tl.store(shared + matrix * C + c, e, c < C)


@triton.jit(do_not_specialize=["R", "left", "matrices"])
def parts(
    x,
    totals,
    factors,
    places,
    shares,
    row_maxima,
    row_exponents,
    row_high,
    row_low,
    column_maxima,
    column_exponents,
    column_high,
    column_low,
    R,
    C,
    left,
    matrices,
    outer,
    inner,
    line,
    LOSS: tl.constexpr,
    BY_ROWS: tl.constexpr,
    BY_COLUMNS: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Exponents i32 [B, R] and parts int8 [B, R, C'], and turned, [B, C] and [B, C, R'], of f32 [B, R, C]; C'
    and R' are C and R rounded up to a multiple of 16, with zeros."""
    r, c = tile_of(R, C, HEIGHT, WIDTH)
    value = numbers(x, totals, factors, places, shares, r, c, R, C, left, matrices, outer, inner, line, LOSS)
    matrix = tl.program_id(1)
    if BY_ROWS:
        e = exponents(tl.load(row_maxima + matrix * R + r, r < R, other=0))
        high, low = split(quantised(value, e[:, None]))
        wide = (C + 15) // 16 * 16
        at = matrix.to(tl.int64) * R * wide + (r[:, None] * wide + c[None, :])
        inside = (r < R)[:, None] & (c < wide)[None, :]
        tl.store(row_high + at, high, inside)
        tl.store(row_low + at, low, inside)
        if tl.min(c, 0) == 0:
            tl.store(row_exponents + matrix * R + r, e, r < R)
    if BY_COLUMNS:
        stored_by_columns(value, column_maxima, column_exponents, column_high, column_low, r, c, matrix, R, C)
