"""Rules for matrix products and reductions; long ones run in chunks of 4,096 combined in a fixed order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch.fx import Node as Traced

from assay.program.isa import DType, Input, Op
from assay.program.lowering import views
from assay.program.lowering.context import Lowering, Number, Refused
from assay.program.lowering.elementwise import result_dtype
from assay.program.lowering.integer_sums import EXACT, largest, whole_amax, whole_sum
from assay.program.lowering.registry import lowers
from assay.program.lowering.views import View


def _floats(*operands: View) -> None:
    if any(x.dtype is not DType.F32 for x in operands):
        raise Refused("matrix products are of float32 tensors")


@lowers("mm.default", "bmm.default")
def mm(context: Lowering, traced: Traced, x: View, y: View) -> View:
    _floats(x, y)
    return context.matmul(x, y)


@lowers("addmm.default", "baddbmm.default")
def addmm(
    context: Lowering, traced: Traced, bias: View, x: View, y: View, beta: Number = 1, alpha: Number = 1
) -> View:
    _floats(bias, x, y)
    product = context.matmul(x, y)
    if alpha != 1:
        product = context.mul(product, alpha)
    if beta == 0:
        return product
    return context.add(product, bias if beta == 1 else context.mul(bias, beta))


@lowers("mv.default")
def mv(context: Lowering, traced: Traced, x: View, y: View) -> View:
    _floats(x, y)
    return context.reshape(context.matmul(x, views.unsqueeze(y, 1)), x.shape[:1])


@lowers("dot.default")
def dot(context: Lowering, traced: Traced, x: View, y: View) -> View:
    _floats(x, y)
    return context.reshape(context.matmul(views.unsqueeze(x, 0), views.unsqueeze(y, 1)), ())


def _dims(dims: int | Sequence[int] | None) -> Sequence[int]:
    if dims is None:
        return ()
    return (dims,) if isinstance(dims, int) else dims


@lowers("sum.default", "sum.dim_IntList")
def sum_(
    context: Lowering, traced: Traced, x: View, dims: Any = None, keepdim: bool = False, dtype: Any = None
) -> View:
    wanted = result_dtype(traced)
    if wanted is DType.I32:
        return whole_sum(context, x, _dims(dims), keepdim)
    return context.convert(context.sum(context.convert(x, DType.F32), _dims(dims), keepdim), wanted)


@lowers("mean.default", "mean.dim")
def mean(
    context: Lowering, traced: Traced, x: View, dims: Any = None, keepdim: bool = False, dtype: Any = None
) -> View:
    return context.mean(context.convert(x, DType.F32), _dims(dims), keepdim)


@lowers("var.correction")
def var(
    context: Lowering,
    traced: Traced,
    x: View,
    dims: Any = None,
    correction: Number | None = None,
    keepdim: bool = False,
) -> View:
    return _variance(context, x, _dims(dims), 1 if correction is None else correction, keepdim)[0]


@lowers("var_mean.correction")
def var_mean(
    context: Lowering,
    traced: Traced,
    x: View,
    dims: Any = None,
    correction: Number | None = None,
    keepdim: bool = False,
) -> tuple[View, View]:
    return _variance(context, x, _dims(dims), 1 if correction is None else correction, keepdim)


def _variance(
    context: Lowering, x: View, dims: Sequence[int], correction: Number, keepdim: bool
) -> tuple[View, View]:
    centre = context.mean(x, dims, keepdim=True)
    apart = context.sub(x, centre)
    total = context.sum(context.mul(apart, apart), dims, keepdim)
    count = x.elements // total.elements
    if count <= correction:
        raise Refused(f"the variance of {count} elements with correction {correction} is not a number")
    return context.div(total, float(count - correction)), context.reshape(centre, total.shape)


@lowers("linalg_vector_norm.default")
def vector_norm(
    context: Lowering,
    traced: Traced,
    x: View,
    order: Number = 2,
    dims: Any = None,
    keepdim: bool = False,
    dtype: Any = None,
) -> View:
    if order == 2:
        return context.unary(Op.SQRT, context.sum(context.mul(x, x), _dims(dims), keepdim))
    if order == 1:
        return context.sum(context.unary(Op.ABS, x), _dims(dims), keepdim)
    if order == math.inf:
        return context.amax(context.unary(Op.ABS, x), _dims(dims), keepdim)
    raise Refused(f"the norm of order {order} is not supported; 1, 2 and infinity are")


@lowers("amax.default")
def amax(context: Lowering, traced: Traced, x: View, dims: Any = (), keepdim: bool = False) -> View:
    wanted = result_dtype(traced)
    if wanted is DType.I32:
        return whole_amax(context, x, _dims(dims), keepdim)
    return context.convert(context.amax(context.convert(x, DType.F32), _dims(dims), keepdim), wanted)


@lowers("amin.default")
def amin(context: Lowering, traced: Traced, x: View, dims: Any = (), keepdim: bool = False) -> View:
    if x.dtype is not DType.F32:
        raise Refused("it has a float32 form only")
    negative = context.amax(context.unary(Op.NEG, x), _dims(dims), keepdim)
    return context.unary(Op.NEG, negative)


@lowers("max.default")
def max_all(context: Lowering, traced: Traced, x: View) -> View:
    return amax(context, traced, x)


@lowers("min.default")
def min_all(context: Lowering, traced: Traced, x: View) -> View:
    return amin(context, traced, x)


@lowers("argmax.default")
def argmax(context: Lowering, traced: Traced, x: View, dim: int | None = None, keepdim: bool = False) -> View:
    if x.dtype is DType.I32 and largest(context, x) > EXACT:
        x = context.compare(Op.EQ, x, whole_amax(context, x, _dims(dim), keepdim=True))
    return context.reduce(context.builder.argmax, context.convert(x, DType.F32), _dims(dim), keepdim)


@lowers("argmin.default")
def argmin(context: Lowering, traced: Traced, x: View, dim: int | None = None, keepdim: bool = False) -> View:
    if x.dtype is DType.I32:
        turned = context.apply(Op.ISUB, DType.I32, *context.pair(-1, x, DType.I32))
        return argmax(context, traced, turned, dim, keepdim)
    return argmax(context, traced, context.unary(Op.NEG, x), dim, keepdim)


@lowers("max.dim")
def max_dim(context: Lowering, traced: Traced, x: View, dim: int, keepdim: bool = False) -> tuple[View, View]:
    if x.dtype is not DType.F32:
        raise Refused("it has a float32 form only")
    return context.amax(x, (dim,), keepdim), argmax(context, traced, x, dim, keepdim)


@lowers("any.default", "any.dim", "any.dims")
def any_(context: Lowering, traced: Traced, x: View, dims: Any = None, keepdim: bool = False) -> View:
    truth = context.convert(context.convert(x, DType.BOOL), DType.F32)
    return context.convert(context.amax(truth, _dims(dims), keepdim), DType.BOOL)


@lowers("all.default", "all.dim", "all.dims")
def all_(context: Lowering, traced: Traced, x: View, dims: Any = None, keepdim: bool = False) -> View:
    return context.invert(
        any_(context, traced, context.invert(context.convert(x, DType.BOOL)), dims, keepdim)
    )


@lowers("cumsum.default")
def cumsum(context: Lowering, traced: Traced, x: View, dim: int, dtype: Any = None) -> View:
    """Prefix sums, each an exact row sum of the masked prefix: the work is quadratic in the length."""
    wanted = result_dtype(traced)
    if not x.shape:
        return context.convert(x, wanted)
    last, length = len(x.shape) - 1, x.shape[dim]
    large = wanted is DType.I32 and largest(context, x) * length > EXACT
    kind = DType.I32 if large else DType.F32
    moved = views.swap(context.convert(x, kind), dim % len(x.shape), last)
    positions = context.iota(length)
    upto = context.compare(Op.LE, positions, views.unsqueeze(positions, 1))
    prefixes = context.where(upto, views.unsqueeze(moved, last), 0, kind)
    sums = whole_sum(context, prefixes, (-1,), False) if large else context.sum(prefixes, (-1,))
    return views.swap(context.convert(sums, wanted), dim % len(x.shape), last)


def scatter_rows(context: Lowering, rows: View, idx: View, count: int) -> View:
    """f32 [count, D..]: sum of rows[i] over idx[i] = v; chunks of 4,096 rows are added in order."""
    width = rows.shape[len(idx.shape) :]
    n, columns = idx.elements, rows.elements // idx.elements
    table = views.swap(context.reshape(rows, (n, columns)))
    flat = context.reshape(idx, (n,))

    def part(start: int, stop: int) -> Input:
        seen = context.node(views.narrow(table, 1, start, stop))
        return context.builder.scatter_sum(seen, context.node(views.narrow(flat, 0, start, stop)), count)

    total = context.in_chunks(n, part)
    return context.reshape(views.swap(total), (count, *width))
