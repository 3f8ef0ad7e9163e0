"""The transcendental functions on Python integers (docs/arithmetic.md, A20-A28), every binary64 step
rounded explicitly.

Contract: f32 patterns in, f32 patterns out, NaN as 0x7fc00000; no float anywhere. Not guaranteed: speed.
"""

from __future__ import annotations

from assay.numerics import constants as c
from assay.numerics import softfloat as sf
from assay.numerics.softfloat import Dyadic

_INV_LN2 = sf.from_f64_bits(c.INV_LN2_BITS)
_LN2_HI = sf.from_f64_bits(c.LN2_HI_BITS)
_LN2_LO = sf.from_f64_bits(c.LN2_LO_BITS)
_TWO_OVER_PI = sf.from_f64_bits(c.TWO_OVER_PI_BITS)
_PIO2 = [sf.from_f64_bits(b) for b in c.PIO2_BITS]
_EXPM1 = [sf.from_f64_bits(b) for b in c.EXPM1_BITS]
_LOG = [sf.from_f64_bits(b) for b in c.LOG_BITS]
_SIN = [sf.from_f64_bits(b) for b in c.SIN_BITS]
_COS = [sf.from_f64_bits(b) for b in c.COS_BITS]
_ERF = [[sf.from_f64_bits(b) for b in row] for row in c.ERF_BITS]

_EXP_LOW, _EXP_HIGH = sf.integer(-104), sf.integer(89)
_TANH_CLAMP, _ERF_CLAMP = sf.integer(10), sf.integer(4)
_TRIG_BOUND = sf.integer(1 << 29)
_F32_ONE = 0x3F800000


def _least(a: Dyadic, b: Dyadic) -> Dyadic:
    return b if sf.compare(b, a) < 0 else a


def _horner(t: Dyadic, coefficients: list[Dyadic]) -> Dyadic:
    """A7."""
    h = coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
        h = sf.add(sf.mul(h, t), coefficient)
    return h


def _expm(t: Dyadic) -> tuple[Dyadic, int]:
    """A21."""
    n = sf.rne(sf.mul(t, _INV_LN2))
    whole = sf.integer(n)
    r = sf.sub(sf.sub(t, sf.mul(whole, _LN2_HI)), sf.mul(whole, _LN2_LO))
    return sf.mul(_horner(r, _EXPM1), r), n


def _exp_rounded(t: Dyadic) -> int:
    if sf.compare(t, _EXP_LOW) < 0:
        t = _EXP_LOW
    q, n = _expm(_least(t, _EXP_HIGH))
    return sf.round_f32(sf.scale(sf.add(sf.ONE, q), n))


def exp(x: int) -> int:
    """A22."""
    if sf.is_nan(x):
        return sf.F32_NAN
    if sf.is_inf(x):
        return _exp_rounded(_EXP_LOW if x & sf.F32_SIGN else _EXP_HIGH)
    return _exp_rounded(sf.from_f32_bits(x))


def tanh(x: int) -> int:
    """A23."""
    if sf.is_nan(x):
        return sf.F32_NAN
    a = _TANH_CLAMP if sf.is_inf(x) else _least(sf.from_f32_bits(x & 0x7FFFFFFF), _TANH_CLAMP)
    q, n = _expm(sf.add(a, a))
    u = sf.add(sf.scale(q, n), sf.sub(sf.scale(sf.ONE, n), sf.ONE))
    return (x & sf.F32_SIGN) | sf.round_f32(sf.div(u, sf.add(u, sf.integer(2))))


def _log_core(v: Dyadic) -> Dyadic:
    """A24."""
    bits = sf.to_f64_bits(v)
    k = (bits - c.SQRT_HALF_BITS) >> 52
    m = sf.from_f64_bits(bits - (k << 52))
    s = sf.div(sf.sub(m, sf.ONE), sf.add(m, sf.ONE))
    z = sf.mul(s, s)
    h = sf.mul(_horner(z, _LOG), z)
    d = sf.add(s, s)
    y = sf.add(d, sf.mul(d, h))
    kf = sf.integer(k)
    return sf.add(sf.mul(kf, _LN2_HI), sf.add(sf.mul(kf, _LN2_LO), y))


def log(x: int) -> int:
    """A25."""
    if sf.is_nan(x):
        return sf.F32_NAN
    if sf.is_zero(x):
        return sf.F32_SIGN | sf.F32_INF
    if x & sf.F32_SIGN:
        return sf.F32_NAN
    if sf.is_inf(x):
        return x
    return sf.round_f32(_log_core(sf.from_f32_bits(x)))


def _reduced(x: int) -> tuple[int, Dyadic, Dyadic]:
    """Steps 1 to 4 of A26 for a finite x: (k, sine core, cosine core)."""
    a = sf.from_f32_bits(x & 0x7FFFFFFF)
    if sf.compare(a, _TRIG_BOUND) >= 0:
        a = sf.ZERO
    k = sf.rne(sf.mul(a, _TWO_OVER_PI))
    r = a
    for part in _PIO2:
        r = sf.sub(r, sf.mul(sf.integer(k), part))
    z = sf.mul(r, r)
    sine = sf.add(r, sf.mul(r, sf.mul(_horner(z, _SIN), z)))
    cosine = sf.add(sf.ONE, sf.mul(_horner(z, _COS), z))
    return k, sine, cosine


def sin(x: int) -> int:
    """A26."""
    if sf.is_nan(x) or sf.is_inf(x):
        return sf.F32_NAN
    k, sine, cosine = _reduced(x)
    y = (sine, cosine, sf.negate(sine), sf.negate(cosine))[k % 4]
    return sf.round_f32(sf.negate(y) if x & sf.F32_SIGN else y)


def cos(x: int) -> int:
    """A26."""
    if sf.is_nan(x) or sf.is_inf(x):
        return sf.F32_NAN
    k, sine, cosine = _reduced(x)
    return sf.round_f32((cosine, sf.negate(sine), sf.negate(cosine), sine)[k % 4])


def erf(x: int) -> int:
    """A27."""
    if sf.is_nan(x):
        return sf.F32_NAN
    a = _ERF_CLAMP if sf.is_inf(x) else _least(sf.from_f32_bits(x & 0x7FFFFFFF), _ERF_CLAMP)
    segment = sf.rne(sf.add(a, a))
    t = sf.sub(a, sf.scale(sf.integer(segment), -1))
    return (x & sf.F32_SIGN) | sf.round_f32(_horner(t, _ERF[segment]))


def _integrality(y: int) -> tuple[bool, bool]:
    """(is an integer, is an odd integer); infinities count as even integers."""
    if sf.is_inf(y):
        return True, False
    v = sf.from_f32_bits(y)
    if v.exponent >= 0:
        return True, v.exponent == 0 and v.magnitude & 1 == 1
    whole = v.magnitude >> -v.exponent
    return whole << -v.exponent == v.magnitude, whole << -v.exponent == v.magnitude and whole & 1 == 1


def _pow_magnitude(a: int, y: int) -> int:
    """Step 5 of A28 for a = |x| and y not zero."""
    if a == _F32_ONE:
        return _F32_ONE
    if sf.is_zero(a) or sf.is_inf(a) or sf.is_inf(y):
        grows = (a > _F32_ONE) != (y & sf.F32_SIGN != 0)
        return _exp_rounded(_EXP_HIGH if grows else _EXP_LOW)
    return _exp_rounded(sf.mul(sf.from_f32_bits(y), _log_core(sf.from_f32_bits(a))))


def pow_(x: int, y: int) -> int:
    """A28."""
    if sf.is_zero(y) or x == _F32_ONE:
        return _F32_ONE
    if sf.is_nan(x) or sf.is_nan(y):
        return sf.F32_NAN
    whole, odd = _integrality(y)
    a = x & 0x7FFFFFFF
    if x & sf.F32_SIGN and not sf.is_zero(a) and not sf.is_inf(a) and not whole:
        return sf.F32_NAN
    sign = x & sf.F32_SIGN if odd else 0
    return sign | _pow_magnitude(a, y)
