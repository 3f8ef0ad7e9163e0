"""Validates single instructions: dtypes, shapes, attributes (docs/protocol.md, 2.2-2.5).

Contract: `check_node` accepts a node exactly if it keeps every rule that depends on the node and the record
size only. Nothing is allocated and no integer overflows, whatever the numbers. Rules between nodes (earlier
references, outputs, limits of a whole program) are in ``program.validate``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from assay.program.isa import MAX_NODE_BYTES, DType, Family, Node, Op, Shape

MAX_DIMS = 8
MAX_ELEMENTS = 1 << 28
MAX_FAN_IN = 4_096


class RuleBroken(ValueError):
    """A rule of the instruction set is broken; the message has the rule and the offending numbers."""


class TooLarge(RuleBroken):
    """A program would have too many nodes or slots."""


def _require(holds: bool, rule: str) -> None:
    if not holds:
        raise RuleBroken(rule)


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """The smallest shape to which all shapes broadcast, aligned at the last dimension. Raises RuleBroken."""
    out: list[int] = []
    for back in range(1, max((len(s) for s in shapes), default=0) + 1):
        sizes = {s[-back] for s in shapes if len(s) >= back} - {1}
        _require(len(sizes) <= 1, f"shapes {list(shapes)} do not broadcast")
        out.append(sizes.pop() if sizes else 1)
    return tuple(reversed(out))


def contiguous(shape: Shape) -> tuple[int, ...]:
    """Row-major strides, in elements."""
    return tuple(prod(shape[d + 1 :]) for d in range(len(shape)))


def strided_bounds(shape: Shape, offset: int, strides: Sequence[int]) -> tuple[int, int]:
    """Minimum and maximum flat index that a strided view touches."""
    spans = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    return offset + sum(min(0, s) for s in spans), offset + sum(max(0, s) for s in spans)


def check_shape(shape: Shape) -> None:
    """Checks rule 2.2. Raises RuleBroken."""
    _require(len(shape) <= MAX_DIMS, f"a shape has at most {MAX_DIMS} dimensions, not {len(shape)}")
    _require(all(1 <= n <= MAX_ELEMENTS for n in shape), f"dimensions are 1 to 2^28, not {shape}")
    _require(prod(shape) <= MAX_ELEMENTS, f"a tensor has at most 2^28 elements, not {prod(shape)}")


def check_node(node: Node, record_size: int) -> None:
    """Checks that the node is a valid instruction. Raises RuleBroken."""
    check_shape(node.shape)
    for ref in node.inputs:
        check_shape(ref.shape)
    dtypes = tuple(ref.dtype for ref in node.inputs)
    _require(
        (dtypes, node.dtype) in node.op.row.types,
        f"{node.op.word} is not defined for {[d.name for d in dtypes]} -> {node.dtype.name}",
    )
    attrs = node.op.row.attributes + (len(node.shape) if node.op is Op.STRIDED else 0)
    _require(len(node.attrs) == attrs, f"{node.op.word} has {attrs} attributes, not {len(node.attrs)}")
    _require(all(-(1 << 63) <= a < 1 << 63 for a in node.attrs), "attributes are 64-bit integers")
    size = 5 + 4 * len(node.shape) + sum(6 + 4 * len(r.shape) for r in node.inputs) + 8 * len(node.attrs)
    _require(size <= MAX_NODE_BYTES, f"a node's encoding has at most {MAX_NODE_BYTES} bytes, not {size}")
    if node.op.elementwise:
        _elementwise(node)
    elif node.op.reads_records:
        _data(node, record_size)
    elif node.op in _CHECKS:
        _CHECKS[node.op](node)


def _elementwise(node: Node) -> None:
    for ref in node.inputs:
        _require(
            len(ref.shape) <= len(node.shape) and broadcast([ref.shape, node.shape]) == node.shape,
            f"input shape {ref.shape} does not broadcast to {node.shape}",
        )


def _state(node: Node) -> None:
    _require(node.attrs[0] >= 0, "a slot is not negative")


def _data(node: Node, record_size: int) -> None:
    offset = node.attrs[0]
    name = node.op.word
    _require(len(node.shape) == 2, f"{name} is [rows, bytes], not {node.shape}")
    _require(
        offset >= 0 and offset + node.shape[1] <= record_size,
        f"bytes [{offset}, {offset + node.shape[1]}) lie outside a record of {record_size} bytes",
    )
    if node.op is Op.DATA:
        _require(0 <= node.attrs[1] <= (1 << 32) - node.shape[0], "rows are counted in 32 bits")
        return
    indices = node.inputs[0].shape
    _require(indices == node.shape[:1], f"record takes one index for each row of {node.shape}, not {indices}")


def _const(node: Node) -> None:
    bits = node.attrs[0]
    _require(0 <= bits < 1 << (8 * node.dtype.size), f"0x{bits:x} does not fit {node.dtype.name}")
    if node.dtype is DType.BOOL:
        _require(bits <= 1, "a bool is 0 or 1")
    if node.dtype is DType.F32:
        _require(bits & 0x7FFFFFFF <= 0x7F800000 or bits == 0x7FC00000, "the only NaN is 0x7fc00000")


def _iota(node: Node) -> None:
    _require(0 <= node.attrs[0] < len(node.shape), f"iota has no dimension {node.attrs[0]}")


def _counter(node: Node) -> None:
    _require(node.shape == (), f"{node.op.word} is a scalar")


def _reduction(node: Node) -> None:
    shape = node.inputs[0].shape
    _require(len(shape) >= 1, "a contraction needs a dimension")
    _require(shape[-1] <= MAX_FAN_IN, f"a contraction is at most {MAX_FAN_IN} long, not {shape[-1]}")
    _require(node.shape == shape[:-1], f"output shape is {shape[:-1]}, not {node.shape}")


def _quantise(node: Node) -> None:
    x, e = node.inputs
    _require(len(x.shape) >= 1 and x.shape[-1] <= MAX_FAN_IN, f"a row is 1 to {MAX_FAN_IN} long")
    _require(e.shape == x.shape[:-1], f"exponents are {x.shape[:-1]}, not {e.shape}")
    _require(node.shape == x.shape, f"output shape is {x.shape}, not {node.shape}")


def _product(node: Node) -> None:
    qa, ea, qb, eb = (ref.shape for ref in node.inputs)
    _require(len(qa) >= 2 and len(qb) == len(qa), "product operands have the same two or more dimensions")
    _require(qa[:-2] == qb[:-2] and qa[-1] == qb[-1], f"operands {qa} and {qb} do not match")
    _require(qa[-1] <= MAX_FAN_IN, f"a contraction is at most {MAX_FAN_IN} long, not {qa[-1]}")
    _require(ea == qa[:-1] and eb == qb[:-1], f"exponents {ea}, {eb} do not match {qa}, {qb}")
    expected = (*qa[:-1], qb[-2])
    _require(node.shape == expected, f"output shape is {expected}, not {node.shape}")


def _scatter_sum(node: Node) -> None:
    x, idx = (ref.shape for ref in node.inputs)
    _require(
        len(x) == 2 and idx in (x, x[1:]), f"scatter_sum takes [D, n] and [n] or [D, n], not {x} and {idx}"
    )
    _require(x[1] <= MAX_FAN_IN, f"a contraction is at most {MAX_FAN_IN} long, not {x[1]}")
    _require(len(node.shape) == 2 and node.shape[0] == x[0], f"output is [{x[0]}, V], not {node.shape}")


def _strided(node: Node) -> None:
    low, high = strided_bounds(node.shape, node.attrs[0], node.attrs[1:])
    elements = node.inputs[0].elements
    _require(low >= 0 and high < elements, f"indices {low}..{high} lie outside {elements} elements")


def _reshape(node: Node) -> None:
    _require(
        node.elements == node.inputs[0].elements,
        f"{node.inputs[0].shape} has not as many elements as {node.shape}",
    )


def _concat(node: Node) -> None:
    dim, shapes = node.attrs[0], [ref.shape for ref in node.inputs]
    _require(0 <= dim < len(node.shape), f"concat has no dimension {dim}")
    rest = [(*s[:dim], *s[dim + 1 :]) for s in (*shapes, node.shape)]
    _require(
        all(len(s) == len(node.shape) for s in shapes) and len(set(rest)) == 1,
        f"shapes {shapes} do not join to {node.shape} along {dim}",
    )
    joined = sum(s[dim] for s in shapes)
    _require(node.shape[dim] == joined, f"dimension {dim} is {joined}, not {node.shape[dim]}")


def _take(node: Node) -> None:
    table, idx = (ref.shape for ref in node.inputs)
    _require(len(table) >= 1, "take needs a table with rows")
    _require(node.shape == idx + table[1:], f"output shape is {idx + table[1:]}, not {node.shape}")


def _pick(node: Node) -> None:
    x, idx = (ref.shape for ref in node.inputs)
    _require(len(x) >= 1 and idx == x[:-1], f"pick takes [.., V] and [..], not {x} and {idx}")
    _require(node.shape == idx, f"output shape is {idx}, not {node.shape}")


_CHECKS = {
    Op.STATE: _state,
    Op.CONST: _const,
    Op.IOTA: _iota,
    Op.STEP: _counter,
    Op.SHARD: _counter,
    **dict.fromkeys(Op.of(Family.REDUCTION), _reduction),
    Op.QUANTISE: _quantise,
    Op.PRODUCT: _product,
    Op.SCATTER_SUM: _scatter_sum,
    Op.STRIDED: _strided,
    Op.RESHAPE: _reshape,
    Op.CONCAT: _concat,
    Op.TAKE: _take,
    Op.PICK: _pick,
}
