"""Rules for sorting and top-k: exact, on integer keys in the order of the numbers.

Contract: values are PyTorch's, bit for bit. Equal numbers (both zeros are equal) keep their order, as in
PyTorch's stable sort, which is more than ``torch.topk`` and ``torch.sort`` promise. NaN counts as larger than
everything. Rows of up to `COUNTED` elements are ranked by comparing all pairs, longer ones by a sorting
network. Top-k of a long row searches the k-th key bit by bit.

Source: Batcher, Sorting networks and their applications (1968).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.fx import Node as Traced

from assay.program.isa import DType, Op
from assay.program.lowering import views
from assay.program.lowering.context import Lowering, Refused
from assay.program.lowering.registry import lowers
from assay.program.lowering.views import View, whole
from assay.program.rules import MAX_FAN_IN

COUNTED = 32
"""Maximum length of rows whose elements are all compared with each other."""
_LEAST = -(1 << 31)


def key_of(context: Lowering, x: View, descending: bool) -> View:
    """i32 like x, in the requested order: NaN above all, both zeros equal."""
    if x.dtype in (DType.U8, DType.BOOL):
        x = context.convert(x, DType.I32)
    if x.dtype is DType.F32:
        bits = context.apply(Op.BITS, DType.I32, x)
        mirrored = _minus(context, context.const(_LEAST, DType.I32), bits)
        x = context.where(context.compare(Op.LT, bits, 0), mirrored, bits, DType.I32)
    return _minus(context, context.const(-1, DType.I32), x) if descending else x


def _minus(context: Lowering, x: View, y: View) -> View:
    return context.apply(Op.ISUB, DType.I32, x, y)


def _either(context: Lowering, op: Op, x: View, y: View) -> View:
    return context.apply(op, DType.BOOL, x, y)


def _before(context: Lowering, a: tuple[View, View], b: tuple[View, View]) -> View:
    """bool: (key, position) a comes before b."""
    tied = _either(context, Op.AND, context.compare(Op.EQ, a[0], b[0]), context.compare(Op.LT, a[1], b[1]))
    return _either(context, Op.OR, context.compare(Op.LT, a[0], b[0]), tied)


def _ranked(context: Lowering, key: View) -> View:
    """i32 [rows, n]: positions of the keys in sorted order, by counting the keys before each."""
    n = key.shape[1]
    places = context.iota(n)
    mine = (views.unsqueeze(key, 2), views.unsqueeze(places, 1))
    others = (views.unsqueeze(key, 1), places)
    rank = context.sum(context.convert(_before(context, others, mine), DType.F32), (-1,))
    return compacted(context, context.convert(rank, DType.I32), n)


def compacted(context: Lowering, slots: View, count: int) -> View:
    """i32 [rows, count]: for each of `count` ranks, the position in [rows, n] that has it (exactly one
    does)."""
    rows, n = slots.shape
    places = views.expand(context.convert(context.iota(n), DType.F32), (rows, n))
    made = context.builder.scatter_sum(context.node(places), context.node(slots), count)
    return context.convert(whole(made), DType.I32)


def _network(context: Lowering, key: View) -> View:
    """As `_ranked`, for any length: Batcher's network merges sorted runs of 1, 2, 4, ...

    All comparators point one way, on rows padded to a power of two with the largest key.
    """
    rows, n = key.shape
    size = 1 << (n - 1).bit_length()
    pair = (key, views.expand(context.iota(n), (rows, n)))
    if size > n:
        full = (rows, size - n)
        rest = views.expand(whole(context.builder.iota((size - n,), 0)), full)
        rest = context.apply(Op.IADD, DType.I32, *context.pair(rest, n, DType.I32))
        last = context.const((1 << 31) - 1, DType.I32, full)
        pair = (context.concat([pair[0], last], 1), context.concat([pair[1], rest], 1))
    block = 2
    while block <= size:
        pair = _exchanged(context, pair, block, mirrored=True)
        half = block // 2
        while half > 1:
            pair = _exchanged(context, pair, half, mirrored=False)
            half //= 2
        block *= 2
    return views.narrow(pair[1], 1, 0, n)


def _exchanged(
    context: Lowering, pair: tuple[View, View], block: int, *, mirrored: bool
) -> tuple[View, View]:
    """Compares every element of a block's first half with its partner in the second; the lesser moves to the
    front."""
    rows, size = pair[0].shape
    first, second = [], []
    for x in pair:
        grouped = context.reshape(x, (rows, size // block, block))
        upper = views.narrow(grouped, 2, block // 2, block)
        first.append(whole(context.node(views.narrow(grouped, 2, 0, block // 2))))
        second.append(whole(context.node(views.flip(upper, 2) if mirrored else upper)))
    swap = _before(context, (second[0], second[1]), (first[0], first[1]))
    made = []
    for low, high in zip(first, second, strict=True):
        front = context.where(swap, high, low, DType.I32)
        back = context.where(swap, low, high, DType.I32)
        back = views.flip(back, 2) if mirrored else back
        made.append(context.reshape(context.concat([front, back], 2), (rows, size)))
    return made[0], made[1]


def order(context: Lowering, key: View) -> View:
    """i32 [rows, n]: positions of each row's keys in ascending order."""
    return _ranked(context, key) if key.shape[1] <= COUNTED else _network(context, key)


def _count(context: Lowering, mask: View) -> View:
    return context.sum(context.convert(mask, DType.F32), (-1,), keepdim=True)


def largest(context: Lowering, key: View, k: int) -> View:
    """i32 [rows, k]: positions of each row's k greatest keys, in ascending position.

    The k-th key is found bit by bit; then all greater keys are taken and the first of those equal to it.
    """
    rows, n = key.shape
    if n >= 1 << 24:
        raise Refused(f"rows of {n} elements have places that f32 does not tell apart")
    found = context.const(_LEAST, DType.I32, (rows, 1))
    for bit in reversed(range(32)):
        step = context.const(_LEAST if bit == 31 else 1 << bit, DType.I32)
        tried = context.apply(Op.IADD, DType.I32, found, step)
        enough = context.compare(Op.LE, float(k), _count(context, context.compare(Op.LE, tried, key)))
        found = context.where(enough, tried, found, DType.I32)
    above = context.compare(Op.LT, found, key)
    tied = context.compare(Op.EQ, found, key)
    room = context.sub(float(k), _count(context, above))
    kept = _either(context, Op.AND, tied, context.compare(Op.LE, running_count(context, tied), room))
    kept = _either(context, Op.OR, above, kept)
    slot = context.sub(running_count(context, kept), 1.0)
    slots = context.convert(context.where(kept, slot, -1.0, DType.F32), DType.I32)
    if n <= MAX_FAN_IN:
        return compacted(context, slots, k)
    parts: View | None = None
    for start in range(0, n, MAX_FAN_IN):
        stop = min(start + MAX_FAN_IN, n)
        places = context.convert(views.narrow(context.iota(n), 0, start, stop), DType.F32)
        wide = views.expand(places, (rows, stop - start))
        piece = context.node(views.narrow(slots, 1, start, stop))
        made = whole(context.builder.scatter_sum(context.node(wide), piece, k))
        parts = made if parts is None else context.add(parts, made)
    assert parts is not None
    return context.convert(parts, DType.I32)


def running_count(context: Lowering, mask: View) -> View:
    """f32 [rows, n]: number of true values up to each position; exact below 2^24.

    Uses log2 n additions with doubling distance.
    """
    x, distance = context.convert(mask, DType.F32), 1
    rows, n = mask.shape
    while distance < n:
        shifted = context.concat(
            [context.const(0.0, DType.F32, (rows, distance)), views.narrow(x, 1, 0, n - distance)], 1
        )
        x, distance = context.add(x, shifted), 2 * distance
    return x


def picked(context: Lowering, x: View, places: View) -> View:
    """[rows, k] of x [rows, n]: elements at these positions of each row, by one look-up in all of x."""
    rows, n = x.shape
    starts = whole(context.builder.iota((rows, 1), 0))
    starts = context.apply(Op.IMUL, DType.I32, *context.pair(starts, n, DType.I32))
    flat = context.node(context.reshape(x, (rows * n,)))
    index = context.node(context.apply(Op.IADD, DType.I32, places, starts))
    return whole(context.builder.take(flat, index))


def _rows(context: Lowering, x: View, dim: int) -> tuple[View, list[int]]:
    """x as [rows, n] with the ordered dimension last, and the rows' original shape."""
    if not x.shape:
        return context.reshape(x, (1, 1)), []
    moved = views.swap(x, dim % len(x.shape), len(x.shape) - 1)
    return context.reshape(moved, (-1, moved.shape[-1])), list(moved.shape[:-1])


def _back(context: Lowering, x: View, lead: Sequence[int], dim: int, rank: int) -> View:
    if rank == 0:
        return context.reshape(x, ())
    return views.swap(context.reshape(x, (*lead, x.shape[-1])), dim % rank, rank - 1)


def _sorted(context: Lowering, x: View, dim: int, descending: bool) -> tuple[View, View]:
    rows, lead = _rows(context, x, dim)
    places = order(context, key_of(context, rows, descending))
    found = (picked(context, rows, places), places)
    return (
        _back(context, found[0], lead, dim, len(x.shape)),
        _back(context, found[1], lead, dim, len(x.shape)),
    )


@lowers("sort.default")
def sort(
    context: Lowering, traced: Traced, x: View, dim: int = -1, descending: bool = False
) -> tuple[View, View]:
    return _sorted(context, x, dim, descending)


@lowers("sort.stable")
def sort_stable(
    context: Lowering, traced: Traced, x: View, *, stable: Any = True, dim: int = -1, descending: bool = False
) -> tuple[View, View]:
    return _sorted(context, x, dim, descending)


@lowers("topk.default")
def topk(
    context: Lowering,
    traced: Traced,
    x: View,
    k: int,
    dim: int = -1,
    largest_: bool = True,
    sorted_: bool = True,
    **given: bool,
) -> tuple[View, View]:
    """The k largest (or smallest) in order, even if not requested; ties take the first."""
    upwards = given.get("largest", largest_)
    rows, lead = _rows(context, x, dim)
    n = rows.shape[1]
    if k < 1:
        raise Refused("the 0 largest are an empty tensor, which has no place in a program")
    if n <= COUNTED or 4 * k > n:
        places = views.narrow(order(context, key_of(context, rows, upwards)), 1, 0, k)
    else:
        some = largest(context, key_of(context, rows, not upwards), k)
        best = picked(context, key_of(context, rows, upwards), some)
        places = picked(
            context, some, order(context, best) if k > 1 else context.const(0, DType.I32, (rows.shape[0], 1))
        )
    values = picked(context, rows, places)
    rank = len(x.shape)
    return _back(context, values, lead, dim, rank), _back(context, places, lead, dim, rank)


def _nth(context: Lowering, x: View, n: int, dim: int, keepdim: bool) -> tuple[View, View]:
    values, places = _sorted(context, x, dim, False)
    if not x.shape:
        return values, places
    if keepdim:
        return views.narrow(values, dim, n, n + 1), views.narrow(places, dim, n, n + 1)
    return views.select(values, dim, n), views.select(places, dim, n)


@lowers("kthvalue.default")
def kthvalue(
    context: Lowering, traced: Traced, x: View, k: int, dim: int = -1, keepdim: bool = False
) -> tuple[View, View]:
    return _nth(context, x, k - 1, dim, keepdim)


@lowers("median.dim")
def median(context: Lowering, traced: Traced, x: View, dim: int, keepdim: bool = False) -> tuple[View, View]:
    """The lower median; a row with NaN gives NaN and its first position."""
    size = x.shape[dim] if x.shape else 1
    value, place = _nth(context, x, (size - 1) // 2, dim, True)
    if x.dtype is DType.F32 and x.shape:
        last, _where = _nth(context, x, size - 1, dim, True)
        _, order_ = _sorted(context, x, dim, True)
        first = views.narrow(order_, dim, 0, 1)
        fine = context.compare(Op.EQ, last, last)
        value = context.where(fine, value, last, DType.F32)
        place = context.where(fine, place, first, DType.I32)
    if not x.shape or keepdim:
        return value, place
    return views.select(value, dim, 0), views.select(place, dim, 0)


@lowers("median.default")
def median_of_all(context: Lowering, traced: Traced, x: View) -> View:
    flat = context.reshape(x, (x.elements,))
    return median(context, traced, flat, 0)[0]


@lowers("min.dim")
def least(context: Lowering, traced: Traced, x: View, dim: int, keepdim: bool = False) -> tuple[View, View]:
    """The minimum and its first position; here NaN counts as less than everything."""
    return _extreme(context, x, dim, keepdim)


def _extreme(context: Lowering, x: View, dim: int, keepdim: bool) -> tuple[View, View]:
    if x.dtype is not DType.F32:
        raise Refused("it has a float32 form only")
    turned = context.unary(Op.NEG, x)
    rows, lead = _rows(context, turned, dim)
    place = context.builder.argmax(context.node(rows))
    column = views.unsqueeze(whole(place), 1)
    values = picked(context, _rows(context, x, dim)[0], column)
    found = [_back(context, y, lead, dim, len(x.shape)) for y in (values, column)]
    if keepdim or not x.shape:
        return found[0], found[1]
    return views.select(found[0], dim, 0), views.select(found[1], dim, 0)
