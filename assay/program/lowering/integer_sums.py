"""Rules for sums and maxima of integers, by f32 row sums, which are exact up to 2^24.

Contract: `whole_sum` is the sum modulo 2^32, `whole_amax` the maximum, of every i32, u8 and bool tensor.
Values known to be small (bools, bytes, positions) are summed in one row sum; others in three parts of at most
12 bits, in rows of at most 4,096 numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from assay.program.isa import DType, Op
from assay.program.lowering import views
from assay.program.lowering.context import Lowering
from assay.program.lowering.integers import shifted_left, shifted_right
from assay.program.lowering.views import View
from assay.program.rules import MAX_FAN_IN

EXACT = 1 << 24
_SMALL = {DType.BOOL: 1, DType.U8: 255}


def largest(context: Lowering, x: View) -> int:
    """Upper bound of the absolute values of x."""
    if x.dtype in _SMALL:
        return _SMALL[x.dtype]
    node = context.builder.node(x.base)
    if node.op is Op.IOTA:
        return max(node.shape)
    if node.op is Op.CONVERT and node.inputs[0].dtype in _SMALL:
        return _SMALL[node.inputs[0].dtype]
    if node.op is Op.CONST:
        bits = node.attrs[0]
        return min(bits, (1 << 32) - bits)
    return 1 << 31


def _add(context: Lowering, x: View, y: View) -> View:
    return context.apply(Op.IADD, DType.I32, x, y)


def _sub(context: Lowering, x: View, y: View) -> View:
    return context.apply(Op.ISUB, DType.I32, x, y)


def _below(context: Lowering, x: View, bits: int) -> tuple[View, View]:
    """x >> bits, and the rest of x."""
    high = shifted_right(context, x, bits)
    return high, _sub(context, x, shifted_left(context, high, bits))


def _row_sum(context: Lowering, x: View) -> View:
    """i32 [..., n], n at most 4,096 -> i32 [...]."""

    def part(z: View) -> View:
        return context.convert(context.sum(context.convert(z, DType.F32), (-1,)), DType.I32)

    rest, low = _below(context, x, 12)
    high, middle = _below(context, rest, 10)
    total = _add(context, part(low), shifted_left(context, part(middle), 12))
    return _add(context, total, shifted_left(context, part(high), 22))


def _long_sum(context: Lowering, x: View) -> View:
    """i32 [..., n] -> i32 [...], in rows of 4,096."""
    *lead, length = x.shape
    if length <= MAX_FAN_IN:
        return _row_sum(context, x)
    rows, rest = divmod(length, MAX_FAN_IN)
    full = views.narrow(x, len(lead), 0, rows * MAX_FAN_IN)
    total = _long_sum(context, _row_sum(context, context.reshape(full, (*lead, rows, MAX_FAN_IN))))
    if not rest:
        return total
    left = views.narrow(x, len(lead), rows * MAX_FAN_IN, length)
    return _add(context, total, _row_sum(context, left))


def _rows(context: Lowering, x: View, dims: Sequence[int]) -> tuple[View, list[int], list[int]]:
    """x as [kept..., n], and the shape of its reduction without and with the reduced dimensions."""
    gone = {d % len(x.shape) for d in dims} if dims else set(range(len(x.shape)))
    kept = [d for d in range(len(x.shape)) if d not in gone]
    lead = [x.shape[d] for d in kept]
    moved = views.permute(x, [*kept, *sorted(gone)])
    rows = context.reshape(moved, (*lead, prod(x.shape[d] for d in gone)))
    return rows, lead, [1 if d in gone else n for d, n in enumerate(x.shape)]


def whole_sum(context: Lowering, x: View, dims: Sequence[int], keepdim: bool) -> View:
    """i32: the sum along `dims` (none given: all) modulo 2^32."""
    if not x.shape:
        return context.convert(x, DType.I32)
    rows, lead, wide = _rows(context, x, dims)
    if largest(context, x) * rows.shape[-1] <= EXACT:
        return context.convert(context.sum(context.convert(x, DType.F32), dims, keepdim), DType.I32)
    made = _long_sum(context, context.convert(rows, DType.I32))
    return context.reshape(made, wide if keepdim else lead)


def whole_amax(context: Lowering, x: View, dims: Sequence[int], keepdim: bool) -> View:
    """i32: maximum along `dims` (none: all): of the upper halves, then of the lower halves among them."""
    if not x.shape:
        return context.convert(x, DType.I32)
    if largest(context, x) <= EXACT:
        return context.convert(context.amax(context.convert(x, DType.F32), dims, keepdim), DType.I32)
    high, low = _below(context, x, 16)

    def most(z: View, keep: bool) -> View:
        return context.convert(context.amax(context.convert(z, DType.F32), dims, keep), DType.I32)

    there = context.compare(Op.EQ, high, most(high, True))
    last = most(context.where(there, low, -1, DType.I32), keepdim)
    return _add(context, shifted_left(context, most(high, keepdim), 16), last)
