"""Finds rows of exponentials whose largest number follows from a maximum that the program takes anyway.

Contract: where m is the maximum of a row, or of several beside it, exp(x - m) is largest where x is, since
subtraction is rounded once and exp (docs/arithmetic.md, A22) never falls where its argument rises. It is at
most 1, and NaN if a number of the row is. So a softmax's sums, and its own exponents, need no maximum of
their own. Not guaranteed: that every such row is found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from assay.program.compiled.slices import Span, columns, under_reshapes
from assay.program.isa import Op, Program


class Largest(NamedTuple):
    """The largest number of each row is exp(maximum - shift), over `total` if there is one: nodes of one
    number a row."""

    maximum: int
    shift: int
    total: int | None = None


def known_maxima(program: Program) -> dict[int, Largest]:
    """sum and exponent nodes of such rows."""
    maxima = {
        columns(program, node.inputs[0].ref): i for i, node in enumerate(program.nodes) if node.op is Op.AMAX
    }
    found: dict[int, Largest] = {}
    for index, node in enumerate(program.nodes):
        if node.op is Op.SUM:
            largest = _exponentials(program, node.inputs[0].ref, maxima)
        elif node.op is Op.EXPONENT:
            largest = _softmax(program, node.inputs[0].ref, found)
        else:
            continue
        if largest is not None:
            found[index] = largest
    return found


def _exponentials(program: Program, ref: int, maxima: Mapping[tuple[int, Span], int]) -> Largest | None:
    """Of exp(x - m), or columns of it, with the maximum of the same of x, which m is made of."""
    base, span = columns(program, ref)
    power = program.nodes[base]
    shifted = program.nodes[power.inputs[0].ref] if power.op is Op.EXP else None
    if shifted is None or shifted.op is not Op.SUB or shifted.inputs[0].shape != power.shape:
        return None
    x, shift = shifted.inputs
    maximum = maxima.get((x.ref, span))
    if maximum is None or shift.shape != (*power.shape[:-1], 1):
        return None
    below = under_reshapes(program, shift.ref)
    return Largest(maximum, below) if maximum in _joined(program, below) else None


def _softmax(program: Program, ref: int, sums: Mapping[int, Largest]) -> Largest | None:
    """Of a row over its sum, of exponentials whose largest is known."""
    node = program.nodes[ref]
    if node.op is not Op.DIV or node.inputs[1].shape != (*node.shape[:-1], 1):
        return None
    total = under_reshapes(program, node.inputs[1].ref)
    known = sums.get(total)
    whole = program.nodes[total].inputs[:1] == node.inputs[:1]
    return known._replace(total=total) if known is not None and whole else None


def _joined(program: Program, ref: int) -> Iterator[int]:
    """A maximum and those that it is made of."""
    yield ref
    if program.nodes[ref].op is Op.MAX:
        for x in program.nodes[ref].inputs:
            yield from _joined(program, x.ref)
