"""Finds sums of one-hot rows, which need no summing: a loss's gradient over a vocabulary has them.

Contract: each sum found is of a row, or of adjacent elements of it, that holds one number at an index and +0
elsewhere. Not guaranteed: that every such sum is found.
"""

from __future__ import annotations

from typing import NamedTuple

from assay.program.compiled.slices import Span, columns
from assay.program.isa import Node, Op, Program


class OneHotSum(NamedTuple):
    """A sum over these columns of rows with `share` at `place`: nodes of one element a row."""

    place: int
    share: int
    span: Span


def one_hot_sums(program: Program) -> dict[int, OneHotSum]:
    """All sums found, by node."""
    found = {}
    for index, node in enumerate(program.nodes):
        if node.op is Op.SUM:
            row, span = columns(program, node.inputs[0].ref)
            pair = one_hot_row(program, program.nodes[row])
            if pair is not None:
                found[index] = OneHotSum(*pair, span)
    return found


def one_hot_row(program: Program, row: Node) -> tuple[int, int] | None:
    """For rows select(iota == place, share, +0) along the last dimension: the nodes of both."""
    if row.op is not Op.SELECT or not row.shape:
        return None
    hit, share, other = row.inputs
    zero, equal = program.nodes[other.ref], program.nodes[hit.ref]
    if (
        zero.op is not Op.CONST
        or zero.attrs[0]
        or equal.op is not Op.EQ
        or share.shape[-1:] not in ((), (1,))
    ):
        return None
    for line, place in (equal.inputs, equal.inputs[::-1]):
        places = program.nodes[line.ref]
        along = places.op is Op.IOTA and places.attrs[0] == len(places.shape) - 1
        if along and line.shape[-1:] == row.shape[-1:] and place.shape[-1:] in ((), (1,)):
            return place.ref, share.ref
    return None
