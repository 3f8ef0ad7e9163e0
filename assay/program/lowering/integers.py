"""Rules for integer bit operations and integer division, from wrapping arithmetic and exact conversions.

Contract: shifts are arithmetic, and exact for every i32, as PyTorch's for int32; so are `and`, `or`, `xor`
and `not`. Integer division and remainder are exact for operands up to 2^30, sums of a tensor modulo 2^32, and
maxima always. int64 tensors are i32 here: values beyond 31 bits do not exist, and constants beyond them are
refused. Not guaranteed: few nodes for `x & y` of two tensors, which is computed bit by bit; a constant mask
costs a few nodes per run of ones.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.fx import Node as Traced

from assay.program.isa import DType, Op
from assay.program.lowering.context import Lowering, Number, Operand, Refused
from assay.program.lowering.elementwise import result_dtype
from assay.program.lowering.registry import Rule, lowers
from assay.program.lowering.remainders import Divided
from assay.program.lowering.views import View

_BITS = 32


def _signed(word: int) -> int:
    return ((word + (1 << 31)) % (1 << 32)) - (1 << 31)


def _i32(context: Lowering, op: Op, x: Operand, y: Operand) -> View:
    first, second = (z if isinstance(z, View) else _signed(int(z)) for z in (x, y))
    return context.apply(op, DType.I32, *context.pair(first, second, DType.I32))


def _add(context: Lowering, x: Operand, y: Operand) -> View:
    return _i32(context, Op.IADD, x, y)


def _sub(context: Lowering, x: Operand, y: Operand) -> View:
    return _i32(context, Op.ISUB, x, y)


def shifted_left(context: Lowering, x: View, by: int) -> View:
    """x · 2^by modulo 2^32."""
    return x if by == 0 else _i32(context, Op.IMUL, x, 1 << by)


def shifted_right(context: Lowering, x: View, by: int) -> View:
    """floor(x · 2^-by), exact: a multiple of 256 fits an f32, and so does the rest."""
    if by == 0:
        return x
    if by >= _BITS - 1:
        return context.where(context.compare(Op.LT, x, 0), -1, 0, DType.I32)
    low = context.convert(context.convert(x, DType.U8), DType.I32)
    high = context.convert(_sub(context, x, low), DType.F32)
    scaled = context.mul(high, 2.0**-by)
    if by > 8:
        return context.convert(context.unary(Op.FLOOR, scaled), DType.I32)
    rest = context.unary(Op.FLOOR, context.mul(context.convert(low, DType.F32), 2.0**-by))
    return _add(context, context.convert(scaled, DType.I32), context.convert(rest, DType.I32))


def _runs(mask: int) -> Iterator[tuple[int, int]]:
    """(first, past the last) of each run of ones in a word."""
    start = None
    for bit in range(_BITS + 1):
        one = bit < _BITS and mask >> bit & 1
        if one and start is None:
            start = bit
        if not one and start is not None:
            yield start, bit
            start = None


def masked(context: Lowering, x: View, mask: int) -> View:
    """x & mask: for every run of ones, the rest of x below its end minus the rest below its start."""
    total: View | None = None
    for start, stop in _runs(mask % (1 << _BITS)):
        part = shifted_right(context, x, start)
        if stop < _BITS:
            part = _sub(context, part, shifted_left(context, shifted_right(context, x, stop), stop - start))
        part = shifted_left(context, part, start)
        total = part if total is None else _add(context, total, part)
    return context.const(0, DType.I32, x.shape) if total is None else total


def _both(context: Lowering, x: View, y: View) -> View:
    """x & y, bit by bit."""
    x, y = context.pair(x, y, DType.I32)
    total: View | None = None
    for bit in range(_BITS):
        ones, left = [], []
        for z in (x, y):
            half = shifted_right(context, z, 1)
            ones.append(_sub(context, z, shifted_left(context, half, 1)))
            left.append(half)
        part = shifted_left(context, _i32(context, Op.IMUL, *ones), bit)
        total = part if total is None else _add(context, total, part)
        x, y = left
    assert total is not None
    return total


def _and(context: Lowering, x: Operand, y: Operand) -> View:
    if isinstance(x, View) and isinstance(y, View):
        return _both(context, x, y)
    tensor, mask = (x, y) if isinstance(x, View) else (y, x)
    assert isinstance(tensor, View) and not isinstance(mask, View)
    context.check_whole(mask)
    return masked(context, context.convert(tensor, DType.I32), int(mask))


def _logic(op: Op) -> Rule:
    def lower(context: Lowering, traced: Traced, x: Operand, y: Operand) -> View:
        """The instruction for bools; for integers by x + y = (x | y) + (x & y) = (x ^ y) + 2(x & y)."""
        if traced.meta["val"].dtype is torch.bool:
            return context.apply(op, DType.BOOL, *context.pair(x, y, DType.BOOL))
        if result_dtype(traced) is not DType.I32:
            raise Refused("it has an integer and a bool form only")
        shared = _and(context, x, y)
        return shared if op is Op.AND else _sub(context, _add(context, x, y), shared)

    return lower


lowers("bitwise_and.Tensor", "bitwise_and.Scalar", "bitwise_and.Scalar_Tensor")(_logic(Op.AND))
lowers("bitwise_or.Tensor", "bitwise_or.Scalar", "bitwise_or.Scalar_Tensor")(_logic(Op.OR))


@lowers("bitwise_xor.Tensor", "bitwise_xor.Scalar", "bitwise_xor.Scalar_Tensor")
def bitwise_xor(context: Lowering, traced: Traced, x: Operand, y: Operand) -> View:
    if traced.meta["val"].dtype is torch.bool:
        return context.invert(context.compare(Op.EQ, *context.pair(x, y, DType.BOOL)))
    shared = shifted_left(context, _and(context, x, y), 1)
    return _sub(context, _add(context, x, y), shared)


@lowers("bitwise_not.default")
def bitwise_not(context: Lowering, traced: Traced, x: View) -> View:
    return context.invert(x) if x.dtype is DType.BOOL else _sub(context, -1, x)


def _distance(by: Operand) -> int:
    if isinstance(by, View):
        raise Refused("a shift is by a number, not by a tensor")
    if not 0 <= int(by) < _BITS:
        raise Refused(f"a shift is by 0 to 31 bits, not {by}")
    return int(by)


@lowers(
    "bitwise_left_shift.Tensor", "bitwise_left_shift.Tensor_Scalar", "__lshift__.Scalar", "__lshift__.Tensor"
)
def left_shift(context: Lowering, traced: Traced, x: View, by: Operand) -> View:
    return shifted_left(context, context.convert(x, DType.I32), _distance(by))


@lowers(
    "bitwise_right_shift.Tensor",
    "bitwise_right_shift.Tensor_Scalar",
    "__rshift__.Scalar",
    "__rshift__.Tensor",
)
def right_shift(context: Lowering, traced: Traced, x: View, by: Operand) -> View:
    return shifted_right(context, context.convert(x, DType.I32), _distance(by))


@lowers("view.dtype")
def same_bits(context: Lowering, traced: Traced, x: View, dtype: torch.dtype) -> View:
    """f32 as i32 and back; a NaN's payload is lost on the way (A29)."""
    wanted = {torch.int32: DType.I32, torch.float32: DType.F32}.get(dtype)
    if wanted is x.dtype:
        return x
    if wanted is None or {x.dtype, wanted} != {DType.F32, DType.I32}:
        raise Refused("bits are seen as another type between float32 and int32 only")
    return context.apply(Op.BITS, wanted, x)


# Whole division


def _quotient(context: Lowering, x: View, y: View) -> View:
    """floor(x / y): a rounded quotient, corrected by its remainder, then by one if that is out of range."""
    divisor = context.convert(y, DType.F32)

    def rounded(z: View) -> View:
        whole = context.unary(Op.FLOOR, context.div(context.convert(z, DType.F32), divisor))
        return context.convert(whole, DType.I32)

    def left(quotient: View) -> View:
        return _sub(context, x, _i32(context, Op.IMUL, quotient, y))

    found = rounded(x)
    found = _add(context, found, rounded(left(found)))
    rest, below = left(found), context.compare(Op.LT, y, 0)
    negated = (_sub(context, 0, z) for z in (rest, y))
    rest, size = (
        context.where(below, turned, z, DType.I32) for turned, z in zip(negated, (rest, y), strict=True)
    )
    short = context.convert(context.compare(Op.LT, rest, 0), DType.I32)
    over = context.apply(
        Op.AND, DType.BOOL, context.compare(Op.LE, size, rest), context.compare(Op.LT, 0, size)
    )  # of -2^31 there is no size
    return _add(context, found, _sub(context, context.convert(over, DType.I32), short))


def _small(context: Lowering, x: View, y: Number) -> View:
    """floor(x / y) for a constant y: a shift if y is a power of two."""
    size = int(y)
    if size > 0 and size & (size - 1) == 0:
        return shifted_right(context, x, size.bit_length() - 1)
    return _quotient(context, x, context.const(size, DType.I32))


def floor_quotient(context: Lowering, x: Operand, y: Operand) -> View:
    """floor(x / y) of i32."""
    for z in (x, y):
        if not isinstance(z, View):
            context.check_whole(z)
    if not isinstance(x, View):
        assert isinstance(y, View)
        x = context.const(_signed(int(x)), DType.I32, y.shape)
    x = context.convert(x, DType.I32)
    if isinstance(y, View):
        return _quotient(context, x, context.convert(y, DType.I32))
    if int(y) == 0:
        raise Refused("a whole division by 0 has no result")
    return _small(context, x, y)


def truncated(context: Lowering, x: View) -> View:
    """f32 toward zero."""
    size = context.unary(Op.FLOOR, context.unary(Op.ABS, x))
    return context.where(context.compare(Op.LT, x, 0.0), context.unary(Op.NEG, size), size, DType.F32)


@lowers("div.Tensor_mode", "div.Scalar_mode")
def div_rounded(
    context: Lowering, traced: Traced, x: Operand, y: Operand, *, rounding_mode: str | None = None
) -> View:
    if result_dtype(traced) is DType.F32:
        if rounding_mode == "floor":
            return Divided(context, x, y).floor()
        made = context.div(x, y)
        return made if rounding_mode is None else truncated(context, made)
    down = floor_quotient(context, x, y)
    if rounding_mode == "floor":
        return down
    left = _sub(context, x, _i32(context, Op.IMUL, down, y))
    short = context.invert(context.compare(Op.EQ, left, 0))
    below = context.compare(Op.LT, down, 0)
    up = context.apply(Op.AND, DType.BOOL, short, below)
    return context.where(up, _add(context, down, 1), down, DType.I32)


@lowers("floor_divide.default", "floor_divide.Scalar")
def floor_divide(context: Lowering, traced: Traced, x: Operand, y: Operand) -> View:
    return div_rounded(context, traced, x, y, rounding_mode="floor")


@lowers("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor")
def remainder(context: Lowering, traced: Traced, x: Operand, y: Operand) -> View:
    """Remainder with the divisor's sign."""
    if result_dtype(traced) is DType.F32:
        return Divided(context, x, y).remainder()
    return _sub(context, x, _i32(context, Op.IMUL, floor_quotient(context, x, y), y))


@lowers("fmod.Tensor", "fmod.Scalar")
def fmod(context: Lowering, traced: Traced, x: Operand, y: Operand) -> View:
    """Remainder with the dividend's sign."""
    if result_dtype(traced) is DType.F32:
        return Divided(context, x, y).left()
    quotient = div_rounded(context, traced, x, y, rounding_mode="trunc")
    return _sub(context, x, _i32(context, Op.IMUL, quotient, y))


@lowers("trunc.default")
def trunc(context: Lowering, traced: Traced, x: View) -> View:
    return truncated(context, x)


@lowers("frac.default")
def frac(context: Lowering, traced: Traced, x: View) -> View:
    return context.sub(x, truncated(context, x))


@lowers("round.default")
def round_(context: Lowering, traced: Traced, x: View) -> View:
    """Rounds to even: adding 2^23 leaves no fraction bits, and larger numbers have none."""
    size = context.unary(Op.ABS, x)
    near = context.sub(context.add(size, 2.0**23), 2.0**23)
    near = context.where(context.compare(Op.LT, size, 2.0**23), near, size, DType.F32)
    return context.where(context.compare(Op.LT, x, 0.0), context.unary(Op.NEG, near), near, DType.F32)
