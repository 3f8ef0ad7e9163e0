"""Rules for convolutions: windows of quantised planes as the rows of one matrix product, and its gradients.

Contract: both gradients read the same quantised planes (`planes`) as the convolution does. Not
guaranteed: the bits of a product of unfolded floats, whose rows have an exponent each (decisions/0014).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import gcd, prod
from typing import Any

from torch.fx import Node as Traced

from assay.program import operand_parts as operands
from assay.program.isa import DType, Input
from assay.program.lowering import views
from assay.program.lowering.context import Lowering, Refused
from assay.program.lowering.planes import (
    Planes,
    grouped,
    images_sharing,
    part_of,
    quantised_planes,
    repeated,
    windows_of,
)
from assay.program.lowering.registry import lowers
from assay.program.lowering.views import View, whole
from assay.program.lowering.windows import Window, each
from assay.program.operand_parts import Precision, Term
from assay.program.rules import MAX_DIMS


def _window(weight: View, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]) -> Window:
    rank = len(weight.shape) - 2
    return Window(weight.shape[2:], each(stride, rank), each(padding, rank), each(dilation, rank))


def _check(x: View, weight: View) -> None:
    if x.dtype is not DType.F32 or weight.dtype is not DType.F32:
        raise Refused("convolutions are of float32 tensors")


def _product(context: Lowering, a: Input, ea: Input, b: Input, eb: Input) -> View:
    """[b.., M, K] · [b.., N, K] of quantised operands; chunks of long contractions are added in order."""

    def part(start: int, stop: int) -> Input:
        parts = [context.node(views.narrow(whole(x), -1, start, stop)) for x in (a, b)]
        return context.builder.product(parts[0], ea, parts[1], eb)

    return context.in_chunks(a.shape[-1], part)


def _convolved(
    context: Lowering,
    planes: Planes,
    weight: View,
    window: Window,
    places: Sequence[int],
    groups: int,
    starts: Sequence[int] = (),
    terms: Sequence[Term] = Precision.SINGLE.terms,
) -> View:
    """Planes that have their padding * [O, C ÷ groups, K..] -> [B, O, Y..]."""

    def convolved(left: int, right: int) -> View:
        return _convolved_part(
            context, part_of(context, planes, left), weight, right, window, places, groups, starts
        )

    return context.in_terms(terms, convolved)


def _convolved_part(
    context: Lowering,
    planes: Planes,
    weight: View,
    number: int,
    window: Window,
    places: Sequence[int],
    groups: int,
    starts: Sequence[int],
) -> View:
    """`_convolved` with one part of the weight."""
    batch, rank, outputs = planes.numbers.shape[0], window.rank, weight.shape[0]
    many = [groups] if groups > 1 else []
    seen = grouped(windows_of(planes, window, places, starts), groups, 1 + 2 * rank)
    if many:
        seen = views.permute(seen, [1 + 2 * rank, *range(1 + 2 * rank), 2 + 2 * rank])
    if len(seen.shape) > MAX_DIMS:
        raise Refused(f"windows of {len(seen.shape)} dimensions; a tensor has at most {MAX_DIMS}")
    rows = context.reshape(seen, [*many, batch * prod(places), -1])
    kernels = views.permute(weight, [0, *range(2, 2 + rank), 1])
    kernels = context.reshape(kernels, [*many, outputs // groups, -1])
    ea = repeated(context, planes.exponents, planes.images, [batch, prod(places)])
    ea = context.reshape(ea, [batch * prod(places)])
    rows_made = _by_rows(context, rows, views.expand(ea, rows.shape[:-1]), kernels, number)
    made = context.reshape(rows_made, [*many, batch, *places, outputs // groups])
    channels = [0, 2 + rank] if many else [1 + rank]
    first = len(many)
    moved = views.permute(made, [first, *channels, *range(first + 1, first + 1 + rank)])
    return context.reshape(moved, [batch, outputs, *places])


def _by_rows(context: Lowering, rows: View, ea: View, kernels: View, number: int) -> View:
    """Quantised rows [b.., M, K] · that part of f32 kernels [b.., N, K], whose rows are quantised here."""
    a, exponents = context.node(rows), context.node(ea)

    def part(start: int, stop: int) -> Input:
        b = context.node(views.narrow(kernels, -1, start, stop))
        eb = context.builder.exponent(b)
        seen = context.node(views.narrow(whole(a), -1, start, stop))
        if number == 0:
            return context.builder.product(seen, exponents, context.builder.quantise(b, eb), eb)
        return context.builder.product(seen, exponents, *operands.operand_part(context.builder, b, number))

    return context.in_chunks(a.shape[-1], part)


def _padding(x: View, window: Window, places: Sequence[int]) -> list[tuple[int, int]]:
    """Zeros around [B, C, X..] that windows at `places` reach; a negative count cuts what none reaches."""
    sides = []
    for d, length in enumerate(x.shape[2:]):
        end = (places[d] - 1) * window.stride[d] + window.reach[d] + 1
        sides.append((window.padding[d], end - length - window.padding[d]))
    return sides


def _inputs(context: Lowering, x: View, window: Window, places: Sequence[int]) -> Planes:
    return quantised_planes(context, x, _padding(x, window, places), images_sharing(x.shape[0], prod(places)))


@lowers("convolution.default")
def convolution(
    context: Lowering,
    traced: Traced,
    x: View,
    weight: View,
    bias: View | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    _output_padding: Any,
    groups: int,
) -> View:
    _check(x, weight)
    window = _window(weight, stride, padding, dilation)
    shape = tuple(traced.meta["val"].shape)
    if transposed:
        result = _transposed(context, x, weight, window, shape, groups)
    else:
        planes = _inputs(context, x, window, shape[2:])
        terms = context.precision().terms
        result = _convolved(context, planes, weight, window, shape[2:], groups, terms=terms)
    if bias is None:
        return result
    return context.add(result, context.reshape(bias, [-1, *([1] * window.rank)]))


@lowers("convolution_backward.default")
def convolution_backward(
    context: Lowering,
    traced: Traced,
    g: View,
    x: View,
    weight: View,
    _bias_sizes: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    _output_padding: Any,
    groups: int,
    wanted: Sequence[bool],
) -> tuple[View | None, View | None, View | None]:
    _check(x, weight)
    window = _window(weight, stride, padding, dilation)
    if transposed:
        return _transposed_backward(context, g, x, weight, window, groups, wanted)
    parts = [_residues(window, d, x.shape[2 + d]) for d in range(window.rank)]
    sides = [_reached(parts[d], g.shape[2 + d]) if wanted[0] else (0, 0) for d in range(window.rank)]
    planes = quantised_planes(context, g, sides, images_sharing(g.shape[0], prod(g.shape[2:])))
    starts = [before for before, _ in sides]
    dx = _input_gradient(context, planes, x, weight, parts, starts, groups) if wanted[0] else None
    dweight = None
    if wanted[1]:
        seen = _inputs(context, x, window, g.shape[2:])
        dweight = _weight_gradient(context, planes, starts, seen, weight, window, g.shape[2:], groups)
    return dx, dweight, context.sum(g, (0, *range(2, 2 + window.rank))) if wanted[2] else None


def _transposed(
    context: Lowering, x: View, weight: View, window: Window, shape: Sequence[int], groups: int
) -> View:
    """A transposed convolution, computed as the gradient of a convolution's input of shape `shape`."""
    parts = [_residues(window, d, shape[2 + d]) for d in range(window.rank)]
    sides = [_reached(parts[d], x.shape[2 + d]) for d in range(window.rank)]
    planes = quantised_planes(context, x, sides, images_sharing(x.shape[0], prod(x.shape[2:])))
    made = context.const(0.0, DType.F32, tuple(shape))
    return _input_gradient(context, planes, made, weight, parts, [before for before, _ in sides], groups)


def _transposed_backward(
    context: Lowering, g: View, x: View, weight: View, window: Window, groups: int, wanted: Sequence[bool]
) -> tuple[View | None, View | None, View | None]:
    """Gradients of a transposed convolution.

    The input's is the convolution; the weight's has gradient and input exchanged.
    """
    places, rank = x.shape[2:], window.rank
    seen = _inputs(context, g, window, places)
    dx = dweight = None
    if wanted[0]:
        terms = context.precision().terms
        dx = _convolved(context, seen, weight, window, places, groups, terms=terms)
    if wanted[1]:
        grown = quantised_planes(context, x, [(0, 0)] * rank, images_sharing(x.shape[0], prod(places)))
        dweight = _weight_gradient(context, grown, [0] * rank, seen, weight, window, places, groups)
    return dx, dweight, context.sum(g, (0, *range(2, 2 + rank))) if wanted[2] else None


@dataclass(frozen=True)
class Residue:
    """Positions i = stride·q + residue − padding of an input dimension, and the taps whose windows contain
    them.

    The gradient at i is a convolution of g with those taps, at g's position q.
    """

    first: int
    """The first q."""
    count: int
    taps: tuple[int, int, int] | None
    """Start, stop and step in the kernel; None where no window reaches these places."""
    back: int
    """g's place of the last tap is q − back."""
    dilation: int
    cut: int
    """Places before the input's first one, of all residues one after the other."""

    @property
    def used(self) -> int:
        return len(range(*self.taps)) if self.taps else 0


def _residues(window: Window, d: int, length: int) -> list[Residue]:
    """Every input place of dimension `d`, by its remainder modulo the stride."""
    stride, pad, dilation, size = window.stride[d], window.padding[d], window.dilation[d], window.size[d]
    first = pad // stride
    cut = pad - stride * first
    count = -(-(cut + length) // stride)
    shared = gcd(stride, dilation)
    found = []
    for residue in range(stride):
        start = next((t for t in range(min(size, stride)) if t * dilation % stride == residue), None)
        taps = None if start is None else (start, size, stride // shared)
        near = 0 if start is None else (start * dilation - residue) // stride
        used = 0 if taps is None else len(range(*taps))
        back = near + max(0, used - 1) * (dilation // shared)
        found.append(Residue(first, count, taps, back, dilation // shared, cut))
    return found


def _reached(residues: Sequence[Residue], length: int) -> tuple[int, int]:
    """Zeros before and after g's places that the residues' windows reach."""
    used = [r for r in residues if r.taps]
    before = max([0, *(r.back - r.first for r in used)])
    last = [r.first + r.count - 1 - r.back + (r.used - 1) * r.dilation for r in used]
    return before, max([0, *(end - (length - 1) for end in last)])


def _input_gradient(
    context: Lowering,
    planes: Planes,
    x: View,
    weight: View,
    parts: Sequence[Sequence[Residue]],
    starts: Sequence[int],
    groups: int,
) -> View:
    """For every residue a convolution of g with its flipped taps, inputs and outputs exchanged."""
    rank = len(parts)
    terms = context.precision().terms
    made = [
        _residue_gradient(context, planes, x, weight, residues, starts, groups, terms)
        for residues in product(*parts)
    ]
    for d in reversed(range(rank)):
        width = len(parts[d])
        rows = [made[i : i + width] for i in range(0, len(made), width)]
        made = [_interleaved(context, several, 1 + d) for several in rows]
    filled = made[0]
    for d in range(rank):
        cut = parts[d][0].cut
        filled = views.narrow(filled, 1 + d, cut, cut + x.shape[2 + d])
    return views.permute(filled, [0, 1 + rank, *range(1, 1 + rank)])


def _interleaved(context: Lowering, parts: Sequence[View], dim: int) -> View:
    """Views of one shape, one element of each after the other along `dim`."""
    if len(parts) == 1:
        return parts[0]
    joined = context.concat([views.unsqueeze(x, dim + 1) for x in parts], dim + 1)
    shape = parts[0].shape
    return context.reshape(joined, [*shape[:dim], shape[dim] * len(parts), *shape[dim + 1 :]])


def _residue_gradient(
    context: Lowering,
    planes: Planes,
    x: View,
    weight: View,
    residues: Sequence[Residue],
    starts: Sequence[int],
    groups: int,
    terms: Sequence[Term],
) -> View:
    """[B, Q.., C]: the gradient at the places of one residue in each dimension."""
    rank, batch = len(residues), planes.numbers.shape[0]
    places = [r.count for r in residues]
    for d, residue in enumerate(residues):
        if residue.taps is None:
            return context.const(0.0, DType.F32, (batch, *places, x.shape[1]))
        weight = views.flip(views.narrow(weight, 2 + d, *residue.taps), 2 + d)
    split = context.reshape(weight, [groups, weight.shape[0] // groups, *weight.shape[1:]])
    turned = views.swap(split, 1, 2)
    kernels = context.reshape(turned, [x.shape[1], *turned.shape[2:]])
    dense = (1,) * rank
    window = Window(weight.shape[2:], dense, (0,) * rank, tuple(r.dilation for r in residues))
    begin = [start + r.first - r.back for start, r in zip(starts, residues, strict=True)]
    made = _convolved(context, planes, kernels, window, places, groups, begin, terms)
    return views.permute(made, [0, *range(2, 2 + rank), 1])


def _weight_gradient(
    context: Lowering,
    grown: Planes,
    starts: Sequence[int],
    seen: Planes,
    weight: View,
    window: Window,
    places: Sequence[int],
    groups: int,
) -> View:
    """Windows and gradients contracted over some images and their places, then summed over the batch."""
    rank = window.rank

    def contracted(left: int, right: int) -> View:
        first, second = part_of(context, grown, left), part_of(context, seen, right)
        inside = whole(first.numbers)
        for d in range(rank):
            inside = views.narrow(inside, 1 + d, starts[d], starts[d] + places[d])
        outer = _contracted(context, inside, first, groups, 1 + rank)
        inner = _contracted(context, windows_of(second, window, places), second, groups, 1 + rank)
        return _product(context, *outer, *inner)

    summed = context.in_terms(context.precision().terms, contracted)
    made = context.reshape(summed, [grown.blocks, groups, -1, summed.shape[-1]])
    total = context.sum(made, (0,)) if grown.blocks > 1 else made
    shaped = context.reshape(total, [weight.shape[0], *window.size, weight.shape[1]])
    return views.permute(shaped, [0, 1 + rank, *range(1, 1 + rank)])


def _contracted(context: Lowering, x: View, planes: Planes, groups: int, first: int) -> tuple[Input, Input]:
    """[B, Y.., kept..] as quantised rows [blocks.., groups.., kept, images·Y] with their exponents.

    `first` is the number of dimensions before the kept ones; the last kept one is divided into groups.
    """
    split = views.view(
        x.base,
        [planes.blocks, planes.images, *x.shape[1:]],
        [x.strides[0] * planes.images, x.strides[0], *x.strides[1:]],
        x.offset,
    )
    split = grouped(split, groups, len(split.shape) - 1)
    lines = [*range(1, 1 + first)]
    own = [*range(1 + first, 1 + len(x.shape))]
    many = []
    if groups > 1:
        many, own = [own[-1]], [*own[:-1], own[-1] + 1]
    moved = views.permute(split, [0, *many, *own, *lines])
    lead = [planes.blocks] if planes.blocks > 1 else []
    if not lead:
        moved = views.select(moved, 0, 0)
    if len(moved.shape) > MAX_DIMS:
        raise Refused(f"windows of {len(moved.shape)} dimensions; a tensor has at most {MAX_DIMS}")
    count = prod(split.shape[d] for d in own)
    shape = [*lead, *([groups] if many else []), count]
    rows = context.node(context.reshape(moved, [*shape, -1]))
    exponents = context.reshape(planes.exponents, [planes.blocks, *([1] * (len(shape) - len(lead)))])
    if not lead:
        exponents = views.select(exponents, 0, 0)
    return rows, context.node(views.expand(exponents, shape))
