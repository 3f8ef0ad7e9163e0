"""Transcendental functions on f32 tensors (docs/arithmetic.md, A20-A28): the definition, not libm.

Contract: fixed sequences of binary64 add, subtract, multiply and divide with bit-specified constants,
then one rounding to binary32; the same bits on every device, eager or compiled. Total: every input bit
pattern has a defined result (a NaN's sign and payload are not defined, see A3). Not guaranteed: correct
rounding; the measured error is in the document.

Round-to-integer and 2^n are taken with the bits of x + 1.5 * 2^52: that addition rounds to the nearest
integer, ties to even, for |x| < 2^51, and leaves the integer in the low bits. In-place operations touch
only tensors made here.
"""

from __future__ import annotations

import torch
from torch import Tensor

from assay.numerics import constants as c
from assay.numerics.blocks import by_element

_MAGIC = 6755399441055744.0  # 1.5 * 2^52
_MAGIC_BITS = 0x4338000000000000
_INF = float("inf")
_NAN = float("nan")


def exp(x: Tensor) -> Tensor:
    """e^x, f32 -> f32 (A22)."""
    return by_element(_exp, x)


def log(x: Tensor) -> Tensor:
    """Natural logarithm, f32 -> f32 (A25); NaN below zero, -Inf at either zero."""
    return by_element(_log, x)


def tanh(x: Tensor) -> Tensor:
    """Hyperbolic tangent, f32 -> f32 (A23)."""
    return by_element(_tanh, x)


def erf(x: Tensor) -> Tensor:
    """Error function, f32 -> f32 (A27)."""
    return by_element(_erf, x)


def sin(x: Tensor) -> Tensor:
    """Sine, f32 -> f32 (A26); a signed zero for finite |x| >= 2^29."""
    return by_element(_sin, x)


def cos(x: Tensor) -> Tensor:
    """Cosine, f32 -> f32 (A26); one for finite |x| >= 2^29."""
    return by_element(_cos, x)


def pow(x: Tensor, y: Tensor) -> Tensor:  # the instruction's name, kept
    """x^y with numpy broadcasting, f32 -> f32 (A28)."""
    x, y = torch.broadcast_tensors(x, y)
    return by_element(_pow, x, y)


def _horner(t: Tensor, coefficients: tuple[float, ...]) -> Tensor:
    """H(t; c_0 ... c_d) of A7: a multiplication and an addition per degree, highest first."""
    h = t * coefficients[-1]
    for coefficient in coefficients[-2:0:-1]:
        h.add_(coefficient).mul_(t)
    return h.add_(coefficients[0])


def _expm(t: Tensor) -> tuple[Tensor, Tensor]:
    """EXPM of A21: (q, 2^n) with e^t = (1 + q) * 2^n."""
    shifted = (t * c.INV_LN2).add_(_MAGIC)
    n = shifted - _MAGIC
    r = (t - n * c.LN2_HI).sub_(n.mul_(c.LN2_LO))
    q = _horner(r, c.EXPM1).mul_(r)
    power = ((shifted.view(torch.int64) + 1023) << 52).view(torch.float64)
    return q, power


def _log_core(v: Tensor) -> Tensor:
    """LOG of A24; anything may come out unless v is positive and finite."""
    bits = v.view(torch.int64)
    k = (bits - c.SQRT_HALF_BITS) >> 52
    m = (bits - (k << 52)).view(torch.float64)
    kf = (k + _MAGIC_BITS).view(torch.float64) - _MAGIC
    s = (m - 1.0).div_(m + 1.0)
    z = s * s
    h = _horner(z, c.LOG).mul_(z)
    d = s.add_(s)
    y = h.mul_(d).add_(d)
    return (kf * c.LN2_LO).add_(y).add_(kf.mul_(c.LN2_HI))


def _exp_of_f64(t: Tensor) -> Tensor:
    q, power = _expm(t)
    return q.add_(1.0).mul_(power).to(torch.float32)


def _exp(x: Tensor) -> Tensor:
    return _exp_of_f64(x.clamp(c.EXP_CLAMP_LOW, c.EXP_CLAMP_HIGH).to(torch.float64))


def _tanh(x: Tensor) -> Tensor:
    a = x.abs().clamp_(max=c.TANH_CLAMP).to(torch.float64)
    q, power = _expm(a.add_(a))
    u = q.mul_(power).add_(power - 1.0)
    return torch.copysign((u / (u + 2.0)).to(torch.float32), x)


def _log(x: Tensor) -> Tensor:
    y = _log_core(x.to(torch.float64)).to(torch.float32)
    y = torch.where(x < _INF, y, x)
    return torch.where(x > 0.0, y, torch.where(x == 0.0, -_INF, _NAN))


def _erf(x: Tensor) -> Tensor:
    a = x.abs().clamp_(max=c.ERF_CLAMP).to(torch.float64)
    shifted = (a + a).add_(_MAGIC)
    segment = (shifted.view(torch.int64) & 15).clamp_(max=8).reshape(-1)
    t = a - (shifted - _MAGIC).mul_(0.5)
    table = _erf_table(x)
    h = torch.index_select(table[12], 0, segment).view(t.shape)
    for degree in range(11, -1, -1):
        h.mul_(t).add_(torch.index_select(table[degree], 0, segment).view(t.shape))
    return torch.copysign(h.to(torch.float32), x)


def _coefficients(x: Tensor) -> Tensor:
    """f64 [degrees, segments] of A27, on the device of `x`."""
    return torch.tensor(c.ERF, dtype=torch.float64, device=x.device).t().contiguous()


# An operation of its own: a tensor made while a graph is traced would be an input of the compiled form, which
# the form that is stored has not.
_LIBRARY = torch.library.Library("assay", "FRAGMENT")
_LIBRARY.define("erf_table(Tensor x) -> Tensor")
_LIBRARY.impl("erf_table", _coefficients, "CompositeExplicitAutograd")
torch.library.register_fake(
    "assay::erf_table",
    lambda x: x.new_empty((len(c.ERF[0]), len(c.ERF)), dtype=torch.float64),
    lib=_LIBRARY,
)
_erf_table = torch.ops.assay.erf_table


def _reduced(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Steps 1 to 4 of A26: (k as integer bits, sine core, cosine core)."""
    a = x.abs()
    a = torch.where(a >= c.TRIG_BOUND, torch.where(a == _INF, _NAN, 0.0), a).to(torch.float64)
    shifted = (a * c.TWO_OVER_PI).add_(_MAGIC)
    k = shifted - _MAGIC
    r = a - k * c.PIO2[0]
    r = r.sub_(k * c.PIO2[1]).sub_(k * c.PIO2[2])
    z = r * r
    sine = _horner(z, c.SIN).mul_(z).mul_(r).add_(r)
    cosine = _horner(z, c.COS).mul_(z).add_(1.0)
    return shifted.view(torch.int64), sine, cosine


def _sin(x: Tensor) -> Tensor:
    k, sine, cosine = _reduced(x)
    y = torch.where((k & 1) == 0, sine, cosine)
    y = torch.where((k & 2) == 0, y, -y).to(torch.float32)
    return torch.where(torch.signbit(x), -y, y)


def _cos(x: Tensor) -> Tensor:
    k, sine, cosine = _reduced(x)
    y = torch.where((k & 1) == 0, cosine, sine)
    return torch.where(((k + 1) & 2) == 0, y, -y).to(torch.float32)


def _pow(x: Tensor, y: Tensor) -> Tensor:
    a = x.abs()
    w = _log_core(a.to(torch.float64))
    w = torch.where(a == 0.0, -_INF, torch.where(a == _INF, _INF, w))
    t = w.mul_(y.to(torch.float64)).clamp_(c.EXP_CLAMP_LOW, c.EXP_CLAMP_HIGH)
    magnitude = torch.where(a == 1.0, 1.0, _exp_of_f64(t))
    whole = torch.floor(y) == y
    half = y * 0.5
    odd = whole & (torch.floor(half) != half) & (y.abs() < 16777216.0)
    result = torch.where(torch.signbit(x) & odd, -magnitude, magnitude)
    undefined = (x < 0.0) & (a < _INF) & ~whole
    result = torch.where(undefined | torch.isnan(x) | torch.isnan(y), _NAN, result)
    return torch.where((y == 0.0) | (x == 1.0), 1.0, result)
