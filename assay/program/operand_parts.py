"""Splits product operands in two parts, for rows in which one large number would hide all others.

Contract: a row x is the sum of its first part, what `quantise` keeps of it, and its second: the rest x −
q·2^(e−13), exact in f32, with an exponent of its own. A product of operands in parts is a sum of ordinary
products, so the arbiter needs nothing new: the f32 value of the first part is itself a product of length 1.
`Precision.terms` lists the parts that are multiplied. Not guaranteed: more than 27 bits below a row's largest
number; numbers from 2^128 − 2^114 on, whose first part is infinite.

Source: docs/decisions/0028-outliers.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum

from assay.program.instructions import Instructions
from assay.program.isa import DType, Input, Node, Op, Program
from assay.program.rules import contiguous

Term = tuple[int, int]
"""Parts of the left and right operand that are multiplied; the first part is 0."""
Quantised = tuple[Input, Input]
"""i16 [.., K] and the exponents i16 [..] that it was quantised by."""


class Precision(StrEnum):
    """Parts of a product's operands that are multiplied, by rising cost."""

    SINGLE = "single"
    LEFT = "left"
    RIGHT = "right"
    SPLIT = "split"
    FULL = "full"

    @property
    def terms(self) -> tuple[Term, ...]:
        """Products that are summed, the largest first; added from the last one."""
        return _TERMS[self]


_TERMS: dict[Precision, tuple[Term, ...]] = {
    Precision.SINGLE: ((0, 0),),
    Precision.LEFT: ((0, 0), (1, 0)),
    Precision.RIGHT: ((0, 0), (0, 1)),
    Precision.SPLIT: ((0, 0), (1, 0), (0, 1)),
    Precision.FULL: ((0, 0), (1, 0), (0, 1), (1, 1)),
}


def operand_part(builder: Instructions, x: Input, number: int) -> Quantised:
    """Part `number`, 0 or 1, of the rows of f32 [.., K], each part with its own exponents."""
    e = builder.exponent(x)
    q = builder.quantise(x, e)
    return (q, e) if number == 0 else operand_part(builder, rest(builder, x, q, e), 0)


def rest(builder: Instructions, x: Input, q: Input, e: Input) -> Input:
    """x minus the part that `q` holds, exact: f32 [.., K]."""
    return builder.sub(x, dequantised(builder, q, e))


def dequantised(builder: Instructions, q: Input, e: Input) -> Input:
    """q·2^(e−13) as f32 [.., K], exact; NaN where e is poisoned: the product of each number by 1."""
    one = builder.const(1.0, DType.F32, (1, 1))
    exponent = builder.exponent(one)
    elements = q.elements
    repeated = builder.strided(e, q.shape, 0, (*contiguous(e.shape), 0))
    column = builder.product(
        builder.reshape(q, (elements, 1)),
        builder.reshape(repeated, (elements,)),
        builder.quantise(one, exponent),
        exponent,
    )
    return builder.reshape(column, q.shape)


def in_terms(builder: Instructions, terms: Sequence[Term], product: Callable[[int, int], Input]) -> Input:
    """The sum of the products of these parts, added from the last one."""
    total: Input | None = None
    for left, right in reversed(terms):
        made = product(left, right)
        total = made if total is None else builder.add(made, total)
    assert total is not None, "a product has terms"
    return total


def dequantised_nodes(program: Program) -> dict[int, Term]:
    """Products that restore a quantise node's values (`dequantised`): their quantise and exponent nodes."""
    found = {}
    for index, node in enumerate(program.nodes):
        if node.op is not Op.PRODUCT or node.inputs[2].shape != (1, 1) or not _is_one(program, node):
            continue
        q = _under_reshapes(program, node.inputs[0].ref)
        e = _repeated_below(program, node.inputs[1].ref, program.nodes[q].shape)
        if e is None or program.nodes[q].op is not Op.QUANTISE:
            continue
        own = program.nodes[q].inputs[1]
        if _under_reshapes(program, own.ref) == _under_reshapes(program, e):
            found[index] = (q, own.ref)
    return found


def _is_one(program: Program, node: Node) -> bool:
    q, e = (program.nodes[ref.ref] for ref in node.inputs[2:])
    if q.op is not Op.QUANTISE or e.op is not Op.EXPONENT or q.inputs[1] != node.inputs[3]:
        return False
    one = program.nodes[q.inputs[0].ref]
    return e.inputs[0] == q.inputs[0] and one.op is Op.CONST and one.attrs == (0x3F800000,)


def _under_reshapes(program: Program, ref: int) -> int:
    while program.nodes[ref].op is Op.RESHAPE:
        ref = program.nodes[ref].inputs[0].ref
    return ref


def _repeated_below(program: Program, ref: int, shape: Sequence[int]) -> int | None:
    """The node that is repeated along the last dimension of `shape`; None if there is none."""
    node = program.nodes[_under_reshapes(program, ref)]
    if node.op is not Op.STRIDED or node.shape != tuple(shape):
        return None
    return node.inputs[0].ref if node.attrs == (0, *contiguous(tuple(shape[:-1])), 0) else None
