"""Rules for floor division and remainders of floats, without the rounding error of x ÷ y.

Contract: where |x ÷ y| is below 2^24, quotient and remainder are exact, as PyTorch's. Beyond, the quotient is
floor(x ÷ y) with both steps rounded, and the remainder is NaN rather than meaningless digits.

Source: Dekker, A floating-point technique for extending the available precision (1971).
"""

from __future__ import annotations

import math

from assay.program.isa import DType, Op
from assay.program.lowering.context import Lowering, Operand
from assay.program.lowering.views import View, expand
from assay.program.rules import broadcast

_SPLITTER = 4097.0
_MOST = 2.0**24
_LEAST, _LARGEST = 2.0**-70, 2.0**100
"""Range of divisors whose products with 12 bits are exact; others are scaled into it."""


def _halves(context: Lowering, x: View) -> tuple[View, View]:
    """x as a sum of two numbers of 12 bits."""
    wide = context.mul(x, _SPLITTER)
    high = context.sub(wide, context.sub(wide, x))
    return high, context.sub(x, high)


def _rest(context: Lowering, x: View, y: View, product: View) -> View:
    """x·y minus its rounded product, exactly."""
    (a, b), (c, d) = _halves(context, x), _halves(context, y)
    first = context.sub(context.mul(a, c), product)
    crossed = context.add(context.add(first, context.mul(a, d)), context.mul(b, c))
    return context.add(crossed, context.mul(b, d))


def _scale(context: Lowering, y: View) -> View:
    """A power of two with which y has exact products."""
    small = context.where(context.compare(Op.LT, y, _LEAST), 2.0**60, 1.0, DType.F32)
    return context.where(context.compare(Op.LT, _LARGEST, y), 2.0**-30, small, DType.F32)


def _sizes(context: Lowering, x: View, y: View) -> tuple[View, View]:
    """(floor(x ÷ y), remainder) of non-negative numbers."""
    scale = _scale(context, y)
    quotient = context.unary(Op.FLOOR, context.div(x, y))
    known = context.compare(Op.LT, quotient, _MOST)
    quotient = context.where(known, quotient, math.nan, DType.F32)
    long, wide = context.mul(x, scale), context.mul(y, scale)
    product = context.mul(quotient, wide)
    left = context.sub(context.sub(long, product), _rest(context, quotient, wide, product))
    over = context.compare(Op.LT, left, 0.0)  # the quotient was rounded up to the next whole number
    left = context.where(over, context.add(left, wide), left, DType.F32)
    quotient = context.where(over, context.sub(quotient, 1.0), quotient, DType.F32)
    none = context.compare(Op.EQ, quotient, 0.0)
    return quotient, context.where(none, x, context.div(left, scale), DType.F32)


class Divided:
    """Floor division of floats."""

    def __init__(self, context: Lowering, x: Operand, y: Operand) -> None:
        first, second = context.pair(x, y, DType.F32)
        shape = broadcast([first.shape, second.shape])
        self._context, self._x, self._y = context, expand(first, shape), second
        self._size = context.unary(Op.ABS, second)
        self._quotient, self._left = _sizes(context, context.unary(Op.ABS, first), self._size)
        below = (context.compare(Op.LT, z, 0.0) for z in (first, second))
        self._apart = context.invert(context.compare(Op.EQ, *below))
        self._some = context.invert(context.compare(Op.EQ, self._left, 0.0))

    def _signed(self, size: View, sign: View) -> View:
        context = self._context
        return context.where(context.compare(Op.LT, sign, 0.0), context.unary(Op.NEG, size), size, DType.F32)

    def left(self) -> View:
        """Remainder with x's sign."""
        return self._signed(self._left, self._x)

    def remainder(self) -> View:
        """Remainder with y's sign."""
        context = self._context
        turned = context.apply(Op.AND, DType.BOOL, self._apart, self._some)
        across = context.sub(self._size, self._left)
        return self._signed(context.where(turned, across, self._left, DType.F32), self._y)

    def floor(self) -> View:
        """The largest integer not above x ÷ y."""
        context = self._context
        more = context.add(self._quotient, context.convert(self._some, DType.F32))
        below = context.unary(Op.NEG, more)
        made = context.where(self._apart, below, self._quotient, DType.F32)
        divided = context.div(self._x, self._y)
        rounded = context.add(context.unary(Op.FLOOR, divided), context.sub(self._x, self._x))  # of Inf NaN
        made = context.where(context.compare(Op.EQ, made, made), made, rounded, DType.F32)
        return context.where(context.compare(Op.EQ, self._y, 0.0), divided, made, DType.F32)
