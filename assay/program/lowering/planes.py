"""Quantises the planes of a convolution as one channels-last tensor, and takes windows of it.

Contract: planes are quantised once, before windows are taken, with one exponent for as many images as one
contraction of the weight gradient spans (`images_sharing`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from assay.program import operand_parts as operands
from assay.program.isa import Input, Op
from assay.program.lowering import views
from assay.program.lowering.context import Lowering
from assay.program.lowering.views import View, whole
from assay.program.lowering.windows import Window, padded
from assay.program.rules import MAX_FAN_IN

Sides = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Planes:
    """Quantised planes with their channels last."""

    values: Input
    """f32 [B, X.., C]"""
    numbers: Input
    """i16 [B, X.., C]: the first part of the values."""
    exponents: View
    """i16 [B ÷ images]: one exponent per block of consecutive images."""
    images: int

    @property
    def blocks(self) -> int:
        return self.exponents.shape[0]


def images_sharing(batch: int, places: int) -> int:
    """Number of images that share an exponent: the largest divisor of the batch that fits one contraction."""
    return next(n for n in range(batch, 0, -1) if batch % n == 0 and (n * places <= MAX_FAN_IN or n == 1))


def repeated(context: Lowering, exponents: View, images: int, shape: Sequence[int]) -> View:
    """Expands an exponent per block to one per element of [B, ..]."""
    blocks = exponents.shape[0]
    column = context.reshape(exponents, [blocks, *([1] * len(shape))])
    return context.reshape(views.expand(column, [blocks, images, *shape[1:]]), shape)


def quantised_planes(context: Lowering, x: View, sides: Sides, images: int) -> Planes:
    """Quantises [B, C, X..] with zeros around it."""
    blocks = x.shape[0] // images
    sizes = context.unary(Op.ABS, x)
    order = sorted(
        range(1, len(x.shape)), key=lambda d: -sizes.strides[d]
    )  # as they lie: a maximum has no order
    highest = context.amax(context.reshape(views.permute(sizes, [0, *order]), [blocks, -1]), (1,))
    exponents = whole(context.builder.exponent(context.node(context.reshape(highest, [blocks, 1]))))
    last = views.permute(x, [0, *range(2, len(x.shape)), 1])
    wide = context.node(padded(context, last, [*sides, (0, 0)]))
    return quantised(context, wide, exponents, images)


def quantised(context: Lowering, wide: Input, exponents: View, images: int) -> Planes:
    """Quantises [B, X.., C] by the exponents of blocks of images."""
    rows = context.node(repeated(context, exponents, images, wide.shape[:-1]))
    return Planes(wide, context.builder.quantise(wide, rows), exponents, images)


def part_of(context: Lowering, planes: Planes, number: int) -> Planes:
    """Part 0 or 1 of planes (``program.operand_parts``); the second has its own exponent per block."""
    if number == 0:
        return planes
    rows = context.builder.node(planes.numbers).inputs[1]
    left = operands.rest(context.builder, planes.values, planes.numbers, rows)
    sizes = context.unary(Op.ABS, whole(left))
    highest = context.amax(context.reshape(sizes, [planes.blocks, -1]), (1,), keepdim=True)
    return quantised(context, left, whole(context.builder.exponent(context.node(highest))), planes.images)


def grouped(x: View, groups: int, dim: int) -> View:
    """x with `dim` as [groups, size ÷ groups]; unchanged for one group."""
    if groups == 1:
        return x
    split = [*x.shape[:dim], groups, x.shape[dim] // groups, *x.shape[dim + 1 :]]
    strides = [*x.strides[:dim], x.strides[dim] * split[dim + 1], *x.strides[dim:]]
    return views.view(x.base, split, strides, x.offset)


def windows_of(planes: Planes, window: Window, places: Sequence[int], starts: Sequence[int] = ()) -> View:
    """[B, Y.., K.., C]: windows of padded planes from `starts` (usually 0)."""
    plane, rank = planes.numbers, window.rank
    steps = views.contiguous(plane.shape)
    strides = [
        steps[0],
        *(steps[1 + d] * window.stride[d] for d in range(rank)),
        *(steps[1 + d] * window.dilation[d] for d in range(rank)),
        1,
    ]
    offset = sum(start * step for start, step in zip(starts, steps[1:], strict=False))
    return views.view(plane, [plane.shape[0], *places, *window.size, plane.shape[-1]], strides, offset)
