"""Rules for losses: negative log-likelihood (the second half of cross entropy) and mean squared error."""

from __future__ import annotations

from typing import Any

from torch.fx import Node as Traced

from assay.program.isa import DType, Op
from assay.program.lowering import views
from assay.program.lowering.context import Lowering, Refused
from assay.program.lowering.registry import lowers
from assay.program.lowering.views import View, whole

_NONE, _MEAN, _SUM = 0, 1, 2
"""PyTorch's codes of `reduction`."""


def _kept(context: Lowering, target: View, ignored: int) -> View | None:
    """bool: targets that count; None if bytes cannot equal the ignored index."""
    node = context.builder.node(target.base)
    if not 0 <= ignored <= 255:
        while node.op in (Op.STRIDED, Op.RESHAPE):
            node = context.builder.node(node.inputs[0])
        if node.op is Op.CONVERT and node.inputs[0].dtype is DType.U8:
            return None
    return context.invert(context.compare(Op.EQ, target, ignored))


def _count(context: Lowering, target: View, kept: View | None) -> View:
    if kept is None:
        return context.const(float(target.elements), DType.F32)
    return context.sum(context.convert(kept, DType.F32), ())


def _rows(context: Lowering, log_probs: View, target: View, weight: View | None) -> tuple[View, View]:
    """Log probabilities as [rows, classes] and targets [rows], of [classes] and of [N, classes, X..] too."""
    if weight is not None:
        raise Refused("class weights are not supported")
    if len(log_probs.shape) == 1:
        return views.unsqueeze(log_probs, 0), context.reshape(target, (1,))
    order = [0, *range(2, len(log_probs.shape)), 1]
    last = views.permute(log_probs, order)
    return context.reshape(last, (-1, last.shape[-1])), context.reshape(target, (-1,))


@lowers("nll_loss_forward.default", "nll_loss2d_forward.default")
def nll_loss(
    context: Lowering,
    traced: Traced,
    log_probs: View,
    target: View,
    weight: Any,
    reduction: int,
    ignored: int,
) -> tuple[View, View]:
    rows, target = _rows(context, log_probs, target, weight)
    kept = _kept(context, target, ignored)
    count = _count(context, target, kept)
    picked = whole(context.builder.pick(context.node(rows), context.node(target)))
    losses = context.unary(Op.NEG, picked)
    if kept is not None:
        losses = context.where(kept, losses, 0.0, DType.F32)
    if reduction == _NONE:
        return context.reshape(losses, tuple(traced.meta["val"][0].shape)), count
    total = context.sum(losses, ())
    return (context.div(total, count) if reduction == _MEAN else total), count


@lowers("nll_loss_backward.default", "nll_loss2d_backward.default")
def nll_loss_backward(
    context: Lowering,
    traced: Traced,
    g: View,
    log_probs: View,
    target: View,
    weight: Any,
    reduction: int,
    ignored: int,
    count: View,
) -> View:
    rows, target = _rows(context, log_probs, target, weight)
    share = context.div(g, count) if reduction == _MEAN else g
    share = context.unary(Op.NEG, context.reshape(share, (-1,)) if reduction == _NONE else share)
    kept = _kept(context, target, ignored)
    if kept is not None:
        share = context.where(kept, share, 0.0, DType.F32)
    if share.shape:
        share = views.unsqueeze(share, 1)
    hit = context.compare(Op.EQ, context.iota(rows.shape[1]), views.unsqueeze(target, 1))
    made = context.where(hit, share, 0.0, DType.F32)
    shape = log_probs.shape
    if len(shape) < 2:
        return context.reshape(made, shape)
    back = context.reshape(made, (shape[0], *shape[2:], shape[1]))
    return views.permute(back, [0, len(shape) - 1, *range(1, len(shape) - 1)])


@lowers("mse_loss.default")
def mse_loss(context: Lowering, traced: Traced, x: View, y: View, reduction: int = _MEAN) -> View:
    apart = context.sub(x, y)
    squares = context.mul(apart, apart)
    if reduction == _NONE:
        return squares
    return context.mean(squares, ()) if reduction == _MEAN else context.sum(squares, ())


@lowers("mse_loss_backward.default")
def mse_loss_backward(context: Lowering, traced: Traced, g: View, x: View, y: View, reduction: int) -> View:
    factor = 2.0 / x.elements if reduction == _MEAN else 2.0
    return context.mul(context.mul(context.sub(x, y), factor), g)
