"""Rules for operations that act element by element: arithmetic, comparisons, logic, selects, conversions."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Node as Traced

from assay.program.isa import DType, Op
from assay.program.lowering.context import Lowering, Number, Operand, Refused
from assay.program.lowering.registry import lowers
from assay.program.lowering.views import View


def result_dtype(traced: Traced) -> DType:
    """The dtype that PyTorch's promotion gives the result."""
    dtypes = {
        torch.float32: DType.F32,
        torch.int32: DType.I32,
        torch.int64: DType.I32,
        torch.bool: DType.BOOL,
    }
    dtype = dtypes.get(traced.meta["val"].dtype)
    if dtype is None:
        raise Refused(
            f"arithmetic in {traced.meta['val'].dtype} is not part of the instruction set; convert first"
        )
    return dtype


def _arithmetic(
    context: Lowering, traced: Traced, float_op: Op, int_op: Op | None, x: Operand, y: Operand
) -> View:
    dtype = result_dtype(traced)
    op = float_op if dtype is DType.F32 else int_op
    if op is None or dtype is DType.BOOL:
        raise Refused(f"it has no {dtype.name.lower()} form")
    return context.apply(op, dtype, *context.pair(x, y, dtype))


def _scaled(context: Lowering, traced: Traced, y: Operand, alpha: Number) -> Operand:
    if alpha == 1:
        return y
    if not isinstance(y, View):
        return y * alpha
    return _arithmetic(context, traced, Op.MUL, Op.IMUL, y, alpha)


@lowers("add.Tensor", "add.Scalar")
def add(context: Lowering, traced: Traced, x: Operand, y: Operand, alpha: Number = 1) -> View:
    return _arithmetic(context, traced, Op.ADD, Op.IADD, x, _scaled(context, traced, y, alpha))


@lowers("sub.Tensor", "sub.Scalar")
def sub(context: Lowering, traced: Traced, x: Operand, y: Operand, alpha: Number = 1) -> View:
    return _arithmetic(context, traced, Op.SUB, Op.ISUB, x, _scaled(context, traced, y, alpha))


@lowers("rsub.Tensor", "rsub.Scalar")
def rsub(context: Lowering, traced: Traced, x: Operand, y: Operand, alpha: Number = 1) -> View:
    return _arithmetic(context, traced, Op.SUB, Op.ISUB, y, _scaled(context, traced, x, alpha))


@lowers("mul.Tensor", "mul.Scalar")
def mul(context: Lowering, traced: Traced, x: Operand, y: Operand) -> View:
    if result_dtype(traced) is DType.BOOL:
        return context.apply(Op.AND, DType.BOOL, *context.pair(x, y, DType.BOOL))
    return _arithmetic(context, traced, Op.MUL, Op.IMUL, x, y)


@lowers("div.Tensor", "div.Scalar")
def div(context: Lowering, traced: Traced, x: Operand, y: Operand) -> View:
    return _arithmetic(context, traced, Op.DIV, None, x, y)


@lowers("maximum.default", "clamp_min.default", "clamp_min.Tensor")
def maximum(context: Lowering, traced: Traced, x: Operand, y: Operand) -> View:
    dtype = result_dtype(traced)
    a, b = context.pair(x, y, dtype)
    if dtype is DType.F32:
        return context.apply(Op.MAX, dtype, a, b)
    return context.where(context.compare(Op.LT, a, b), b, a, dtype)


@lowers("minimum.default", "clamp_max.default", "clamp_max.Tensor")
def minimum(context: Lowering, traced: Traced, x: Operand, y: Operand) -> View:
    dtype = result_dtype(traced)
    a, b = context.pair(x, y, dtype)
    if dtype is DType.F32:
        return context.apply(Op.MIN, dtype, a, b)
    return context.where(context.compare(Op.LT, a, b), a, b, dtype)


@lowers("clamp.default", "clamp.Tensor")
def clamp(
    context: Lowering, traced: Traced, x: View, low: Operand | None = None, high: Operand | None = None
) -> View:
    if low is not None:
        x = maximum(context, traced, x, low)
    return x if high is None else minimum(context, traced, x, high)


def power(context: Lowering, x: View, exponent: float) -> View:
    """x to a constant: products and roots for small exponents, the pow instruction for others."""
    if exponent == 0:
        return context.const(1.0, DType.F32, x.shape)
    if exponent < 0 and exponent in (-0.5, -1.0, -2.0):
        return context.div(1.0, power(context, x, -exponent))
    if exponent == 0.5:
        return context.unary(Op.SQRT, x)
    if exponent in (1.0, 2.0, 3.0):
        result = x
        for _ in range(int(exponent) - 1):
            result = context.mul(result, x)
        return result
    return context.binary(Op.POW, x, float(exponent))


@lowers("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def pow_(context: Lowering, traced: Traced, x: Operand, y: Operand) -> View:
    if isinstance(x, View) and not isinstance(y, View):
        if x.dtype is DType.I32 and y == 2:
            return context.apply(Op.IMUL, DType.I32, x, x)
        if result_dtype(traced) is DType.F32:
            return power(context, context.convert(x, DType.F32), float(y))
    return _arithmetic(context, traced, Op.POW, None, x, y)


def _register_unary(name: str, op: Op) -> None:
    @lowers(f"{name}.default")
    def rule(context: Lowering, traced: Traced, x: View) -> View:
        result_dtype(traced)
        if traced.meta["val"].dtype is not torch.float32:
            raise Refused("it has a float32 form only")
        return context.unary(op, x)


for _op in Op:
    if _op.row.aten:
        _register_unary(_op.row.aten, _op)


@lowers("abs.default")
def absolute(context: Lowering, traced: Traced, x: View) -> View:
    if x.dtype is DType.I32:
        negative = context.apply(Op.ISUB, DType.I32, *context.pair(0, x, DType.I32))
        return context.where(context.compare(Op.LT, x, 0), negative, x, DType.I32)
    return context.unary(Op.ABS, x)


@lowers("neg.default")
def neg(context: Lowering, traced: Traced, x: View) -> View:
    if x.dtype is DType.I32:
        return context.apply(Op.ISUB, DType.I32, *context.pair(0, x, DType.I32))
    return context.unary(Op.NEG, x)


@lowers("rsqrt.default")
def rsqrt(context: Lowering, traced: Traced, x: View) -> View:
    return context.div(1.0, context.unary(Op.SQRT, x))


@lowers("reciprocal.default")
def reciprocal(context: Lowering, traced: Traced, x: View) -> View:
    return context.div(1.0, x)


@lowers("ceil.default")
def ceil(context: Lowering, traced: Traced, x: View) -> View:
    return context.unary(Op.NEG, context.unary(Op.FLOOR, context.unary(Op.NEG, x)))


@lowers("exp2.default")
def exp2(context: Lowering, traced: Traced, x: View) -> View:
    return context.unary(Op.EXP, context.mul(x, math.log(2)))


@lowers("log2.default")
def log2(context: Lowering, traced: Traced, x: View) -> View:
    return context.mul(context.unary(Op.LOG, x), 1 / math.log(2))


@lowers("log1p.default")
def log1p(context: Lowering, traced: Traced, x: View) -> View:
    """log(1 + x), corrected near 0 for the rounding of 1 + x."""
    near = context.compare(Op.LT, context.unary(Op.ABS, x), 0.5)
    whole = context.add(x, 1.0)
    lost = context.sub(x, context.sub(whole, 1.0))
    return context.add(context.unary(Op.LOG, whole), context.where(near, lost, 0.0, DType.F32))


def exp_less_one(context: Lowering, x: View) -> View:
    """exp(x) − 1; near 0 as 2·t ÷ (1 − t) with t = tanh(x ÷ 2)."""
    near = context.compare(Op.LT, context.unary(Op.ABS, x), 1.0)
    half = context.unary(Op.TANH, context.mul(x, 0.5))
    small = context.div(context.add(half, half), context.sub(1.0, half))
    return context.where(near, small, context.sub(context.unary(Op.EXP, x), 1.0), DType.F32)


@lowers("expm1.default")
def expm1(context: Lowering, traced: Traced, x: View) -> View:
    return exp_less_one(context, x)


@lowers("sign.default", "sgn.default")
def sign(context: Lowering, traced: Traced, x: View) -> View:
    if x.dtype is not DType.F32:
        raise Refused("it has a float32 form only")
    positive = context.convert(context.compare(Op.LT, 0.0, x), DType.F32)
    return context.sub(positive, context.convert(context.compare(Op.LT, x, 0.0), DType.F32))


@lowers("addcmul.default")
def addcmul(context: Lowering, traced: Traced, x: View, y: View, z: View, value: Number = 1) -> View:
    scaled = y if value == 1 else context.mul(y, value)
    return context.add(x, context.mul(scaled, z))


@lowers("addcdiv.default")
def addcdiv(context: Lowering, traced: Traced, x: View, y: View, z: View, value: Number = 1) -> View:
    scaled = y if value == 1 else context.mul(y, value)
    return context.add(x, context.div(scaled, z))


@lowers("lerp.Scalar", "lerp.Tensor")
def lerp(context: Lowering, traced: Traced, x: View, y: View, weight: Operand) -> View:
    return context.add(x, context.mul(context.sub(y, x), weight))


def _register_comparison(name: str, op: Op, *, turned: bool = False) -> None:
    @lowers(f"{name}.Tensor", f"{name}.Scalar")
    def rule(context: Lowering, traced: Traced, x: Operand, y: Operand) -> View:
        return context.compare(op, y, x) if turned else context.compare(op, x, y)


for _name, _op in (("eq", Op.EQ), ("lt", Op.LT), ("le", Op.LE)):
    _register_comparison(_name, _op)
for _name, _op in (("gt", Op.LT), ("ge", Op.LE)):
    _register_comparison(_name, _op, turned=True)


@lowers("ne.Tensor", "ne.Scalar")
def ne(context: Lowering, traced: Traced, x: Operand, y: Operand) -> View:
    return context.invert(context.compare(Op.EQ, x, y))


def _logic(context: Lowering, op: Op, x: Operand, y: Operand) -> View:
    return context.apply(op, DType.BOOL, *context.pair(x, y, DType.BOOL))


def _bools_only(traced: Traced) -> None:
    if traced.meta["val"].dtype is not torch.bool:
        raise Refused("it has a bool form only")


@lowers("logical_and.default")
def logical_and(context: Lowering, traced: Traced, x: Operand, y: Operand) -> View:
    _bools_only(traced)
    return _logic(context, Op.AND, x, y)


@lowers("logical_or.default")
def logical_or(context: Lowering, traced: Traced, x: Operand, y: Operand) -> View:
    _bools_only(traced)
    return _logic(context, Op.OR, x, y)


@lowers("logical_not.default")
def logical_not(context: Lowering, traced: Traced, x: View) -> View:
    _bools_only(traced)
    return context.invert(context.convert(x, DType.BOOL))


@lowers("logical_xor.default")
def logical_xor(context: Lowering, traced: Traced, x: View, y: View) -> View:
    _bools_only(traced)
    a, b = context.pair(x, y, DType.BOOL)
    return context.invert(context.compare(Op.EQ, a, b))


@lowers("where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar")
def where(context: Lowering, traced: Traced, condition: View, x: Operand, y: Operand) -> View:
    return context.where(condition, x, y, result_dtype(traced))


@lowers("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(context: Lowering, traced: Traced, x: View, mask: View, value: Operand) -> View:
    return context.where(mask, value, x, result_dtype(traced))


@lowers("isnan.default")
def isnan(context: Lowering, traced: Traced, x: View) -> View:
    return context.invert(context.compare(Op.EQ, x, x))


@lowers("isinf.default")
def isinf(context: Lowering, traced: Traced, x: View) -> View:
    return context.compare(Op.EQ, context.unary(Op.ABS, x), math.inf)


@lowers("_to_copy.default")
def to_copy(context: Lowering, traced: Traced, x: View, **_layout: Any) -> View:
    if traced.meta["val"].dtype is torch.uint8:
        return context.convert(x, DType.U8)
    return context.convert(x, result_dtype(traced))
