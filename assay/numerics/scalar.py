"""Integer model of every instruction, one element at a time: what the arbiter follows, and the oracle of the
tests.

Contract: written from docs/arithmetic.md alone and without floats, so that agreement with the tensor code is
evidence. Operands are those of the tensor operation, reduced to what one output element depends on: an
element or a row. f32 operands and results are 32-bit patterns (NaN results are 0x7fc00000), integers and
bools are Python ints, rows are sequences. Comparisons take type="f32" (default) or "i32"; convert and bits
source=, target=; scatter_sum v=, V=. Not guaranteed: speed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from assay.numerics import constants as c
from assay.numerics import softfloat as sf

I32_MIN, I32_MAX = -(2**31), 2**31 - 1


def _exact(bits: int) -> sf.Dyadic:
    return sf.from_f32_bits(bits)


def neg(x: int) -> int:
    """A10."""
    return sf.F32_NAN if sf.is_nan(x) else x ^ sf.F32_SIGN


def absolute(x: int) -> int:
    """A10."""
    return sf.F32_NAN if sf.is_nan(x) else x & ~sf.F32_SIGN


def sqrt(x: int) -> int:
    """A11."""
    if sf.is_nan(x) or (x & sf.F32_SIGN and not sf.is_zero(x)):
        return sf.F32_NAN
    if sf.is_zero(x) or sf.is_inf(x):
        return x
    return sf.round_f32(sf.sticky_root(_exact(x)))


def floor(x: int) -> int:
    """A12."""
    if sf.is_nan(x):
        return sf.F32_NAN
    if sf.is_inf(x) or sf.is_zero(x):
        return x
    v = _exact(x)
    if v.exponent >= 0:
        return x
    whole = v.magnitude >> -v.exponent
    if v.sign and whole << -v.exponent != v.magnitude:
        whole += 1
    return sf.round_f32(sf.Dyadic(v.sign, whole, 0))


def add(a: int, b: int) -> int:
    """A13."""
    if sf.is_nan(a) or sf.is_nan(b):
        return sf.F32_NAN
    if sf.is_inf(a):
        return sf.F32_NAN if sf.is_inf(b) and a != b else a
    if sf.is_inf(b):
        return b
    return sf.round_f32(sf.exact_sum(_exact(a), _exact(b)))


def sub(a: int, b: int) -> int:
    """A13."""
    return add(a, neg(b))


def mul(a: int, b: int) -> int:
    """A13."""
    if sf.is_nan(a) or sf.is_nan(b):
        return sf.F32_NAN
    sign = (a ^ b) & sf.F32_SIGN
    if sf.is_inf(a) or sf.is_inf(b):
        return sf.F32_NAN if sf.is_zero(a) or sf.is_zero(b) else sign | sf.F32_INF
    return sf.round_f32(sf.exact_product(_exact(a), _exact(b)))


def div(a: int, b: int) -> int:
    """A13."""
    if sf.is_nan(a) or sf.is_nan(b):
        return sf.F32_NAN
    sign = (a ^ b) & sf.F32_SIGN
    if sf.is_inf(a):
        return sf.F32_NAN if sf.is_inf(b) else sign | sf.F32_INF
    if sf.is_inf(b):
        return sign
    if sf.is_zero(b):
        return sf.F32_NAN if sf.is_zero(a) else sign | sf.F32_INF
    return sf.round_f32(sf.sticky_quotient(_exact(a), _exact(b)))


def _ordered(x: int) -> int:
    """An integer that orders non-NaN f32 patterns as their values are ordered."""
    return -(x & 0x7FFFFFFF) if x & sf.F32_SIGN else x


def maximum(a: int, b: int) -> int:
    """A14."""
    if sf.is_nan(a) or sf.is_nan(b):
        return sf.F32_NAN
    return a if _ordered(a) > _ordered(b) else b


def minimum(a: int, b: int) -> int:
    """A14."""
    if sf.is_nan(a) or sf.is_nan(b):
        return sf.F32_NAN
    return a if _ordered(a) < _ordered(b) else b


def _comparison(holds: Callable[[int, int], bool]) -> Callable[..., int]:
    def compare(a: int, b: int, *, type: str = "f32") -> int:
        if type == "i32":
            return int(holds(a, b))
        if sf.is_nan(a) or sf.is_nan(b):
            return 0
        return int(holds(_ordered(a), _ordered(b)))

    return compare


eq = _comparison(lambda a, b: a == b)
lt = _comparison(lambda a, b: a < b)
le = _comparison(lambda a, b: a <= b)


def logical_and(a: int, b: int) -> int:
    """A16."""
    return a & b


def logical_or(a: int, b: int) -> int:
    """A16."""
    return a | b


def logical_not(a: int) -> int:
    """A16."""
    return 1 - a


def _wrap_i32(n: int) -> int:
    return (n + 2**31) % 2**32 - 2**31


def iadd(a: int, b: int) -> int:
    """A18."""
    return _wrap_i32(a + b)


def isub(a: int, b: int) -> int:
    """A18."""
    return _wrap_i32(a - b)


def imul(a: int, b: int) -> int:
    """A18."""
    return _wrap_i32(a * b)


def select(condition: int, a: int, b: int) -> int:
    """A17."""
    return a if condition else b


def _f32_to_i32(x: int) -> int:
    if sf.is_nan(x):
        return 0
    if sf.is_inf(x):
        return I32_MIN if x & sf.F32_SIGN else I32_MAX
    v = _exact(x)
    whole = v.magnitude << v.exponent if v.exponent >= 0 else v.magnitude >> -v.exponent
    return max(I32_MIN, min(I32_MAX, -whole if v.sign else whole))


def _integer_to_f32(n: int) -> int:
    return sf.round_f32(sf.integer(n))


CONVERSIONS: dict[tuple[str, str], Callable[[int], int]] = {
    ("f32", "i32"): _f32_to_i32,
    ("f32", "bool"): lambda x: int(not sf.is_zero(x)),
    ("i32", "f32"): _integer_to_f32,
    ("i32", "u8"): lambda n: n & 255,
    ("i32", "bool"): lambda n: int(n != 0),
    ("u8", "i32"): lambda n: n,
    ("u8", "f32"): _integer_to_f32,
    ("bool", "i32"): lambda n: n,
    ("bool", "f32"): _integer_to_f32,
}


def convert(x: int, *, source: str, target: str) -> int:
    """A19. Raises KeyError for a pair that A19 does not list."""
    return CONVERSIONS[source, target](x)


def bits(x: int, *, source: str, target: str) -> int:
    """A29. Raises KeyError for a pair that A29 does not list."""
    if (source, target) == ("f32", "i32"):
        return _wrap_i32(sf.F32_NAN if sf.is_nan(x) else x)
    if (source, target) == ("i32", "f32"):
        pattern = x % 2**32
        return sf.F32_NAN if sf.is_nan(pattern) else pattern
    raise KeyError((source, target))


def exponent(row: Sequence[int]) -> int:
    """A30."""
    field = max(x & 0x7FFFFFFF for x in row) >> 23
    return c.EXPONENT_POISONED if field == 255 else max(field, 1) - 126


def _clamped_exponent(e: int) -> int:
    return max(c.EXPONENT_MIN, min(e, c.EXPONENT_POISONED))


def quantise(x: int, e: int) -> int:
    """A31 for one element."""
    e = _clamped_exponent(e)
    if e == c.EXPONENT_POISONED or sf.is_nan(x):
        return 0
    if sf.is_inf(x):
        return -c.QUANTISED_MAX if x & sf.F32_SIGN else c.QUANTISED_MAX
    q = sf.rne(sf.scale(sf.from_f32_bits(x), c.QUANTISED_BITS - e))
    return max(-c.QUANTISED_MAX, min(q, c.QUANTISED_MAX))


def product(qa: Sequence[int], ea: int, qb: Sequence[int], eb: int) -> int:
    """A32 for one row of each operand."""
    ea, eb = _clamped_exponent(ea), _clamped_exponent(eb)
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


def take(rows: Sequence[Any], index: int) -> Any:
    """A40: the row (or element) of a table at the clamped index."""
    return rows[max(0, min(index, len(rows) - 1))]
