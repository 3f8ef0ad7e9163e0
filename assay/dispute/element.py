"""Computes one element of one node's output (docs/protocol.md, 2.4).

Contract: `value` reads the input elements in the row's `spans` (``program.isa``) and no others. Values are
those of the scalar model (f32 as 32-bit patterns, integers and bools as numbers). `data` and `record`
elements come from a record, not from a span. This module and the arbiter read the same bytes. Not guaranteed:
speed.

Source: ``contracts/src/arbiter``, which does the same on chain.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from math import prod

from assay.program.isa import DType, Family, Node, Op
from assay.program.spans import Read, Span

FORMATS = {DType.F32: "I", DType.I32: "i", DType.I16: "h", DType.U8: "B", DType.BOOL: "B"}
"""struct codes of an element's value."""


def values(data: bytes | memoryview, dtype: DType) -> tuple[int, ...]:
    """Decodes little-endian elements."""
    return struct.unpack(f"<{len(data) // dtype.size}{FORMATS[dtype]}", data)


def bits(value: int, dtype: DType) -> int:
    """An element's bits, zero-extended, from its value."""
    return value & ((1 << (8 * dtype.size)) - 1)


def value(node: Node, element: int, read: Read, step: int, shard: int, record_byte: Callable[[], int]) -> int:
    """Value of `element` of the node's output.

    `step`: step counter; `shard`: the shard's number; `record_byte`: returns the byte that a data or record
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
    wanted = op.row.spans(node, element, read)
    if op is Op.STATE or op.moves:
        return read(wanted[-1].input, wanted[-1].first)
    assert op.row.model is not None
    operands = [_operand(span, read) for span in wanted]
    return int(op.row.model(*operands, **_attributes(node, element)))


def _operand(span: Span, read: Read) -> int | Sequence[int]:
    row = [read(span.input, span.first + i) for i in range(span.count)]
    return row if span.row else row[0]


def _attributes(node: Node, element: int) -> dict[str, object]:
    """Arguments of the model besides elements."""
    if node.op.row.family is Family.COMPARISON:
        return {"type": node.inputs[0].dtype.name.lower()}
    if node.op.row.family is Family.CONVERSION:
        return {"source": node.inputs[0].dtype.name.lower(), "target": node.dtype.name.lower()}
    if node.op is Op.SCATTER_SUM:
        return {"v": element % node.shape[-1], "V": node.shape[-1]}
    return {}
