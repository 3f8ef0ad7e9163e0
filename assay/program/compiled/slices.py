"""Reads of a program's nodes through views: adjacent columns of rows, and spans that cover a length.

Contract: pure. Not guaranteed: that every view of such columns is recognised.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise

from assay.program.isa import Op, Program
from assay.program.rules import contiguous

Span = tuple[int, int]
"""[start, stop)."""


def columns(program: Program, ref: int) -> tuple[int, Span]:
    """The node whose rows a node has, and which columns of it; itself and all if it is no such view."""
    node = program.nodes[ref]
    if node.op is Op.STRIDED and node.shape:
        whole, (start, *steps) = node.inputs[0], node.attrs
        same = node.shape[:-1] == whole.shape[:-1] and tuple(steps) == contiguous(whole.shape)
        if same and start + node.shape[-1] <= whole.shape[-1]:
            return whole.ref, (start, start + node.shape[-1])
    return ref, (0, node.shape[-1] if node.shape else 1)


def covers(spans: Collection[Span], length: int) -> bool:
    """True if adjacent spans are all of a length."""
    ends = [0, *(stop for _, stop in sorted(spans))]
    return ends[-1] == length and sorted(spans) == list(pairwise(ends))


def under_reshapes(program: Program, ref: int) -> int:
    """The node whose elements, in their order, a reshape has."""
    while program.nodes[ref].op is Op.RESHAPE:
        ref = program.nodes[ref].inputs[0].ref
    return ref
