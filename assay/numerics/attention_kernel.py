"""Softmax of causal attention, its gradient, and the operands that products read of them, in Triton.

Contract: `softmax`, and `by_rows` with `by_columns` behind it, have the bits of the definitions in
``numerics.attention_triton`` (docs/arithmetic.md, A13, A22, A30, A31, A33, A51). A program holds whole rows,
and reads and computes nothing above the diagonal that does not matter. A softmax's largest exponential is 1,
so the exponents of its sum and of its results are known beforehand. Maxima of columns are of integers, so
their order does not matter. Only ``numerics.attention_triton`` loads this file, since it needs Triton.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.errors import TritonError

from assay.numerics import constants as c
from assay.numerics.operand_kernel import exponents, quantised, split, stored_by_columns, tile_of

FAULTS = (RuntimeError, TritonError)
"""What compiling and launching raise."""
_INV_LN2 = tl.constexpr(c.INV_LN2_BITS)
_LN2_HI = tl.constexpr(c.LN2_HI_BITS)
_LN2_LO = tl.constexpr(c.LN2_LO_BITS - (1 << 64))
_EXPM1 = tl.constexpr(c.EXPM1_BITS)
_LOW = tl.constexpr(c.EXP_CLAMP_LOW)
_MAGIC = tl.constexpr(0x4338000000000000)
"""Pattern of 1.5 * 2^52, whose addition rounds to an integer."""
_INF = tl.constexpr(0x7F800000)


@triton.jit
def binary64(PATTERN: tl.constexpr):
    """The f64 number of a pattern."""
    return tl.full([1, 1], PATTERN, tl.int64).to(tl.float64, bitcast=True)


@triton.jit
def exp(x):
    """A22 for f32 x <= 0."""
    t = tl.maximum(x, _LOW).to(tl.float64)
    magic = binary64(_MAGIC)
    shifted = t * binary64(_INV_LN2) + magic
    n = shifted - magic
    r = (t - n * binary64(_LN2_HI)) - n * binary64(_LN2_LO)
    h = r * binary64(_EXPM1[9])
    for i in tl.static_range(1, 9):
        h = (h + binary64(_EXPM1[9 - i])) * r
    q = (h + binary64(_EXPM1[0])) * r
    power = ((shifted.to(tl.int64, bitcast=True) + 1023) << 52).to(tl.float64, bitcast=True)
    return ((q + 1.0) * power).to(tl.float32)


@triton.jit
def nearest(x):
    """x rounded to an integer, the even one of two."""
    bits = x.to(tl.int32, bitcast=True)
    magic = ((bits & -2147483648) | 0x4B000000).to(tl.float32, bitcast=True)
    return tl.where((bits & 0x7FFFFFFF) < 0x4B000000, (x + magic) - magic, x)


@triton.jit
def total_of(scaled):
    """Exact sum of each row, rounded to integers: i64 [H] for f32 [H, columns], |x| <= 2^50 / columns."""
    # In numbers of 32 bits: q = 2^20 * high + low, 0 <= low < 2^20, whose sums are up to 2^30 and below 2^32.
    q = nearest(scaled)
    high = (q * 9.5367431640625e-07).to(tl.int32)
    low = (q - high.to(tl.float32) * 1048576.0).to(tl.int32)
    upper = tl.sum(high + (low >> 31), 1).to(tl.int64)
    return (upper << 20) + (tl.sum(low & 0xFFFFF, 1).to(tl.int64) & 0xFFFFFFFF)


@triton.jit
def stored_by_rows(value, e, high, low, r, c, matrix, T, wide):
    """Stores the parts of the columns c of rows, int8 [B, T, wide], from their exponents."""
    q_high, q_low = split(quantised(value, e[:, None]))
    at = (matrix * T * wide + r * wide)[:, None] + c[None, :]
    inside = (r < T)[:, None] & (c < wide)[None, :]
    tl.store(high + at, q_high, inside)
    tl.store(low + at, q_low, inside)


@triton.jit
def loaded(x, r, c, matrix, T, whole, OTHER: tl.constexpr):
    """f32 [rows, columns] of a matrix, as far as the diagonal unless a row is `whole`, or some numbers more:
    groups of 16 lie together in memory."""
    near = (c // 16 * 16)[None, :] <= r[:, None]
    inside = (r < T)[:, None] & (c < T)[None, :] & (near | whole[:, None])
    return tl.load(x + ((matrix * T * T + r * T)[:, None] + c[None, :]), inside, other=OTHER)


@triton.jit
def softmax_rows(x, y, e, high, low, r, matrix, T, wide, K: tl.constexpr, W: tl.constexpr, ALL: tl.constexpr):
    """Rows r, i32 [H], of which the columns below W hold what is not masked, of ALL that there are."""
    c = tl.arange(0, W)
    value = loaded(x, r, c, matrix, T, r < 0, float("-inf"))
    seen = (r < T)[:, None] & (c[None, :] <= r[:, None])
    value = tl.where(seen, value, float("-inf"))
    # The maximum, as `tl.max` does not keep NaN: it is poisoned where anything is NaN, or it is not finite.
    largest = tl.max(value, 1)
    poisoned = (tl.max((value != value).to(tl.int32), 1) > 0) | (tl.abs(largest) == float("inf"))
    poisoned = poisoned & (r < T)
    power = tl.where(seen, exp(value - tl.where(poisoned, 0.0, largest)[:, None]), 0.0)
    # The largest is 1, whose exponent is 1: integers of K - 1 bits, whose sum f32 holds after one rounding.
    total = total_of(power * tl.full([1, 1], (K + 126) << 23, tl.int32).to(tl.float32, bitcast=True))
    total = total.to(tl.float32) * tl.full([1], (128 - K) << 23, tl.int32).to(tl.float32, bitcast=True)
    total = tl.where(r < T, total, 1.0)
    last = tl.div_rn(tl.full([1], 1.0, tl.float32), total)
    shared = tl.where(poisoned, 129, exponents(last.to(tl.int32, bitcast=True)))
    value = tl.where(poisoned[:, None], float("nan"), tl.div_rn(power, total[:, None]))
    at = y + (matrix * T * T + r * T)[:, None]
    tl.store(at + c[None, :], value, (r < T)[:, None] & (c < T)[None, :])
    stored_by_rows(value, shared, high, low, r, c, matrix, T, wide)
    tl.store(e + matrix * T + r, shared, r < T)
    for start in tl.static_range(W, ALL, W):
        value = tl.where(poisoned[:, None], float("nan"), tl.zeros((1, W), tl.float32))
        tl.store(at + (start + c)[None, :], value, (r < T)[:, None] & (start + c < T)[None, :])
        stored_by_rows(value, shared, high, low, r, start + c, matrix, T, wide)


@triton.jit
def softmax(x, y, e, high, low, T, wide, K: tl.constexpr, H: tl.constexpr, W: tl.constexpr):
    """f32 [B, T, T] to the same, the exponents of its rows i32 [B, T], and their parts int8 [B, T, wide], all
    contiguous. K is k of A33 for T addends; the grid is (blocks of H rows, B)."""
    r = tl.program_id(0) * H + tl.arange(0, H)
    matrix = tl.program_id(1).to(tl.int64)
    end = tl.program_id(0) * H + H
    if end <= W // 4:
        softmax_rows(x, y, e, high, low, r, matrix, T, wide, K, W // 4, W)
    elif end <= W // 2:
        softmax_rows(x, y, e, high, low, r, matrix, T, wide, K, W // 2, W)
    else:
        softmax_rows(x, y, e, high, low, r, matrix, T, wide, K, W, W)


@triton.jit
def row_sums(x, K: tl.constexpr):
    """Order-free sum of each row (A33), f32 [H, columns] to f32 [H]; K is k for this many addends."""
    size = x.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    largest = tl.max(size, 1)
    e = exponents(largest)
    up = K - e
    first = up >> 1
    one = ((first + 127) << 23).to(tl.float32, bitcast=True)
    other = ((up - first + 127) << 23).to(tl.float32, bitcast=True)
    total = total_of(x * one[:, None] * other[:, None]).to(tl.float64)
    made = (total * ((1023 - up).to(tl.int64) << 52).to(tl.float64, bitcast=True)).to(tl.float32)
    if tl.max(largest, 0) >= _INF:
        # Inf and -Inf make NaN.
        ends = tl.max(x, 1) + tl.min(x, 1)
        made = tl.where(e == 129, tl.where(largest > _INF, float("nan"), ends), made)
    return made


@triton.jit
def magnitudes(x):
    """Patterns of the largest magnitudes of the columns of f32 [rows, columns]."""
    return tl.max(x.to(tl.int32, bitcast=True) & 0x7FFFFFFF, 0)


@triton.jit
def raised(maxima, largest, c, matrix, T):
    """Raises i32 [B, T] to these patterns of columns."""
    tl.atomic_max(maxima + matrix * T + c, largest, (c < T) & (largest > 0), sem="relaxed")


@triton.jit
def difference(p, g, sums, r, c):
    """Gradient of the scores, f32 [rows, columns], +0 above the diagonal."""
    return tl.where(c[None, :] <= r[:, None], g * p - p * sums[:, None], 0.0)


@triton.jit
def whole_rows(p, read_all, r, matrix, T):
    """Rows r of which all has to be read."""
    first = tl.load(p + matrix * T * T + r * T, r < T, other=0.0)
    return (tl.load(read_all + matrix * T + r, r < T, other=0) != 0) | (first != first)


@triton.jit
def gradient_rows(
    p, g, read_all, sums, e, high, low, p_maxima, d_maxima, top, matrix, T, wide, K: tl.constexpr,
    H: tl.constexpr, ROUNDS: tl.constexpr, W: tl.constexpr, ALL: tl.constexpr,
):  # fmt: skip
    """H rows after H rows from `top` on, of which the columns below W hold what matters, of ALL that there
    are. Maxima of columns stay in registers until the end: raising them in memory takes longest."""
    c = tl.arange(0, W)
    of_p = tl.zeros((W,), tl.int32)
    of_d = tl.zeros((W,), tl.int32)
    for i in range(ROUNDS):
        r = top + i * H + tl.arange(0, H)
        whole = whole_rows(p, read_all, r, matrix, T)
        power = loaded(p, r, c, matrix, T, whole, 0.0)
        slope = loaded(g, r, c, matrix, T, whole, 0.0)
        total = row_sums(slope * power, K)
        tl.store(sums + matrix * T + r, total, r < T)
        value = difference(power, slope, total, r, c)
        of_p = tl.maximum(of_p, magnitudes(power))
        of_d = tl.maximum(of_d, magnitudes(value))
        shared = exponents(tl.max(value.to(tl.int32, bitcast=True) & 0x7FFFFFFF, 1))
        tl.store(e + matrix * T + r, shared, r < T)
        stored_by_rows(value, shared, high, low, r, c, matrix, T, wide)
        for start in tl.static_range(W, ALL, W):
            nothing = tl.zeros((H, W), tl.float32)
            stored_by_rows(nothing, shared, high, low, r, start + c, matrix, T, wide)
    raised(p_maxima, of_p, c, matrix, T)
    raised(d_maxima, of_d, c, matrix, T)


@triton.jit
def by_rows(
    p, g, read_all, sums, e, high, low, p_maxima, d_maxima, T, wide, K: tl.constexpr, H: tl.constexpr,
    W: tl.constexpr, ROUNDS: tl.constexpr,
):  # fmt: skip
    """Of a softmax f32 [B, T, T] and the gradient of it: the sums of its rows [B, T], the rows of the scores'
    gradient as an operand, and the maxima i32 [B, T] of the columns of softmax and gradient. Rows that
    `read_all`, i32 [B, T], does not name have nothing but zeros above the diagonal of p, or NaN throughout,
    and nothing but finite numbers there in g. The grid is (blocks of H * ROUNDS rows, B)."""
    top = tl.program_id(0) * (H * ROUNDS)
    matrix = tl.program_id(1).to(tl.int64)
    whole = whole_rows(p, read_all, top + tl.arange(0, H * ROUNDS), matrix, T)
    end = tl.where(tl.max(whole.to(tl.int32), 0) > 0, W, top + H * ROUNDS)
    given = (p, g, read_all, sums, e, high, low, p_maxima, d_maxima, top, matrix, T, wide)
    if end <= W // 4:
        gradient_rows(*given, K, H, ROUNDS, W // 4, W)
    elif end <= W // 2:
        gradient_rows(*given, K, H, ROUNDS, W // 2, W)
    else:
        gradient_rows(*given, K, H, ROUNDS, W, W)


@triton.jit
def by_columns(
    p, g, read_all, sums, p_maxima, p_e, p_high, p_low, d_maxima, d_e, d_high, d_low, T, HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
):  # fmt: skip
    """The columns of softmax and gradient as operands. The grid is (tiles of a matrix, B)."""
    r, c = tile_of(T, T, HEIGHT, WIDTH)
    matrix = tl.program_id(1).to(tl.int64)
    whole = tl.load(read_all + matrix * T + r, r < T, other=0) != 0
    power = loaded(p, r, c, matrix, T, whole, 0.0)
    slope = loaded(g, r, c, matrix, T, r < 0, 0.0)
    total = tl.load(sums + matrix * T + r, r < T, other=0.0)
    stored_by_columns(power, p_maxima, p_e, p_high, p_low, r, c, matrix, T, T)
    value = difference(power, slope, total, r, c)
    stored_by_columns(value, d_maxima, d_e, d_high, d_low, r, c, matrix, T, T)
