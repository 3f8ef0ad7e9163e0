"""Rules for softmax and layer normalisation with their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.fx import Node as Traced

from assay.program.isa import Op
from assay.program.lowering.context import Lowering
from assay.program.lowering.registry import lowers
from assay.program.lowering.views import View


def _exponentials(context: Lowering, x: View, dim: int) -> tuple[View, View, View]:
    """x minus its maximum, its exponential, and the sum of that."""
    shifted = context.sub(x, context.amax(x, (dim,), keepdim=True))
    powers = context.unary(Op.EXP, shifted)
    return shifted, powers, context.sum(powers, (dim,), keepdim=True)


@lowers("_softmax.default")
def softmax(context: Lowering, traced: Traced, x: View, dim: int, _half: bool) -> View:
    _, powers, total = _exponentials(context, x, dim)
    return context.div(powers, total)


@lowers("_log_softmax.default")
def log_softmax(context: Lowering, traced: Traced, x: View, dim: int, _half: bool) -> View:
    shifted, powers, total = _exponentials(context, x, dim)
    result = context.sub(shifted, context.unary(Op.LOG, total))
    context.softmax_parts[result] = context.div(powers, total)
    return result


@lowers("_softmax_backward_data.default")
def softmax_backward(context: Lowering, traced: Traced, g: View, y: View, dim: int, _dtype: Any) -> View:
    weighted = context.mul(g, y)
    return context.sub(weighted, context.mul(y, context.sum(weighted, (dim,), keepdim=True)))


@lowers("_log_softmax_backward_data.default")
def log_softmax_backward(context: Lowering, traced: Traced, g: View, y: View, dim: int, _dtype: Any) -> View:
    """Gradient of log-softmax; reuses the forward pass's softmax if known."""
    probabilities = context.softmax_parts.get(y)
    if probabilities is None:
        probabilities = context.unary(Op.EXP, y)
    return context.sub(g, context.mul(probabilities, context.sum(g, (dim,), keepdim=True)))


@lowers("native_layer_norm.default")
def layer_norm(
    context: Lowering,
    traced: Traced,
    x: View,
    shape: Sequence[int],
    weight: View | None,
    bias: View | None,
    eps: float,
) -> tuple[View, View, View]:
    dims = range(len(x.shape) - len(shape), len(x.shape))
    mean = context.mean(x, dims, keepdim=True)
    apart = context.sub(x, mean)
    variance = context.mean(context.mul(apart, apart), dims, keepdim=True)
    rstd = context.div(1.0, context.unary(Op.SQRT, context.add(variance, eps)))
    result = context.mul(apart, rstd)
    if weight is not None:
        result = context.mul(result, weight)
    if bias is not None:
        result = context.add(result, bias)
    return result, mean, rstd


@lowers("native_layer_norm_backward.default")
def layer_norm_backward(
    context: Lowering,
    traced: Traced,
    g: View,
    x: View,
    shape: Sequence[int],
    mean: View,
    rstd: View,
    weight: View | None,
    bias: View | None,
    wanted: Sequence[bool],
) -> tuple[View | None, View | None, View | None]:
    """With x̂ = (x − mean)·rstd and h = g·weight: dx = (h − mean(h) − x̂·mean(h·x̂))·rstd."""
    outer = range(len(x.shape) - len(shape))
    dims = range(len(x.shape) - len(shape), len(x.shape))
    scaled = context.mul(context.sub(x, mean), rstd)
    h = g if weight is None else context.mul(g, weight)
    flat = context.sub(h, context.mean(h, dims, keepdim=True))
    tilt = context.mul(scaled, context.mean(context.mul(h, scaled), dims, keepdim=True))
    dx = context.mul(context.sub(flat, tilt), rstd) if wanted[0] else None
    if not outer:
        return dx, context.mul(g, scaled), g
    dweight = context.sum(context.mul(g, scaled), outer) if wanted[1] else None
    return dx, dweight, context.sum(g, outer) if wanted[2] else None
