"""Rules for activation functions and their gradients; forward and gradient share every node that they can."""

from __future__ import annotations

import math

from torch.fx import Node as Traced

from assay.program.isa import DType, Op
from assay.program.lowering.context import Lowering, Number
from assay.program.lowering.elementwise import exp_less_one
from assay.program.lowering.registry import lowers
from assay.program.lowering.views import View

_GELU_SCALE = math.sqrt(2 / math.pi)
_GELU_CUBIC = 0.044715


@lowers("relu.default")
def relu(context: Lowering, traced: Traced, x: View) -> View:
    return context.binary(Op.MAX, x, 0.0)


@lowers("threshold_backward.default")
def threshold_backward(context: Lowering, traced: Traced, g: View, x: View, threshold: Number) -> View:
    return context.where(context.compare(Op.LE, x, float(threshold)), 0.0, g, DType.F32)


@lowers("leaky_relu.default")
def leaky_relu(context: Lowering, traced: Traced, x: View, slope: Number = 0.01) -> View:
    return context.where(context.compare(Op.LT, 0.0, x), x, context.mul(x, slope), DType.F32)


@lowers("elu.default")
def elu(
    context: Lowering, traced: Traced, x: View, alpha: Number = 1.0, scale: Number = 1.0, inner: Number = 1.0
) -> View:
    """scale·x above 0, scale·alpha·(exp(inner·x) − 1) below."""
    bent = exp_less_one(context, x if inner == 1 else context.mul(x, inner))
    bent = context.mul(bent, float(alpha * scale))
    straight = x if scale == 1 else context.mul(x, scale)
    return context.where(context.compare(Op.LT, 0.0, x), straight, bent, DType.F32)


@lowers("hardtanh.default")
def hardtanh(context: Lowering, traced: Traced, x: View, low: Number = -1.0, high: Number = 1.0) -> View:
    return context.binary(Op.MIN, context.binary(Op.MAX, x, float(low)), float(high))


def _sigmoid(context: Lowering, x: View) -> View:
    return context.div(1.0, context.add(context.unary(Op.EXP, context.unary(Op.NEG, x)), 1.0))


@lowers("sigmoid.default")
def sigmoid(context: Lowering, traced: Traced, x: View) -> View:
    return _sigmoid(context, x)


@lowers("sigmoid_backward.default")
def sigmoid_backward(context: Lowering, traced: Traced, g: View, y: View) -> View:
    return context.mul(g, context.mul(y, context.sub(1.0, y)))


@lowers("silu.default")
def silu(context: Lowering, traced: Traced, x: View) -> View:
    return context.mul(x, _sigmoid(context, x))


@lowers("silu_backward.default")
def silu_backward(context: Lowering, traced: Traced, g: View, x: View) -> View:
    s = _sigmoid(context, x)
    slope = context.mul(s, context.add(context.mul(x, context.sub(1.0, s)), 1.0))
    return context.mul(g, slope)


@lowers("tanh_backward.default")
def tanh_backward(context: Lowering, traced: Traced, g: View, y: View) -> View:
    return context.mul(g, context.sub(1.0, context.mul(y, y)))


def _gelu_tanh(context: Lowering, x: View) -> tuple[View, View, View]:
    """x², ½x and tanh(√(2/π)·(x + 0.044715·x³)) with the inner product as x·(c₁ + c₃·x²)."""
    square = context.mul(x, x)
    inner = context.mul(x, context.add(context.mul(square, _GELU_SCALE * _GELU_CUBIC), _GELU_SCALE))
    return square, context.mul(x, 0.5), context.unary(Op.TANH, inner)


def _gelu_erf(context: Lowering, x: View) -> View:
    """Φ(x) = ½·(1 + erf(x/√2))."""
    return context.mul(context.add(context.unary(Op.ERF, context.mul(x, math.sqrt(0.5))), 1.0), 0.5)


@lowers("gelu.default")
def gelu(context: Lowering, traced: Traced, x: View, approximate: str = "none") -> View:
    if approximate == "none":
        return context.mul(x, _gelu_erf(context, x))
    _, half, tanh = _gelu_tanh(context, x)
    return context.mul(half, context.add(tanh, 1.0))


@lowers("gelu_backward.default")
def gelu_backward(context: Lowering, traced: Traced, g: View, x: View, approximate: str = "none") -> View:
    if approximate == "none":
        density = context.unary(Op.EXP, context.mul(context.mul(x, x), -0.5))
        weighted = context.mul(context.mul(x, 1 / math.sqrt(2 * math.pi)), density)
        return context.mul(g, context.add(_gelu_erf(context, x), weighted))
    square, half, tanh = _gelu_tanh(context, x)
    inner_slope = context.add(context.mul(square, 3 * _GELU_SCALE * _GELU_CUBIC), _GELU_SCALE)
    outer_slope = context.sub(1.0, context.mul(tanh, tanh))
    curve = context.mul(context.mul(half, outer_slope), inner_slope)
    return context.mul(g, context.add(context.mul(context.add(tanh, 1.0), 0.5), curve))
