"""Rules for reading and writing by index: gathers, scatters, rows at computed positions.

Contract: reads copy bits. Adding by index is the scatter_sum instruction, one exact sum per position. Writes
copy bits: each position looks up what is written there. If two entries write one position, the last stays, as
on PyTorch's CPU, in small tensors; in larger ones indices must be distinct. Negative indices count from the
end where PyTorch's do.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch.fx import Node as Traced

from assay.program.isa import DType, Op
from assay.program.lowering import views
from assay.program.lowering.context import Lowering, Operand, Refused
from assay.program.lowering.contraction import scatter_rows
from assay.program.lowering.indexing import padded, spread
from assay.program.lowering.ordering import picked
from assay.program.lowering.registry import lowers
from assay.program.lowering.views import View, whole
from assay.program.rules import MAX_FAN_IN

COMPARED = 1 << 16
"""Maximum number of entry-position pairs that are all compared; beyond, entries are identified by their
sum."""


def from_end(context: Lowering, idx: View, size: int) -> View:
    """idx with negative values counted from the end."""
    node = context.builder.node(idx.base)
    if node.op is Op.IOTA or (node.op is Op.CONVERT and node.inputs[0].dtype in (DType.U8, DType.BOOL)):
        return idx
    wrapped = context.apply(Op.IADD, DType.I32, *context.pair(idx, size))
    return context.where(context.compare(Op.LT, idx, 0), wrapped, idx, DType.I32)


def _integers(indices: Sequence[View | None]) -> list[tuple[int, View]]:
    given = [(dim, idx) for dim, idx in enumerate(indices) if idx is not None]
    if any(idx.dtype is DType.BOOL for _, idx in given):
        raise Refused(
            "a mask chooses as many elements as are true, which the program cannot know; "
            "use torch.where with the mask"
        )
    if not given or any(idx.dtype is not DType.I32 for _, idx in given):
        raise Refused("indexing takes integer tensors")
    return given


def _together(context: Lowering, x: View, given: Sequence[tuple[int, View]]) -> tuple[View, View]:
    """x with its indexed dimensions first, joined into one, and the joint index."""
    dims = [dim for dim, _ in given]
    moved = views.permute(x, [*dims, *(d for d in range(len(x.shape)) if d not in dims)])
    table = context.reshape(moved, (prod(moved.shape[: len(dims)]), *moved.shape[len(dims) :]))
    line: View | None = None
    for dim, idx in given:
        idx = from_end(context, idx, x.shape[dim])
        if line is None:
            line = idx
            continue
        line = context.apply(Op.IMUL, DType.I32, *context.pair(line, x.shape[dim], DType.I32))
        line = context.apply(Op.IADD, DType.I32, line, idx)
    assert line is not None
    return table, line


def _place(given: Sequence[tuple[int, View]]) -> int:
    """Position of the index's own dimensions in the result: first, unless the indices are adjacent."""
    dims = [dim for dim, _ in given]
    return dims[0] if dims == list(range(dims[0], dims[0] + len(dims))) else 0


@lowers("index.Tensor", "_unsafe_index.Tensor")
def index(context: Lowering, traced: Traced, x: View, indices: Sequence[View | None]) -> View:
    """x[:, i], x[i, j], ...: rows of a table whose rows are the indexed dimensions."""
    given = _integers(indices)
    table, line = _together(context, x, given)
    taken = whole(context.builder.take(context.node(table), context.node(line)))
    inner, before = list(range(len(line.shape))), _place(given)
    outer = list(range(len(inner), len(taken.shape)))
    return views.permute(taken, [*outer[:before], *inner, *outer[before:]])


@lowers("index_put.default", "_unsafe_index_put.default")
def index_put(
    context: Lowering,
    traced: Traced,
    x: View,
    indices: Sequence[View | None],
    rows: View,
    accumulate: bool = False,
) -> View:
    """Adds rows at the index, or overwrites them."""
    masks = [idx for idx in indices if idx is not None and idx.dtype is DType.BOOL]
    if len(masks) == len(indices) == 1 and rows.elements == 1 and not accumulate:
        mask = context.reshape(masks[0], [*masks[0].shape, *([1] * (len(x.shape) - len(masks[0].shape)))])
        return context.where(mask, context.reshape(rows, ()), x, x.dtype)
    given = _integers(indices)
    if accumulate and x.dtype is not DType.F32:
        raise Refused("only float32 rows can be added by index")
    table, line = _together(context, x, given)
    before, many = _place(given), len(line.shape)
    lead = len(x.shape) - len(given)
    shape = [n for d, n in enumerate(x.shape) if d not in [dim for dim, _ in given]]
    wide = views.expand(rows, [*shape[:before], *line.shape, *shape[before:]])
    order = [
        *range(before, before + many),
        *(d for d in range(lead + many) if not before <= d < before + many),
    ]
    source = views.permute(wide, order)
    if accumulate:
        made = context.add(table, scatter_rows(context, source, line, table.shape[0]))
    else:
        made = _written(context, table, context.reshape(line, (-1,)), context.reshape(source, (-1, *shape)))
    dims = [dim for dim, _ in given]
    moved = [*dims, *(d for d in range(len(x.shape)) if d not in dims)]
    whole_again = context.reshape(made, [x.shape[d] for d in moved])
    return views.permute(whole_again, views.inverse(moved))


def _written(context: Lowering, table: View, line: View, rows: View) -> View:
    """table [V, D..] with rows [n, D..] written at line [n]."""
    hit, source = _writers(context, views.unsqueeze(line, 0), table.shape[0])
    taken = whole(context.builder.take(context.node(rows), context.node(views.select(source, 0, 0))))
    mask = context.reshape(hit, [table.shape[0], *([1] * (len(table.shape) - 1))])
    return context.where(mask, taken, table, table.dtype)


def _writers(context: Lowering, idx: View, count: int) -> tuple[View, View]:
    """For idx i32 [rows, n] and each of `count` positions of a row: bool and i32 [rows, count], whether an
    entry names it, and the last one that does."""
    rows, n = idx.shape
    if n <= MAX_FAN_IN and n * count <= COMPARED:
        places = context.reshape(context.iota(count), (1, count, 1))
        named = context.compare(Op.EQ, views.unsqueeze(idx, 1), places)
        hits = context.node(context.convert(views.flip(named, 2), DType.F32))
        last = whole(context.builder.argmax(hits))
        last = context.apply(Op.ISUB, DType.I32, *context.pair(n - 1, last, DType.I32))
        return context.compare(Op.LT, 0.0, whole(context.builder.amax(hits))), last
    numbers = context.add(context.convert(context.iota(n), DType.F32), 1.0)
    found = summed_at(context, views.expand(numbers, (rows, n)), idx, count)
    source = context.convert(context.sub(found, 1.0), DType.I32)
    return context.compare(Op.LT, 0.0, found), source


def summed_at(context: Lowering, x: View, idx: View, count: int) -> View:
    """f32 [rows, count]: sums of x [rows, n] by each row's own idx; chunks of 4,096 are added in order."""
    total: View | None = None
    for start in range(0, x.shape[1], MAX_FAN_IN):
        parts = [
            context.node(views.narrow(y, 1, start, min(start + MAX_FAN_IN, x.shape[1]))) for y in (x, idx)
        ]
        made = whole(context.builder.scatter_sum(parts[0], parts[1], count))
        total = made if total is None else context.add(total, made)
    assert total is not None
    return total


# Along one dimension, every row by its own index


def _by_rows(context: Lowering, x: View, dim: int, like: View) -> tuple[View, list[int]]:
    """x as [rows, n] with `dim` last, cropped in its other dimensions to `like`; their sizes."""
    last = len(x.shape) - 1
    moved, other = views.swap(x, dim, last), views.swap(like, dim, last)
    for d, size in enumerate(other.shape[:-1]):
        moved = views.narrow(moved, d, 0, size)
    return context.reshape(moved, (-1, moved.shape[-1])), list(moved.shape[:-1])


@lowers("gather.default")
def gather(context: Lowering, traced: Traced, x: View, dim: int, idx: View, **_options: Any) -> View:
    """The pick instruction; an index with several entries along `dim` is one look-up in all of x."""
    if not x.shape:
        return x
    dim %= len(x.shape)
    last = len(x.shape) - 1
    if idx.shape[dim] > 1:
        table, lead = _by_rows(context, x, dim, idx)
        places = context.reshape(views.swap(idx, dim, last), (table.shape[0], -1))
        found = picked(context, table, places)
        return views.swap(context.reshape(found, (*lead, idx.shape[dim])), dim, last)
    table, idx = views.swap(x, dim, last), views.swap(idx, dim, last)
    for d, size in enumerate(idx.shape[:-1]):
        table = views.narrow(table, d, 0, size)
    taken = whole(context.builder.pick(context.node(table), context.node(views.select(idx, last, 0))))
    return views.swap(views.unsqueeze(taken, last), dim, last)


def _one_a_row(x: View, dim: int, idx: View) -> bool:
    """True if an index names one entry along `dim` of every row."""
    return idx.shape[dim] == 1 and all(
        n == m for d, (n, m) in enumerate(zip(idx.shape, x.shape, strict=True)) if d != dim
    )


def _chosen(context: Lowering, x: View, dim: int, idx: View) -> View:
    """bool like x: entries that an index with one entry along `dim` names."""
    places = context.iota(x.shape[dim])
    places = context.reshape(places, [n if d == dim else 1 for d, n in enumerate(x.shape)])
    return context.compare(Op.EQ, places, idx)


def _scattered(context: Lowering, x: View, dim: int, idx: View, source: Operand) -> tuple[View, View]:
    """[rows, entries] of an index and of its source."""
    last = len(x.shape) - 1
    places = views.swap(idx, dim, last)
    rows = context.reshape(places, (-1, places.shape[-1]))
    if not isinstance(source, View):
        return rows, context.const(source, x.dtype, rows.shape)
    cut = views.swap(context.convert(source, x.dtype), dim, last)
    for d, size in enumerate(places.shape):
        cut = views.narrow(cut, d, 0, size)
    return rows, context.reshape(cut, rows.shape)


def _put_back(context: Lowering, x: View, dim: int, rows: View, like: View) -> View:
    """x with the rows [.., n] written into the part that `like` covers."""
    last = len(x.shape) - 1
    moved = views.swap(x, dim, last)
    lead = views.swap(like, dim, last).shape[:-1]
    part = context.reshape(rows, (*lead, moved.shape[-1]))
    for d in reversed(range(len(lead))):
        if lead[d] < moved.shape[d]:
            around = moved
            for e in range(d):
                around = views.narrow(around, e, 0, lead[e])
            part = context.concat([part, views.narrow(around, d, lead[d], moved.shape[d])], d)
    return views.swap(part, dim, last)


@lowers("scatter.value", "scatter.src")
def scatter(context: Lowering, traced: Traced, x: View, dim: int, idx: View, source: Operand) -> View:
    if not x.shape:
        return context.where(context.const(True, DType.BOOL), source, x, x.dtype)
    dim %= len(x.shape)
    if _one_a_row(x, dim, idx):
        return context.where(_chosen(context, x, dim, idx), source, x, x.dtype)
    rows, written = _scattered(context, x, dim, idx, source)
    old, _ = _by_rows(context, x, dim, idx)
    hit, entry = _writers(context, rows, x.shape[dim])
    return _put_back(context, x, dim, context.where(hit, picked(context, written, entry), old, x.dtype), idx)


@lowers("scatter_add.default")
def scatter_add(context: Lowering, traced: Traced, x: View, dim: int, idx: View, source: View) -> View:
    dim %= max(len(x.shape), 1)
    if not x.shape:
        return context.add(x, source)
    if _one_a_row(x, dim, idx) and source.shape == idx.shape:
        return context.where(_chosen(context, x, dim, idx), context.add(x, source), x, DType.F32)
    if x.dtype is not DType.F32:
        raise Refused("only float32 numbers can be added by index")
    rows, added = _scattered(context, x, dim, idx, source)
    old, _ = _by_rows(context, x, dim, idx)
    made = context.add(old, summed_at(context, added, rows, x.shape[dim]))
    return _put_back(context, x, dim, made, idx)


@lowers("searchsorted.Tensor")
def searchsorted(
    context: Lowering,
    traced: Traced,
    edges: View,
    x: View,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> View:
    """Number of edges below each number."""
    if sorter is not None or len(edges.shape) != 1:
        raise Refused("the sorted numbers are one row, in their order")
    op = Op.LE if right or side == "right" else Op.LT
    below = context.compare(op, edges, views.unsqueeze(x, len(x.shape)))
    return context.convert(context.sum(context.convert(below, DType.F32), (-1,)), DType.I32)


@lowers("bucketize.Tensor")
def bucketize(
    context: Lowering, traced: Traced, x: View, edges: View, *, out_int32: bool = False, right: bool = False
) -> View:
    return searchsorted(context, traced, edges, x, right=right)


# Writing to a part in place


def box_of(places: torch.Tensor) -> list[range] | None:
    """Where `places` is not -1: a range per dimension; None if that is not a box."""
    found = []
    for d in range(places.dim()):
        rest = [e for e in range(places.dim()) if e != d]
        used = (places >= 0).any(dim=tuple(rest)) if rest else places >= 0
        at = used.nonzero().flatten().tolist()
        step = at[1] - at[0] if len(at) > 1 else 1
        span = range(at[0], at[-1] + 1, step)
        if list(span) != at:
            return None
        found.append(span)
    inside = places[torch.meshgrid(*(torch.tensor(list(r)) for r in found), indexing="ij")]
    return found if inside.numel() and torch.equal(inside.flatten(), torch.arange(inside.numel())) else None


def written_box(context: Lowering, x: View, box: Sequence[range], part: View) -> View:
    """x with `part` written into the box in order."""
    part = context.reshape(part, [len(r) for r in box])
    hit = context.const(True, DType.BOOL, part.shape)
    for d, span in enumerate(box):
        made = []
        for y in (part, hit):
            y = spread(context, y, d, span.step, (len(span) - 1) * span.step + 1) if span.step > 1 else y
            made.append(padded(context, y, d, span.start, x.shape[d] - span.start - y.shape[d]))
        part, hit = made
    return context.where(hit, part, x, x.dtype)
