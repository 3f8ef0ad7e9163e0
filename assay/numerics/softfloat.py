"""Binary32 and binary64 arithmetic on Python integers, without floats: the arbiter's numbers.

Contract: a finite number is an exact `Dyadic` (sign, magnitude * 2^exponent); every rounding is explicit, to
nearest with ties to even (docs/arithmetic.md, A4). Binary64 results outside the range of A5 raise
OverflowError, because a definition that needed them would be wrong. Not guaranteed: speed.
"""

from __future__ import annotations

from math import isqrt
from typing import NamedTuple

F32_SIGN = 0x80000000
F32_INF = 0x7F800000
F32_NAN = 0x7FC00000
_F64_MIN_EXPONENT = -700
_F64_MAX_EXPONENT = 700
_DIVISION_BITS = 120


class Dyadic(NamedTuple):
    """(-1)^sign * magnitude * 2^exponent; a zero keeps its sign."""

    sign: int
    magnitude: int
    exponent: int


ZERO = Dyadic(0, 0, 0)
ONE = Dyadic(0, 1, 0)


def integer(n: int) -> Dyadic:
    """The exact value of an integer; zero is +0."""
    return Dyadic(int(n < 0), abs(n), 0)


def scale(v: Dyadic, n: int) -> Dyadic:
    """v * 2^n, exact (A6)."""
    return Dyadic(v.sign, v.magnitude, v.exponent + n)


def negate(v: Dyadic) -> Dyadic:
    """-v, zeros included."""
    return Dyadic(1 - v.sign, v.magnitude, v.exponent)


def _shift_right_rne(magnitude: int, shift: int) -> int:
    """magnitude / 2^shift to the nearest integer, ties to even."""
    if shift <= 0:
        return magnitude << -shift
    whole = magnitude >> shift
    rest = magnitude - (whole << shift)
    half = 1 << (shift - 1)
    return whole + int(rest > half or (rest == half and whole & 1 == 1))


def round_f64(v: Dyadic) -> Dyadic:
    """RN64 for values that A5 admits."""
    if v.magnitude == 0:
        return Dyadic(v.sign, 0, 0)
    shift = max(v.magnitude.bit_length() - 53, 0)
    result = Dyadic(v.sign, _shift_right_rne(v.magnitude, shift), v.exponent + shift)
    top = result.magnitude.bit_length() - 1 + result.exponent
    if not _F64_MIN_EXPONENT <= top <= _F64_MAX_EXPONENT:
        raise OverflowError(f"binary64 exponent {top} is outside A5; the definition that led here is wrong")
    return result


def add(a: Dyadic, b: Dyadic) -> Dyadic:
    """RN64(a + b) with IEEE zero signs."""
    return round_f64(exact_sum(a, b))


def sub(a: Dyadic, b: Dyadic) -> Dyadic:
    """RN64(a - b)."""
    return add(a, negate(b))


def mul(a: Dyadic, b: Dyadic) -> Dyadic:
    """RN64(a * b)."""
    return round_f64(exact_product(a, b))


def exact_product(a: Dyadic, b: Dyadic) -> Dyadic:
    """a * b without rounding."""
    return Dyadic(a.sign ^ b.sign, a.magnitude * b.magnitude, a.exponent + b.exponent)


def exact_sum(a: Dyadic, b: Dyadic) -> Dyadic:
    """a + b without rounding, IEEE zero signs."""
    if a.magnitude == 0 and b.magnitude == 0:
        return Dyadic(a.sign & b.sign, 0, 0)
    low = min(a.exponent, b.exponent)
    total = (a.magnitude << (a.exponent - low)) * (1 - 2 * a.sign)
    total += (b.magnitude << (b.exponent - low)) * (1 - 2 * b.sign)
    return Dyadic(int(total < 0), abs(total), low)


def sticky_quotient(a: Dyadic, b: Dyadic) -> Dyadic:
    """a / b for b nonzero, cut with a sticky bit: rounding it to 53 bits or fewer rounds a / b."""
    sign = a.sign ^ b.sign
    if a.magnitude == 0:
        return Dyadic(sign, 0, 0)
    quotient, rest = divmod(a.magnitude << _DIVISION_BITS, b.magnitude)
    return Dyadic(sign, (quotient << 1) | int(rest != 0), a.exponent - b.exponent - _DIVISION_BITS - 1)


def div(a: Dyadic, b: Dyadic) -> Dyadic:
    """RN64(a / b), b nonzero."""
    return round_f64(sticky_quotient(a, b))


def sticky_root(v: Dyadic) -> Dyadic:
    """Square root of a positive v, cut with a sticky bit as in `sticky_quotient`."""
    shift = _DIVISION_BITS + ((v.exponent - _DIVISION_BITS) & 1)
    radicand = v.magnitude << shift
    root = isqrt(radicand)
    return Dyadic(0, (root << 1) | int(root * root != radicand), (v.exponent - shift) // 2 - 1)


def compare(a: Dyadic, b: Dyadic) -> int:
    """-1, 0 or 1 as a is below, equal to or above b; zeros are equal."""
    difference = exact_sum(a, negate(b))
    if difference.magnitude == 0:
        return 0
    return -1 if difference.sign else 1


def rne(v: Dyadic) -> int:
    """Nearest integer, ties to even."""
    rounded = _shift_right_rne(v.magnitude, -v.exponent)
    return -rounded if v.sign else rounded


def from_f64_bits(bits: int) -> Dyadic:
    """A zero or normal binary64 pattern as a value."""
    field, fraction = (bits >> 52) & 0x7FF, bits & ((1 << 52) - 1)
    if field == 0 and fraction == 0:
        return Dyadic(bits >> 63, 0, 0)
    return Dyadic(bits >> 63, fraction | (1 << 52), field - 1075)


def to_f64_bits(v: Dyadic) -> int:
    """The binary64 pattern of a value that binary64 holds exactly as zero or normal."""
    if v.magnitude == 0:
        return v.sign << 63
    width = v.magnitude.bit_length()
    fraction = v.magnitude << (53 - width)
    return (v.sign << 63) | ((v.exponent + width + 1022) << 52) | (fraction & ((1 << 52) - 1))


def is_nan(bits: int) -> bool:
    """True if an f32 pattern is a NaN."""
    return bits & 0x7FFFFFFF > F32_INF


def is_inf(bits: int) -> bool:
    """True if an f32 pattern is an infinity."""
    return bits & 0x7FFFFFFF == F32_INF


def is_zero(bits: int) -> bool:
    """True if an f32 pattern is a zero."""
    return bits & 0x7FFFFFFF == 0


def from_f32_bits(bits: int) -> Dyadic:
    """A finite f32 pattern as a value."""
    field, fraction = (bits >> 23) & 0xFF, bits & 0x7FFFFF
    if field == 0:
        return Dyadic(bits >> 31, fraction, -149)
    return Dyadic(bits >> 31, fraction | 0x800000, field - 150)


def round_f32(v: Dyadic) -> int:
    """RN32 as an f32 pattern: gradual underflow, overflow to infinity, zeros keep their sign."""
    sign = v.sign << 31
    if v.magnitude == 0:
        return sign
    top = v.magnitude.bit_length() - 1 + v.exponent
    unit = max(top - 23, -149)
    mantissa = _shift_right_rne(v.magnitude, unit - v.exponent)
    bits = mantissa if unit == -149 else mantissa + ((unit + 149) << 23)
    return sign | min(bits, F32_INF)
