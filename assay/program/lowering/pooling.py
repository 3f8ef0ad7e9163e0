"""Rules for pooling and nearest upsampling: reductions of windows, and their gradients as folds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch.fx import Node as Traced

from assay.program.isa import DType, Op
from assay.program.lowering import views
from assay.program.lowering.context import Lowering, Refused
from assay.program.lowering.registry import lowers
from assay.program.lowering.views import View, whole
from assay.program.lowering.windows import Window, each, fold, unfold


def _planes(context: Lowering, x: View, rank: int) -> View:
    """[B, C, X..], also of an input without a batch."""
    return views.unsqueeze(x, 0) if len(x.shape) == 1 + rank else x


def _like(context: Lowering, traced: Traced, x: View) -> View:
    meta = traced.meta["val"]
    shape = (meta[0] if isinstance(meta, tuple | list) else meta).shape
    return context.reshape(x, tuple(shape))


def _max_window(
    kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> Window:
    size = each(kernel, 2)
    return Window(size, each(stride, 2, size), each(padding, 2), each(dilation, 2))


def _flat(context: Lowering, parts: View, rank: int) -> View:
    """[.., K..] -> [.., elements of the window]."""
    return context.reshape(parts, [*parts.shape[: len(parts.shape) - rank], -1])


@lowers("max_pool2d_with_indices.default")
def max_pool(
    context: Lowering,
    traced: Traced,
    x: View,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> tuple[View, View]:
    """Max pooling; the second result is the position in the plane of the first maximum, as in PyTorch."""
    window = _max_window(kernel, stride, padding, dilation)
    planes = _planes(context, x, 2)
    places = traced.meta["val"][0].shape[-2:]
    parts = whole(context.node(_flat(context, unfold(context, planes, window, -math.inf, places), 2)))
    best = whole(context.builder.argmax(context.node(parts)))
    height, width = planes.shape[2:]
    positions = context.reshape(context.iota(height * width), (1, 1, height, width))
    known = _flat(context, unfold(context, positions, window, 0, places), 2)
    index = context.builder.pick(context.node(views.expand(known, parts.shape)), context.node(best))
    return _like(context, traced, context.amax(parts, (-1,))), _like(context, traced, whole(index))


@lowers("max_pool2d_with_indices_backward.default")
def max_pool_backward(
    context: Lowering,
    traced: Traced,
    g: View,
    x: View,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: View,
) -> View:
    """Gradient of max pooling: each goes to the position that its index names."""
    window = _max_window(kernel, stride, padding, dilation)
    planes = _planes(context, x, 2)
    places = g.shape[-2:]
    height, width = planes.shape[2:]
    positions = context.reshape(context.iota(height * width), (1, 1, height, width))
    known = unfold(context, positions, window, -1, places)
    shape = [*planes.shape[:2], *places, 1, 1]
    hit = context.compare(Op.EQ, known, context.reshape(indices, shape))
    parts = context.where(hit, context.reshape(g, shape), 0.0, DType.F32)
    parts = views.expand(parts, [*shape[:4], *window.size])
    return _like(context, traced, fold(context, parts, window, (height, width)))


def _mean_window(
    kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], rest: Sequence[Any]
) -> Window:
    defaults: list[Any] = [False, True, None]
    ceil_mode, count_pad, divisor = list(rest) + defaults[len(rest) :]
    if ceil_mode or divisor is not None or (not count_pad and any(padding)):
        raise Refused("average pooling has no ceil_mode, divisor_override or uncounted padding here")
    size = each(kernel, 2)
    return Window(size, each(stride, 2, size), each(padding, 2), (1, 1))


@lowers("avg_pool2d.default")
def avg_pool(
    context: Lowering,
    traced: Traced,
    x: View,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    *rest: Any,
) -> View:
    window = _mean_window(kernel, stride, padding, rest)
    return _like(context, traced, _window_means(context, _planes(context, x, 2), window))


def _window_means(context: Lowering, planes: View, window: Window) -> View:
    return context.mean(unfold(context, planes, window), (-2, -1))


def _shared(context: Lowering, g: View, window: Window, shape: Sequence[int]) -> View:
    """Distributes every gradient equally over its window."""
    part = context.div(g, float(window.elements))
    wide = views.expand(views.unsqueeze(views.unsqueeze(part, 4), 5), [*g.shape, *window.size])
    return fold(context, wide, window, shape)


@lowers("avg_pool2d_backward.default")
def avg_pool_backward(
    context: Lowering,
    traced: Traced,
    g: View,
    x: View,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    *rest: Any,
) -> View:
    window = _mean_window(kernel, stride, padding, rest)
    spatial = x.shape[-2:]
    return _like(context, traced, _shared(context, _planes(context, g, 2), window, spatial))


def _adaptive(x: View, places: Sequence[int]) -> Window:
    if any(n % m for n, m in zip(x.shape[-2:], places, strict=True)):
        raise Refused(f"adaptive pooling of {x.shape[-2:]} to {tuple(places)} has windows of unequal sizes")
    size = tuple(n // m for n, m in zip(x.shape[-2:], places, strict=True))
    return Window(size, size, (0, 0), (1, 1))


@lowers("_adaptive_avg_pool2d.default")
def adaptive_pool(context: Lowering, traced: Traced, x: View, places: Sequence[int]) -> View:
    window = _adaptive(x, places)
    return _like(context, traced, _window_means(context, _planes(context, x, 2), window))


@lowers("_adaptive_avg_pool2d_backward.default")
def adaptive_pool_backward(context: Lowering, traced: Traced, g: View, x: View) -> View:
    window = _adaptive(x, g.shape[-2:])
    return _like(context, traced, _shared(context, _planes(context, g, 2), window, x.shape[-2:]))


@lowers("upsample_nearest2d.default")
def upsample(context: Lowering, traced: Traced, x: View, places: Sequence[int], *_scales: Any) -> View:
    """Repeats every element an integer number of times."""
    rows, columns = _times(x.shape[-2:], places)
    wide = views.unsqueeze(views.unsqueeze(x, 3), 5)
    batch, channels, height, width = x.shape
    wide = views.expand(wide, [batch, channels, height, rows, width, columns])
    return context.reshape(wide, [batch, channels, *places])


def _times(before: Sequence[int], after: Sequence[int]) -> tuple[int, int]:
    if any(m % n for n, m in zip(before, after, strict=True)):
        raise Refused(f"nearest upsampling of {tuple(before)} to {tuple(after)} is not by whole numbers")
    return after[0] // before[0], after[1] // before[1]


@lowers("upsample_nearest2d_backward.default")
def upsample_backward(
    context: Lowering, traced: Traced, g: View, places: Sequence[int], sizes: Sequence[int], *_scales: Any
) -> View:
    rows, columns = _times(sizes[-2:], places)
    batch, channels, height, width = sizes
    return context.sum(context.reshape(g, [batch, channels, height, rows, width, columns]), (3, 5))
