"""Rules for group and batch normalisation with their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.fx import Node as Traced

from assay.program.isa import Op
from assay.program.lowering.context import Lowering, Refused
from assay.program.lowering.registry import lowers
from assay.program.lowering.views import View


def _scale(context: Lowering, x: View, channels: View, rank: int) -> View:
    """A number for each channel, ready to broadcast over [B, C, X..]."""
    return context.reshape(channels, [1, x.shape[1], *([1] * (rank - 2))])


def _reciprocal_root(context: Lowering, variance: View, eps: float) -> View:
    return context.div(1.0, context.unary(Op.SQRT, context.add(variance, eps)))


def _affine(context: Lowering, x: View, weight: View | None, bias: View | None) -> View:
    rank = len(x.shape)
    if weight is not None:
        x = context.mul(x, _scale(context, x, weight, rank))
    return x if bias is None else context.add(x, _scale(context, x, bias, rank))


def _whitened(context: Lowering, x: View, dims: Sequence[int], eps: float) -> tuple[View, View, View, View]:
    """(x − mean)·rstd, mean, biased variance and rstd over `dims`, which are kept with size 1."""
    mean = context.mean(x, dims, keepdim=True)
    apart = context.sub(x, mean)
    variance = context.mean(context.mul(apart, apart), dims, keepdim=True)
    rstd = _reciprocal_root(context, variance, eps)
    return context.mul(apart, rstd), mean, variance, rstd


def _input_gradient(context: Lowering, h: View, scaled: View, rstd: View, dims: Sequence[int]) -> View:
    """((h − mean h) − x̂·mean(h·x̂))·rstd."""
    flat = context.sub(h, context.mean(h, dims, keepdim=True))
    tilt = context.mul(scaled, context.mean(context.mul(h, scaled), dims, keepdim=True))
    return context.mul(context.sub(flat, tilt), rstd)


def _spatial(x: View) -> tuple[int, ...]:
    return (0, *range(2, len(x.shape)))


@lowers("native_group_norm.default")
def group_norm(
    context: Lowering,
    traced: Traced,
    x: View,
    weight: View | None,
    bias: View | None,
    batch: int,
    _channels: int,
    _elements: int,
    groups: int,
    eps: float,
) -> tuple[View, View, View]:
    parts = _parts(context, x, groups)
    mean = _per_group(context, _over_places(context, parts, 3), parts)
    apart = context.sub(parts, mean)
    squares = _over_places(context, context.mul(apart, apart), 3)
    rstd = _reciprocal_root(context, _per_group(context, squares, parts), eps)
    scaled = context.reshape(context.mul(apart, rstd), x.shape)
    result = _affine(context, scaled, weight, bias)
    return result, context.reshape(mean, (batch, groups)), context.reshape(rstd, (batch, groups))


def _parts(context: Lowering, x: View, groups: int) -> View:
    """[B, C, X..] as [B, groups, C ÷ groups, X..]."""
    return context.reshape(x, [x.shape[0], groups, x.shape[1] // groups, *x.shape[2:]])


def _over_places(context: Lowering, x: View, first: int) -> View:
    """Sums over each channel's places, which are the dimensions from `first` on."""
    return context.sum(x, range(first, len(x.shape))) if len(x.shape) > first else x


def _per_group(context: Lowering, sums: View, parts: View) -> View:
    """Means [B, groups, 1, 1..] of `parts` from the channels' sums [B, groups, C ÷ groups]."""
    total = context.sum(sums, (2,))
    shape = [*total.shape, *([1] * (len(parts.shape) - 2))]
    return context.reshape(context.div(total, float(parts.elements // total.elements)), shape)


@lowers("native_group_norm_backward.default")
def group_norm_backward(
    context: Lowering,
    traced: Traced,
    g: View,
    x: View,
    mean: View,
    rstd: View,
    weight: View | None,
    batch: int,
    _channels: int,
    _elements: int,
    groups: int,
    wanted: Sequence[bool],
) -> tuple[View | None, View | None, View | None]:
    parts = _parts(context, x, groups)
    shape = [batch, groups, *([1] * (len(parts.shape) - 2))]
    mean, rstd = context.reshape(mean, shape), context.reshape(rstd, shape)
    scaled = context.mul(context.sub(parts, mean), rstd)
    seen = context.reshape(scaled, x.shape)
    sums = [_over_places(context, y, 2) for y in (g, context.mul(g, seen))]
    dx = None
    if wanted[0]:
        h = _parts(context, _affine(context, g, weight, None), groups)
        means = []
        for total in sums:
            weighted = total if weight is None else context.mul(total, weight)
            means.append(_per_group(context, context.reshape(weighted, [batch, groups, -1]), parts))
        flat = context.sub(h, means[0])
        dx = context.mul(context.sub(flat, context.mul(scaled, means[1])), rstd)
        dx = context.reshape(dx, x.shape)
    dbias, dweight = (context.sum(total, (0,)) for total in sums)
    return dx, dweight if wanted[1] else None, dbias if wanted[2] else None


def _batch_norm(
    context: Lowering,
    x: View,
    weight: View | None,
    bias: View | None,
    running: tuple[View | None, View | None],
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[View, View, View, View | None, View | None]:
    """(result, mean, rstd, next running mean, next running variance)."""
    mean0, variance0 = running
    rank, dims = len(x.shape), _spatial(x)
    if not training:
        if mean0 is None or variance0 is None:
            raise Refused("batch normalisation outside training needs running statistics")
        rstd = _reciprocal_root(context, variance0, eps)
        apart = context.sub(x, _scale(context, x, mean0, rank))
        scaled = context.mul(apart, _scale(context, x, rstd, rank))
        return _affine(context, scaled, weight, bias), mean0, rstd, mean0, variance0
    scaled, mean, variance, rstd = _whitened(context, x, dims, eps)
    flat = [context.reshape(v, (x.shape[1],)) for v in (mean, variance, rstd)]
    result = _affine(context, scaled, weight, bias)
    if mean0 is None or variance0 is None:
        return result, flat[0], flat[2], None, None
    count = x.elements // x.shape[1]
    if count < 2:
        raise Refused("batch normalisation needs more than one value a channel")
    unbiased = context.mul(flat[1], count / (count - 1))
    mean1 = context.add(context.mul(mean0, 1 - momentum), context.mul(flat[0], momentum))
    variance1 = context.add(context.mul(variance0, 1 - momentum), context.mul(unbiased, momentum))
    return result, flat[0], flat[2], mean1, variance1


@lowers("native_batch_norm.default", "_native_batch_norm_legit.default")
def batch_norm(
    context: Lowering,
    traced: Traced,
    x: View,
    weight: View | None,
    bias: View | None,
    mean: View | None,
    variance: View | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[View, View, View]:
    """Running statistics are written in place, as PyTorch does."""
    result, centre, rstd, mean1, variance1 = _batch_norm(
        context, x, weight, bias, (mean, variance), training, momentum, eps
    )
    if training and mean1 is not None and variance1 is not None:
        context.written = {3: mean1, 4: variance1}
    return result, centre, rstd


@lowers("native_batch_norm_backward.default")
def batch_norm_backward(
    context: Lowering,
    traced: Traced,
    g: View,
    x: View,
    weight: View | None,
    mean0: View | None,
    variance0: View | None,
    mean: View | None,
    rstd: View | None,
    training: bool,
    eps: float,
    wanted: Sequence[bool],
) -> tuple[View | None, View | None, View | None]:
    rank, dims = len(x.shape), _spatial(x)
    if not training:
        assert mean0 is not None and variance0 is not None
        mean, rstd = mean0, _reciprocal_root(context, variance0, eps)
    assert mean is not None and rstd is not None
    wide = _scale(context, x, rstd, rank)
    scaled = context.mul(context.sub(x, _scale(context, x, mean, rank)), wide)
    h = _affine(context, g, weight, None)
    dx: Any = None
    if wanted[0]:
        dx = _input_gradient(context, h, scaled, wide, dims) if training else context.mul(h, wide)
    dweight = context.sum(context.mul(g, scaled), dims) if wanted[1] else None
    return dx, dweight, context.sum(g, dims) if wanted[2] else None
