"""Rules for convolutions: windows of the input as the rows of one matrix product, and its two gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.fx import Node as Traced

from program.isa import DType
from program.lowering import views
from program.lowering.context import Lowering, Refused
from program.lowering.registry import lowers
from program.lowering.views import View
from program.lowering.windows import Window, each, padded, spread, unfold


def _window(weight: View, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]) -> Window:
    rank = len(weight.shape) - 2
    return Window(weight.shape[2:], each(stride, rank), each(padding, rank), each(dilation, rank))


def _check(x: View, weight: View, transposed: bool) -> None:
    if transposed:
        raise Refused("transposed convolutions are not supported; use nearest upsampling and a convolution")
    if x.dtype is not DType.F32 or weight.dtype is not DType.F32:
        raise Refused("convolutions are of float32 tensors")


def _grouped(context: Lowering, x: View, groups: int) -> View:
    """[B, C, ..] -> [groups, B, C ÷ groups, ..]."""
    parts = context.reshape(x, [x.shape[0], groups, x.shape[1] // groups, *x.shape[2:]])
    return views.swap(parts, 0, 1)


def _rows(context: Lowering, parts: View, groups: int) -> View:
    """Windows [B, C, Y.., K..] as [groups, B·Y.., C ÷ groups·K..]."""
    rank = (len(parts.shape) - 2) // 2
    split = views.view(
        parts.base,
        [parts.shape[0], groups, parts.shape[1] // groups, *parts.shape[2:]],
        [parts.strides[0], parts.strides[1] * (parts.shape[1] // groups), *parts.strides[1:]],
        parts.offset,
    )
    moved = views.permute(split, [1, 0, *range(3, 3 + rank), 2, *range(3 + rank, 3 + 2 * rank)])
    count, width = parts.shape[0], parts.shape[1] // groups
    for size in parts.shape[2 : 2 + rank]:
        count *= size
    for size in parts.shape[2 + rank :]:
        width *= size
    return context.reshape(moved, [groups, count, width])


def _multiplied(context: Lowering, rows: View, kernels: View) -> View:
    """[groups, N, K] and [groups, O, K] -> [groups, N, O]; one group is an ordinary product."""
    if rows.shape[0] == 1:
        product = context.matmul(views.select(rows, 0, 0), views.swap(views.select(kernels, 0, 0)))
        return views.unsqueeze(product, 0)
    return context.matmul(rows, views.swap(kernels))


def _convolved(context: Lowering, x: View, weight: View, window: Window, groups: int) -> View:
    """[B, C, X..] * [O, C ÷ groups, K..] -> [B, O, Y..]."""
    parts = unfold(context, x, window)
    places = parts.shape[2 : 2 + window.rank]
    kernels = context.reshape(weight, [groups, weight.shape[0] // groups, -1])
    product = _multiplied(context, _rows(context, parts, groups), kernels)
    shape = [groups, x.shape[0], *places, weight.shape[0] // groups]
    spatial = range(2, 2 + window.rank)
    moved = views.permute(context.reshape(product, shape), [1, 0, 2 + window.rank, *spatial])
    return context.reshape(moved, [x.shape[0], weight.shape[0], *places])


@lowers("convolution.default")
def convolution(
    context: Lowering,
    traced: Traced,
    x: View,
    weight: View,
    bias: View | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    _output_padding: Any,
    groups: int,
) -> View:
    _check(x, weight, transposed)
    window = _window(weight, stride, padding, dilation)
    result = _convolved(context, x, weight, window, groups)
    if bias is None:
        return result
    return context.add(result, context.reshape(bias, [-1, *([1] * window.rank)]))


@lowers("convolution_backward.default")
def convolution_backward(
    context: Lowering,
    traced: Traced,
    g: View,
    x: View,
    weight: View,
    _bias_sizes: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    _output_padding: Any,
    groups: int,
    wanted: Sequence[bool],
) -> tuple[View | None, View | None, View | None]:
    _check(x, weight, transposed)
    window = _window(weight, stride, padding, dilation)
    spatial = range(2, 2 + window.rank)
    dx = _input_gradient(context, g, x, weight, window, groups) if wanted[0] else None
    dweight = _weight_gradient(context, g, x, weight, window, groups) if wanted[1] else None
    return dx, dweight, context.sum(g, (0, *spatial)) if wanted[2] else None


def _input_gradient(context: Lowering, g: View, x: View, weight: View, window: Window, groups: int) -> View:
    """A convolution of the spread gradient with the flipped kernels, inputs and outputs exchanged."""
    sides = []
    wide = spread(context, g, window.stride)
    for d in range(window.rank):
        before = window.reach[d] - window.padding[d]
        sides.append((before, x.shape[2 + d] + window.reach[d] - before - wide.shape[2 + d]))
    wide = padded(context, wide, sides)
    for d in range(window.rank):
        weight = views.flip(weight, 2 + d)
    split = context.reshape(weight, [groups, weight.shape[0] // groups, *weight.shape[1:]])
    turned = views.swap(split, 1, 2)
    kernels = context.reshape(turned, [x.shape[1], *turned.shape[2:]])
    plain = Window(window.size, (1,) * window.rank, (0,) * window.rank, window.dilation)
    return _convolved(context, wide, kernels, plain, groups)


def _weight_gradient(context: Lowering, g: View, x: View, weight: View, window: Window, groups: int) -> View:
    """Windows and gradients contracted over batch and places."""
    places = g.shape[2:]
    rows = _rows(context, unfold(context, x, window, shape=places), groups)
    spatial = range(3, 3 + window.rank)
    outer = views.permute(_grouped(context, g, groups), [0, 2, 1, *spatial])
    outer = context.reshape(outer, [groups, weight.shape[0] // groups, -1])
    product = _multiplied(context, outer, views.swap(rows))
    return context.reshape(product, weight.shape)
