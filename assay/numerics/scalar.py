"""One element of every instruction on Python integers: the model that an arbiter follows, and the oracle of
the tests.

Contract: written from docs/arithmetic.md alone and without any float, so that agreement with the tensor
code is evidence. f32 operands and results are 32-bit patterns (NaN results are 0x7fc00000), integers and
bools are Python ints with their value, rows are sequences. Not guaranteed: speed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from assay.numerics import softfloat as sf
from assay.numerics.scalar_contraction import (
    amax,
    argmax,
    exponent,
    pick,
    product,
    quantise,
    row_sum,
    scatter_sum,
)
from assay.numerics.scalar_transcendental import cos, erf, exp, log, pow_, sin, tanh

I32_MIN, I32_MAX = -(2**31), 2**31 - 1


def evaluate(op: str, *operands: Any, **attributes: Any) -> Any:
    """The result of instruction `op` for one output element.

    Operands are those of the tensor operation, each reduced to what one output element depends on: an element
    or a row. quantise takes (element, e); product (qa row, ea, qb row, eb); scatter_sum (x row, idx row, v=,
    V=); take and pick a row, an index; comparisons take type="f32" (default) or "i32"; convert and bits
    source=, target=. Raises KeyError for an unknown instruction.
    """
    return OPERATIONS[op](*operands, **attributes)


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


def _wrap_i32(n: int) -> int:
    return (n + 2**31) % 2**32 - 2**31


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


def take(rows: Sequence[Any], index: int) -> Any:
    """A40: the row (or element) of a table at the clamped index."""
    return rows[max(0, min(index, len(rows) - 1))]


OPERATIONS: dict[str, Callable[..., Any]] = {
    "neg": neg,
    "abs": absolute,
    "sqrt": sqrt,
    "exp": exp,
    "log": log,
    "tanh": tanh,
    "erf": erf,
    "sin": sin,
    "cos": cos,
    "floor": floor,
    "add": add,
    "sub": sub,
    "mul": mul,
    "div": div,
    "max": maximum,
    "min": minimum,
    "pow": pow_,
    "eq": _comparison(lambda a, b: a == b),
    "lt": _comparison(lambda a, b: a < b),
    "le": _comparison(lambda a, b: a <= b),
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "not": lambda a: 1 - a,
    "select": select,
    "iadd": lambda a, b: _wrap_i32(a + b),
    "isub": lambda a, b: _wrap_i32(a - b),
    "imul": lambda a, b: _wrap_i32(a * b),
    "convert": convert,
    "bits": bits,
    "sum": row_sum,
    "amax": amax,
    "exponent": exponent,
    "quantise": quantise,
    "product": product,
    "scatter_sum": scatter_sum,
    "argmax": argmax,
    "take": take,
    "pick": pick,
}
