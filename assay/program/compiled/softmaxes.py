"""Recognises the softmax of causal attention, and its gradient, in a program's nodes.

Contract: pure. Each one found is of the rows of square matrices, of which a comparison of places leaves what
is not above the diagonal. Not guaranteed: that every one is found.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from assay.program.compiled.slices import under_reshapes
from assay.program.isa import Input, Node, Op, Program

_MINUS_INF = int.from_bytes(struct.pack("<f", float("-inf")), "little")


class Gradient(NamedTuple):
    """Nodes of a softmax and of the gradient of it, from which the gradient of its scores is made."""

    softmax: int
    slope: int


def scores_of(program: Program, ref: int) -> int | None:
    """The scores of which a node is the softmax up to the diagonal."""
    node = program.nodes[ref]
    if node.op is not Op.DIV:
        return None
    power, total = (_of_rows(program, x, node) for x in node.inputs)
    exp, added = program.nodes[power], program.nodes[total]
    if exp.op is not Op.EXP or added.op is not Op.SUM or added.inputs[0].ref != power:
        return None
    shifted = program.nodes[exp.inputs[0].ref]
    if shifted.op is not Op.SUB:
        return None
    x, most = (_of_rows(program, given, node) for given in shifted.inputs)
    largest = program.nodes[most]
    if largest.op is not Op.AMAX or largest.inputs[0].ref != x:
        return None
    return _up_to_the_diagonal(program, x, _MINUS_INF)


def gradient_of(program: Program, ref: int) -> Gradient | None:
    """What a node is the gradient of the scores of, up to the diagonal: g * p - p * sum(g * p)."""
    made = _up_to_the_diagonal(program, ref, 0)
    if made is None or program.nodes[made].op is not Op.SUB:
        return None
    node = program.nodes[made]
    weighted, shares = (x.ref for x in node.inputs)
    if program.nodes[weighted].op is not Op.MUL or program.nodes[shares].op is not Op.MUL:
        return None
    factors = [x.ref for x in program.nodes[weighted].inputs]
    for p, total in (program.nodes[shares].inputs, program.nodes[shares].inputs[::-1]):
        added = program.nodes[_of_rows(program, total, node)]
        if (
            added.op is Op.SUM
            and added.inputs[0].ref == weighted
            and p.ref in factors
            and p.shape == node.shape
        ):
            slope = factors[1 - factors.index(p.ref)]
            return Gradient(p.ref, slope) if program.nodes[slope].shape == node.shape else None
    return None


def _up_to_the_diagonal(program: Program, ref: int, other: int) -> int | None:
    """The node x of select(column <= row, x, other) of square matrices."""
    node = program.nodes[ref]
    if node.op is not Op.SELECT or len(node.shape) < 2 or node.shape[-1] != node.shape[-2]:
        return None
    mask, x, rest = node.inputs
    constant = program.nodes[rest.ref]
    if x.shape != node.shape or constant.op is not Op.CONST or constant.attrs[0] != other:
        return None
    return x.ref if _compares_places(program, mask, node.shape[-1]) else None


def _compares_places(program: Program, mask: Input, length: int) -> bool:
    node = program.nodes[mask.ref]
    if node.op is not Op.LE:
        return False
    column, row = node.inputs
    lines = (program.nodes[under_reshapes(program, x.ref)] for x in node.inputs)
    places = all(line.op is Op.IOTA and line.shape == (length,) for line in lines)
    return places and column.shape in ((length,), (1, length)) and row.shape == (length, 1)


def _of_rows(program: Program, x: Input, node: Node) -> int:
    """An operand in a node's shape, or the row-wise results of which it is a column."""
    return under_reshapes(program, x.ref) if x.shape == (*node.shape[:-1], 1) else x.ref
