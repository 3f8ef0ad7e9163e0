"""One element of one node: which input elements it depends on, and its value (docs/protocol.md, 2.4).

Contract: `spans` names every input element that `value` reads, as one run for each input; values are those of
the scalar model (f32 as 32-bit patterns, integers and bools as numbers). `data` and `record` elements come
from a record, not from a span. This module and the arbiter read the same bytes. Not guaranteed: speed.

Source: ``contracts/src/arbiter``, which does the same on chain.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from assay.numerics import scalar
from assay.program.isa import DType, Node, Op, Shape

FORMATS = {DType.F32: "I", DType.I32: "i", DType.I16: "h", DType.U8: "B", DType.BOOL: "B"}
"""struct codes of an element's value."""


@dataclass(frozen=True)
class Span:
    """Elements [first, first + count) of the input with ordinal `input`."""

    input: int
    first: int
    count: int


Read = Callable[[int, int], int]
"""read(input, element): value of one element of an input."""


def values(data: bytes | memoryview, dtype: DType) -> tuple[int, ...]:
    """Values of little-endian elements."""
    return struct.unpack(f"<{len(data) // dtype.size}{FORMATS[dtype]}", data)


def bits(value: int, dtype: DType) -> int:
    """An element's bits, zero-extended, from its value."""
    return value & ((1 << (8 * dtype.size)) - 1)


def broadcast_index(element: int, shape: Shape, to: Shape) -> int:
    """Flat index in a tensor of `shape` of what broadcasting to `to` puts at `element`."""
    flat, stride = 0, 1
    for size, out in zip(reversed(shape), reversed(to), strict=False):
        if size != 1:
            flat += (element % out) * stride
        element //= out
        stride *= size
    return flat


def strided_index(node: Node, element: int) -> int:
    """Flat index that a strided node reads for `element`."""
    flat = node.attrs[0]
    for size, stride in zip(reversed(node.shape), reversed(node.attrs[1:]), strict=True):
        flat += (element % size) * stride
        element //= size
    return flat


def _concat_source(node: Node, element: int) -> Span:
    dim = node.attrs[0]
    inner = prod(node.shape[dim + 1 :])
    position = element // inner % node.shape[dim]
    outer = element // inner // node.shape[dim]
    for ordinal, part in enumerate(node.inputs):
        if position < part.shape[dim]:
            return Span(ordinal, (outer * part.shape[dim] + position) * inner + element % inner, 1)
        position -= part.shape[dim]
    raise ValueError("the parts of a concat are shorter than the whole")


def clamped(index: int, count: int) -> int:
    """The index, or the nearest that there is of `count`."""
    return max(0, min(index, count - 1))


def _product_spans(node: Node, element: int) -> list[Span]:
    rows, columns, length = node.shape[-2], node.shape[-1], node.inputs[0].shape[-1]
    row = element // columns
    column = row // rows * columns + element % columns
    return [
        Span(0, row * length, length),
        Span(1, row, 1),
        Span(2, column * length, length),
        Span(3, column, 1),
    ]


def _moved_spans(node: Node, element: int, read: Read) -> list[Span]:
    if node.op is Op.STRIDED:
        return [Span(0, strided_index(node, element), 1)]
    if node.op is Op.RESHAPE:
        return [Span(0, element, 1)]
    if node.op is Op.CONCAT:
        return [_concat_source(node, element)]
    shape = node.inputs[0].shape
    if node.op is Op.TAKE:
        inner = prod(shape[1:])
        place = element // inner
        row = clamped(read(1, place), shape[0])
        return [Span(1, place, 1), Span(0, row * inner + element % inner, 1)]
    column = clamped(read(1, element), shape[-1])
    return [Span(1, element, 1), Span(0, element * shape[-1] + column, 1)]


def spans(node: Node, element: int, read: Read) -> list[Span]:
    """What `element` of the node's output depends on. `read` is asked for the index of a take or pick only.

    A state node depends on its slot: input 0 is that tensor. Sources without inputs depend on nothing here.
    """
    if node.op is Op.STATE:
        return [Span(0, element, 1)]
    if node.op.elementwise:
        return [Span(i, broadcast_index(element, r.shape, node.shape), 1) for i, r in enumerate(node.inputs)]
    if node.op in (Op.SUM, Op.AMAX, Op.ARGMAX, Op.EXPONENT):
        length = node.inputs[0].shape[-1]
        return [Span(0, element * length, length)]
    if node.op is Op.QUANTISE:
        return [Span(0, element, 1), Span(1, element // node.shape[-1], 1)]
    if node.op is Op.PRODUCT:
        return _product_spans(node, element)
    if node.op is Op.SCATTER_SUM:
        length = node.inputs[0].shape[-1]
        row = element // node.shape[-1] * length
        return [Span(0, row, length), Span(1, row if len(node.inputs[1].shape) == 2 else 0, length)]
    if node.op is Op.RECORD:
        return [Span(0, element // node.shape[1], 1)]
    if node.op >= Op.STRIDED:
        return _moved_spans(node, element, read)
    return []


def value(node: Node, element: int, read: Read, step: int, shard: int, record_byte: Callable[[], int]) -> int:
    """Value of `element` of the node's output.

    `step` is the step counter, `shard` the shard's number, `record_byte` gives the byte that a data or record
    node reads. Raises what these raise.
    """
    op = node.op
    if op.reads_records:
        return record_byte()
    if op is Op.CONST:
        return values(node.attrs[0].to_bytes(node.dtype.size, "little"), node.dtype)[0]
    if op is Op.IOTA:
        dim = node.attrs[0]
        return element // prod(node.shape[dim + 1 :]) % node.shape[dim]
    if op is Op.STEP:
        return step & 0x7FFFFFFF
    if op is Op.SHARD:
        return shard & 0x7FFFFFFF
    wanted = spans(node, element, read)
    if op is Op.STATE or op >= Op.STRIDED:
        return read(wanted[-1].input, wanted[-1].first)
    operands = [_operand(span, op, read) for span in wanted]
    return scalar.evaluate(op.name.lower(), *operands, **_attributes(node, element))


_ROWS = {
    Op.SUM: (0,),
    Op.AMAX: (0,),
    Op.ARGMAX: (0,),
    Op.EXPONENT: (0,),
    Op.PRODUCT: (0, 2),
    Op.SCATTER_SUM: (0, 1),
}


def _operand(span: Span, op: Op, read: Read) -> int | Sequence[int]:
    row = [read(span.input, span.first + i) for i in range(span.count)]
    return row if span.input in _ROWS.get(op, ()) else row[0]


def _attributes(node: Node, element: int) -> dict[str, object]:
    if node.op in (Op.EQ, Op.LT, Op.LE):
        return {"type": node.inputs[0].dtype.name.lower()}
    if node.op in (Op.CONVERT, Op.BITS):
        return {"source": node.inputs[0].dtype.name.lower(), "target": node.dtype.name.lower()}
    if node.op is Op.SCATTER_SUM:
        return {"v": element % node.shape[-1], "V": node.shape[-1]}
    return {}
