"""Rules for operations that move elements: views, joins, gathers, scatters, embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.fx import Node as Traced

from assay.program.isa import DType, Op
from assay.program.lowering import views
from assay.program.lowering.context import Lowering, Number, Operand, Refused
from assay.program.lowering.contraction import scatter_rows
from assay.program.lowering.registry import lowers
from assay.program.lowering.views import View, whole


@lowers(
    "alias.default",
    "clone.default",
    "detach.default",
    "contiguous.default",
    "lift_fresh_copy.default",
    "_unsafe_view.default",
    "view.default",
    "reshape.default",
    "unsqueeze.default",
    "squeeze.default",
    "squeeze.dim",
    "squeeze.dims",
)
def same_order(context: Lowering, traced: Traced, x: View, *_args: Any, **_layout: Any) -> View:
    """The same elements in the same order, in the result's shape."""
    shape = tuple(traced.meta["val"].shape)
    return x if shape == x.shape else context.reshape(x, shape)


@lowers("permute.default")
def permute(context: Lowering, traced: Traced, x: View, dims: Sequence[int]) -> View:
    return views.permute(x, dims)


@lowers("transpose.int")
def transpose(context: Lowering, traced: Traced, x: View, a: int, b: int) -> View:
    return views.swap(x, a, b)


@lowers("t.default")
def t(context: Lowering, traced: Traced, x: View) -> View:
    return views.swap(x) if len(x.shape) == 2 else x


@lowers("expand.default")
def expand(context: Lowering, traced: Traced, x: View, shape: Sequence[int], **_implicit: Any) -> View:
    return views.expand(x, shape)


def _bounds(size: int, start: int | None, stop: int | None) -> tuple[int, int]:
    begin, end = start or 0, size if stop is None else stop
    begin, end = (v + size if v < 0 else v for v in (begin, end))
    begin, end = max(0, min(begin, size)), max(0, min(end, size))
    return begin, max(begin, end)


@lowers("slice.Tensor")
def slice_(
    context: Lowering,
    traced: Traced,
    x: View,
    dim: int = 0,
    start: int | None = None,
    stop: int | None = None,
    step: int = 1,
) -> View:
    return views.narrow(x, dim, *_bounds(x.shape[dim], start, stop), step)


@lowers("select.int")
def select(context: Lowering, traced: Traced, x: View, dim: int, index: int) -> View:
    return views.select(x, dim, index)


@lowers("as_strided.default")
def as_strided(
    context: Lowering,
    traced: Traced,
    x: View,
    sizes: Sequence[int],
    strides: Sequence[int],
    offset: int | None = None,
) -> View:
    """Elements of x by memory location. Raises Refused if the memory has others than x's."""
    source = traced.args[0]
    assert isinstance(source, Traced)
    memory = source.meta["val"]
    order = sorted(range(memory.dim()), key=lambda d: (-memory.stride(d), -memory.shape[d]))
    dense = views.permute(x, order)
    if [memory.stride(d) for d in order if memory.shape[d] > 1] != [
        stride for n, stride in zip(dense.shape, views.contiguous(dense.shape), strict=True) if n > 1
    ]:
        raise Refused(
            "it reads the memory of a tensor that has gaps or repetitions; slice and expand instead"
        )
    begin = 0 if offset is None else offset - int(memory.storage_offset())
    last = begin + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
    if begin < 0 or last >= x.elements:
        raise Refused("it reads beyond the tensor that it is given")
    return views.view(context.node(dense), sizes, strides, begin)


@lowers("unfold.default")
def unfold(context: Lowering, traced: Traced, x: View, dim: int, size: int, step: int) -> View:
    if not x.shape:
        return views.unsqueeze(x, 0)
    shape = tuple(traced.meta["val"].shape)
    strides = [s * step if d == dim % len(x.shape) else s for d, s in enumerate(x.strides)]
    return views.view(x.base, shape, [*strides, x.strides[dim]], x.offset)


@lowers("split_with_sizes.default")
def split_with_sizes(
    context: Lowering, traced: Traced, x: View, sizes: Sequence[int], dim: int = 0
) -> list[View]:
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return [views.narrow(x, dim, at, at + size) for at, size in zip(starts, sizes, strict=True)]


@lowers("split.Tensor")
def split(context: Lowering, traced: Traced, x: View, size: int, dim: int = 0) -> list[View]:
    total = x.shape[dim]
    return [views.narrow(x, dim, at, min(at + size, total)) for at in range(0, total, size)]


@lowers("unbind.int")
def unbind(context: Lowering, traced: Traced, x: View, dim: int = 0) -> list[View]:
    return [views.select(x, dim, i) for i in range(x.shape[dim])]


@lowers("diagonal.default")
def diagonal(context: Lowering, traced: Traced, x: View, offset: int = 0, a: int = 0, b: int = 1) -> View:
    rest = [d for d in range(len(x.shape)) if d not in (a % len(x.shape), b % len(x.shape))]
    start = offset * x.strides[b] if offset >= 0 else -offset * x.strides[a]
    shape = tuple(traced.meta["val"].shape)
    return views.view(
        x.base, shape, [*(x.strides[d] for d in rest), x.strides[a] + x.strides[b]], x.offset + start
    )


@lowers("flip.default")
def flip(context: Lowering, traced: Traced, x: View, dims: Sequence[int]) -> View:
    for dim in dims:
        x = views.flip(x, dim)
    return x


@lowers("roll.default")
def roll(context: Lowering, traced: Traced, x: View, shifts: Sequence[int], dims: Sequence[int] = ()) -> View:
    if not dims:
        flat = roll(context, traced, context.reshape(x, (x.elements,)), shifts, (0,))
        return context.reshape(flat, x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        cut = -shift % x.shape[dim]
        if cut:
            x = context.concat([views.narrow(x, dim, cut, x.shape[dim]), views.narrow(x, dim, 0, cut)], dim)
    return x


@lowers("cat.default")
def cat(context: Lowering, traced: Traced, parts: Sequence[View], dim: int = 0) -> View:
    """Concatenation; parts without elements may have any shape, as in PyTorch."""
    dtypes = {x.dtype for x in parts}
    if len(dtypes) != 1:
        raise Refused("joined tensors have one dtype")
    return context.concat([x for x in parts if x.elements], dim)


@lowers("repeat.default")
def repeat(context: Lowering, traced: Traced, x: View, counts: Sequence[int]) -> View:
    missing = len(counts) - len(x.shape)
    sizes = (*([1] * missing), *x.shape)
    x = context.reshape(x, [part for n in sizes for part in (1, n)])
    x = views.expand(x, [part for n, c in zip(sizes, counts, strict=True) for part in (c, n)])
    return context.reshape(x, [n * c for n, c in zip(sizes, counts, strict=True)])


@lowers("constant_pad_nd.default")
def constant_pad(context: Lowering, traced: Traced, x: View, pads: Sequence[int], value: Number = 0) -> View:
    for back in range(len(pads) // 2):
        x = padded(context, x, len(x.shape) - 1 - back, pads[2 * back], pads[2 * back + 1], value)
    return x


def padded(context: Lowering, x: View, dim: int, before: int, after: int, value: Number = 0) -> View:
    """x with constants around it along `dim`; negative counts crop."""
    x = views.narrow(x, dim, max(0, -before), x.shape[dim] - max(0, -after))
    parts = [x]
    for count, at in ((before, 0), (after, len(parts) + 1)):
        if count > 0:
            shape = tuple(count if d == dim else n for d, n in enumerate(x.shape))
            parts.insert(at, context.const(value, x.dtype, shape))
    return x if len(parts) == 1 else context.concat(parts, dim)


@lowers("slice_backward.default")
def slice_backward(
    context: Lowering,
    traced: Traced,
    g: View,
    sizes: Sequence[int],
    dim: int,
    start: int,
    stop: int,
    step: int,
) -> View:
    begin, end = _bounds(sizes[dim], start, stop)
    if begin == end:
        return context.const(0.0, DType.F32, tuple(sizes))
    if step != 1:
        g = spread(context, g, dim, step, end - begin)
    return padded(context, g, dim % len(sizes), begin, sizes[dim] - end)


def spread(context: Lowering, g: View, dim: int, step: int, length: int) -> View:
    """g's entries `step` apart along `dim` with zeros between, `length` in all."""
    dim %= len(g.shape)
    wide = padded(context, views.unsqueeze(g, dim + 1), dim + 1, 0, step - 1)
    shape = tuple(n * step if d == dim else n for d, n in enumerate(g.shape))
    return views.narrow(context.reshape(wide, shape), dim, 0, length)


@lowers("select_backward.default")
def select_backward(
    context: Lowering, traced: Traced, g: View, sizes: Sequence[int], dim: int, index: int
) -> View:
    dim %= len(sizes)
    index %= sizes[dim]
    return padded(context, views.unsqueeze(g, dim), dim, index, sizes[dim] - index - 1)


@lowers("slice_scatter.default")
def slice_scatter(
    context: Lowering,
    traced: Traced,
    x: View,
    part: View,
    dim: int = 0,
    start: int | None = None,
    stop: int | None = None,
    step: int = 1,
) -> View:
    if step != 1:
        raise Refused("a strided slice cannot be written")
    begin, end = _bounds(x.shape[dim], start, stop)
    if begin == end:
        return x
    parts = [views.narrow(x, dim, 0, begin)] if begin else []
    parts.append(part)
    if end < x.shape[dim]:
        parts.append(views.narrow(x, dim, end, x.shape[dim]))
    return context.concat(parts, dim)


@lowers("select_scatter.default")
def select_scatter(context: Lowering, traced: Traced, x: View, part: View, dim: int, index: int) -> View:
    index %= x.shape[dim]
    return slice_scatter(context, traced, x, views.unsqueeze(part, dim), dim, index, index + 1)


@lowers("diagonal_scatter.default")
def diagonal_scatter(
    context: Lowering, traced: Traced, x: View, part: View, offset: int = 0, a: int = 0, b: int = 1
) -> View:
    """x with its diagonal written: where the places along `a`, moved by offset, and along `b` are equal."""
    rank = len(x.shape)
    a, b = a % rank, b % rank
    along, across = (a, b) if offset >= 0 else (b, a)
    rest = [d for d in range(rank) if d not in (a, b)]
    full = padded(context, part, rank - 2, 0, x.shape[along] - part.shape[-1])
    place = {**{d: i for i, d in enumerate(rest)}, along: rank - 2, across: rank - 1}
    line = views.permute(views.unsqueeze(full, rank - 1), [place[d] for d in range(rank)])
    shapes = [[x.shape[d] if d == e else 1 for e in range(rank)] for d in (a, b)]
    first, second = (
        context.reshape(context.iota(x.shape[d]), s) for d, s in zip((a, b), shapes, strict=True)
    )
    first = context.apply(Op.IADD, DType.I32, *context.pair(first, offset, DType.I32))
    return context.where(context.compare(Op.EQ, first, second), line, x, x.dtype)


# Rows of a table


def _counts_up(context: Lowering, idx: View, rows: int) -> bool:
    """True if idx is 0, 1, 2, ..., so that taking rows is slicing."""
    return (
        idx.plain
        and len(idx.shape) == 1
        and idx.elements <= rows
        and context.builder.node(idx.base).op is Op.IOTA
        and idx.base.shape == idx.shape
    )


@lowers("embedding.default")
def embedding(context: Lowering, traced: Traced, table: View, idx: View, *_options: Any) -> View:
    if _counts_up(context, idx, table.shape[0]):
        return views.narrow(table, 0, 0, idx.elements)
    return whole(context.builder.take(context.node(table), context.node(context.convert(idx, DType.I32))))


@lowers("embedding_dense_backward.default")
def embedding_backward(
    context: Lowering, traced: Traced, g: View, idx: View, rows: int, padding: int, scale: bool
) -> View:
    if scale:
        raise Refused("gradients are not scaled by frequency")
    if _counts_up(context, idx, rows):
        result = padded(context, g, 0, 0, rows - idx.elements)
    else:
        result = scatter_rows(context, g, context.convert(idx, DType.I32), rows)
    if padding < 0:
        return result
    kept = context.invert(context.compare(Op.EQ, views.unsqueeze(context.iota(rows), 1), padding))
    return context.where(kept, result, 0.0, DType.F32)


@lowers("index_select.default")
def index_select(context: Lowering, traced: Traced, x: View, dim: int, idx: View) -> View:
    moved = whole(context.builder.take(context.node(views.swap(x, 0, dim)), context.node(idx)))
    return views.swap(moved, 0, dim)


@lowers("copy.default")
def copy(context: Lowering, traced: Traced, x: View, source: View, *_options: Any) -> View:
    return views.expand(context.convert(source, x.dtype), x.shape)


@lowers("fill.Scalar", "fill.Tensor")
def fill(context: Lowering, traced: Traced, x: View, value: Operand) -> View:
    if isinstance(value, View):
        return views.expand(context.convert(value, x.dtype), x.shape)
    return context.const(value, x.dtype, x.shape)
