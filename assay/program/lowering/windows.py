"""Sliding windows over planes, used by convolutions and pooling.

Contract: `unfold` reads windows of a padded plane by one overlapping view, without copies. `fold` is its
transpose, a sum over all windows that contain an element, as one row sum. Planes are [B, C, X..] with one or
more spatial dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from assay.program.lowering import views
from assay.program.lowering.context import Lowering, Number
from assay.program.lowering.views import View


@dataclass(frozen=True)
class Window:
    """Window parameters along each spatial dimension."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def reach(self) -> tuple[int, ...]:
        """Extent of one window minus one, per dimension."""
        return tuple((k - 1) * d for k, d in zip(self.size, self.dilation, strict=True))

    @property
    def elements(self) -> int:
        return prod(self.size)

    @property
    def rank(self) -> int:
        return len(self.size)


def each(value: Sequence[int], rank: int, default: Sequence[int] = ()) -> tuple[int, ...]:
    """One number for every spatial dimension, from PyTorch's one or many."""
    given = tuple(value) or tuple(default)
    return given * rank if len(given) == 1 else given


def padded(context: Lowering, x: View, pads: Sequence[tuple[int, int]], value: Number = 0.0) -> View:
    """x with constants around its last dimensions; negative counts crop."""
    first = len(x.shape) - len(pads)
    for place, (before, after) in enumerate(pads):
        dim = first + place
        x = views.narrow(x, dim, max(0, -before), x.shape[dim] - max(0, -after))
        parts = [x]
        for count, at in ((before, 0), (after, 2)):
            if count > 0:
                shape = tuple(count if d == dim else n for d, n in enumerate(x.shape))
                parts.insert(at, context.const(value, x.dtype, shape))
        x = x if len(parts) == 1 else context.concat(parts, dim)
    return x


def spread(context: Lowering, x: View, strides: Sequence[int]) -> View:
    """x's last dimensions with stride − 1 zeros between neighbours: n becomes (n − 1)·stride + 1."""
    first = len(x.shape) - len(strides)
    for place, stride in enumerate(strides):
        dim = first + place
        if stride == 1 or x.shape[dim] == 1:
            continue
        length = x.shape[dim]
        rest = [(0, 0)] * (len(x.shape) - dim - 1)
        wide = padded(context, views.unsqueeze(x, dim + 1), [(0, stride - 1), *rest])
        joined = [*x.shape[:dim], length * stride, *x.shape[dim + 1 :]]
        x = views.narrow(context.reshape(wide, joined), dim, 0, (length - 1) * stride + 1)
    return x


def unfold(
    context: Lowering, x: View, window: Window, value: Number = 0.0, shape: Sequence[int] = ()
) -> View:
    """[B, C, X..] -> [B, C, Y.., K..]: the windows of x with `value` around it.

    `shape` gives Y where it is not the usual (X + 2·padding − reach − 1) ÷ stride + 1 (ceil mode).
    """
    rank, reach = window.rank, window.reach
    sides = []
    places = list(shape)
    for d in range(rank):
        length, pad = x.shape[2 + d], window.padding[d]
        if not shape:
            places.append((length + 2 * pad - reach[d] - 1) // window.stride[d] + 1)
        end = (places[d] - 1) * window.stride[d] + reach[d] + 1
        sides.append((pad, max(pad, end - length - pad)))
    plane = context.node(padded(context, x, sides, value))
    steps = views.contiguous(plane.shape)
    strides = [
        *steps[:2],
        *(steps[2 + d] * window.stride[d] for d in range(rank)),
        *(steps[2 + d] * window.dilation[d] for d in range(rank)),
    ]
    return views.view(plane, [*plane.shape[:2], *places, *window.size], strides, 0)


def fold(context: Lowering, parts: View, window: Window, shape: Sequence[int]) -> View:
    """[B, C, Y.., K..] -> [B, C, X..] with X = `shape`: each element the sum of its places in all windows."""
    rank = window.rank
    order = [0, 1, *range(2 + rank, 2 + 2 * rank), *range(2, 2 + rank)]
    planes = spread(context, views.permute(parts, order), window.stride)
    sides, starts = [], []
    for d in range(rank):
        before = max(0, window.reach[d] - window.padding[d])
        after = shape[d] - 1 + window.padding[d] - (planes.shape[2 + rank + d] - 1)
        sides.append((before, max(0, after)))
        starts.append(before + window.padding[d])
    plane = context.node(padded(context, planes, sides))
    steps = views.contiguous(plane.shape)
    inner = steps[2 + rank :]
    offset = sum(start * step for start, step in zip(starts, inner, strict=True))
    strides = [
        *steps[:2],
        *inner,
        *(steps[2 + d] - inner[d] * window.dilation[d] for d in range(rank)),
    ]
    seen = views.view(plane, [*plane.shape[:2], *shape, *window.size], strides, offset)
    return context.sum(seen, range(2 + rank, 2 + 2 * rank))
