"""One output element of each contraction on Python integers (docs/arithmetic.md, A30-A36, A41).

Contract: rows are sequences of f32 patterns or integer values; f32 results are patterns. No float
anywhere. Not guaranteed: speed.
"""

from __future__ import annotations

from collections.abc import Sequence

from assay.numerics import constants as c
from assay.numerics import softfloat as sf


def exponent(row: Sequence[int]) -> int:
    """A30."""
    field = max(x & 0x7FFFFFFF for x in row) >> 23
    return c.EXPONENT_POISONED if field == 255 else max(field, 1) - 126


def _clamped(e: int) -> int:
    return max(c.EXPONENT_MIN, min(e, c.EXPONENT_POISONED))


def quantise(x: int, e: int) -> int:
    """A31 for one element."""
    e = _clamped(e)
    if e == c.EXPONENT_POISONED or sf.is_nan(x):
        return 0
    if sf.is_inf(x):
        return -c.QUANTISED_MAX if x & sf.F32_SIGN else c.QUANTISED_MAX
    q = sf.rne(sf.scale(sf.from_f32_bits(x), c.QUANTISED_BITS - e))
    return max(-c.QUANTISED_MAX, min(q, c.QUANTISED_MAX))


def product(qa: Sequence[int], ea: int, qb: Sequence[int], eb: int) -> int:
    """A32 for one row of each operand."""
    ea, eb = _clamped(ea), _clamped(eb)
    if c.EXPONENT_POISONED in (ea, eb):
        return sf.F32_NAN
    total = sum(a * b for a, b in zip(qa, qb, strict=True))
    return sf.round_f32(sf.scale(sf.integer(total), ea + eb - 2 * c.QUANTISED_BITS))


def _exact_row_sum(row: Sequence[int], e: int, length: int) -> int:
    shift = c.SUM_BITS - (length - 1).bit_length()
    total = sum(sf.rne(sf.scale(sf.from_f32_bits(x), shift - e)) for x in row)
    return sf.round_f32(sf.scale(sf.integer(total), e - shift))


def row_sum(row: Sequence[int]) -> int:
    """A33."""
    if any(sf.is_nan(x) for x in row):
        return sf.F32_NAN
    infinities = {x for x in row if sf.is_inf(x)}
    if infinities:
        return infinities.pop() if len(infinities) == 1 else sf.F32_NAN
    return _exact_row_sum(row, exponent(row), len(row))


def scatter_sum(row: Sequence[int], idx: Sequence[int], *, v: int, V: int) -> int:
    """A34 for output column v of V."""
    if not 0 <= v < V:
        raise ValueError(f"column {v} is outside 0..{V - 1}; no output element exists there")
    e = exponent(row)
    if e == c.EXPONENT_POISONED:
        return sf.F32_NAN
    return _exact_row_sum([x for x, i in zip(row, idx, strict=True) if i == v], e, len(row))


def _rank(x: int) -> int:
    """Order of f32 patterns with NaN above all and both zeros equal."""
    if sf.is_nan(x):
        return 1 << 32
    return -(x & 0x7FFFFFFF) if x & sf.F32_SIGN else x


def amax(row: Sequence[int]) -> int:
    """A35."""
    best = max(row, key=_rank)
    if sf.is_nan(best):
        return sf.F32_NAN
    return 0 if sf.is_zero(best) else best


def argmax(row: Sequence[int]) -> int:
    """A36."""
    ranks = [_rank(x) for x in row]
    return ranks.index(max(ranks))


def pick(row: Sequence[int], index: int) -> int:
    """A41."""
    return row[max(0, min(index, len(row) - 1))]
