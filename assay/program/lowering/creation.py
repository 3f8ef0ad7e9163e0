"""Rules for operations that create tensors: constants and ranges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.fx import Node as Traced

from assay.program.isa import DType, Op
from assay.program.lowering.context import Lowering, Number
from assay.program.lowering.elementwise import add, mul, result_dtype
from assay.program.lowering.registry import lowers
from assay.program.lowering.views import View, unsqueeze, whole


@lowers("full.default", "new_full.default")
def full(context: Lowering, traced: Traced, *args: Any, **_layout: Any) -> View:
    value = args[-1]
    return context.const(value, result_dtype(traced), tuple(traced.meta["val"].shape))


@lowers("full_like.default")
def full_like(context: Lowering, traced: Traced, _like: View, value: Number, **_layout: Any) -> View:
    return context.const(value, result_dtype(traced), tuple(traced.meta["val"].shape))


@lowers("scalar_tensor.default")
def scalar_tensor(context: Lowering, traced: Traced, value: Number, **_layout: Any) -> View:
    return context.const(value, result_dtype(traced))


@lowers("zeros.default", "zeros_like.default", "new_zeros.default")
def zeros(context: Lowering, traced: Traced, *_shape: Any, **_layout: Any) -> View:
    return context.const(0, result_dtype(traced), tuple(traced.meta["val"].shape))


@lowers("ones.default", "ones_like.default", "new_ones.default")
def ones(context: Lowering, traced: Traced, *_shape: Any, **_layout: Any) -> View:
    return context.const(1, result_dtype(traced), tuple(traced.meta["val"].shape))


@lowers(
    "empty.memory_format",
    "empty_permuted.default",
    "empty_strided.default",
    "empty_like.default",
    "new_empty.default",
    "new_empty_strided.default",
)
def empty(context: Lowering, traced: Traced, *_shape: Any, **_layout: Any) -> View:
    """Uninitialised memory is defined as zeros."""
    return zeros(context, traced)


@lowers("arange.start_step", "arange.start", "arange.default")
def arange(context: Lowering, traced: Traced, *bounds: Number, **_layout: Any) -> View:
    start, step = (bounds[0] if len(bounds) > 1 else 0), (bounds[2] if len(bounds) > 2 else 1)
    (length,) = traced.meta["val"].shape
    dtype = result_dtype(traced)
    x = context.convert(context.iota(length), dtype)
    if step != 1:
        x = mul(context, traced, x, step)
    return x if start == 0 else add(context, traced, x, start)


@lowers("eye.default", "eye.m")
def eye(context: Lowering, traced: Traced, *_sizes: int, **_layout: Any) -> View:
    rows, columns = traced.meta["val"].shape
    diagonal = context.compare(Op.EQ, _column(context, rows), context.iota(columns))
    return context.convert(diagonal, result_dtype(traced))


def triangle(context: Lowering, shape: Sequence[int], diagonal: int, lower: bool) -> View:
    """bool [rows, columns]: at or below (above) the diagonal."""
    rows, columns = _column(context, shape[-2]), context.iota(shape[-1])
    edge = context.apply(Op.IADD, DType.I32, *context.pair(rows, diagonal)) if diagonal else rows
    return context.compare(Op.LE, columns, edge) if lower else context.compare(Op.LE, edge, columns)


@lowers("tril.default")
def tril(context: Lowering, traced: Traced, x: View, diagonal: int = 0) -> View:
    mask = triangle(context, x.shape, diagonal, lower=True)
    return _masked(context, mask, x)


@lowers("triu.default")
def triu(context: Lowering, traced: Traced, x: View, diagonal: int = 0) -> View:
    mask = triangle(context, x.shape, diagonal, lower=False)
    return _masked(context, mask, x)


def _column(context: Lowering, length: int) -> View:
    return unsqueeze(context.iota(length), 1)


def _masked(context: Lowering, mask: View, x: View) -> View:
    """x where the mask holds, else 0; the mask itself where x is a constant true."""
    if x.dtype is DType.BOOL and x.base == whole(context.builder.const(True, DType.BOOL)).base:
        return context.where(mask, True, False, DType.BOOL) if len(x.shape) > 2 else mask
    return context.where(mask, x, 0, x.dtype)
