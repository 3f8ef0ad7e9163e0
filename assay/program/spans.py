"""Computes which input elements one output element of an instruction depends on (docs/protocol.md, 2.4).

Contract: a function of a node, an output element and `read` returns one run of elements per input, in the
order of the model's operands. `read` is only called for the index of a take or pick. The arbiter reads the
same elements (``contracts/src/arbiter``). Everything here is arithmetic on shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.program.isa import Node, Shape


@dataclass(frozen=True)
class Span:
    """Elements [first, first + count) of the input number `input`; a row is one operand."""

    input: int
    first: int
    count: int = 1
    row: bool = False


Read = Callable[[int, int], int]
"""read(input, element): value of one element of an input."""
Spans = Callable[["Node", int, Read], list[Span]]


def nothing(node: Node, element: int, read: Read) -> list[Span]:
    return []


def same_place(node: Node, element: int, read: Read) -> list[Span]:
    """Span of a state's slot, counted as input 0, or of a reshape's input."""
    return [Span(0, element)]


def record_number(node: Node, element: int, read: Read) -> list[Span]:
    return [Span(0, element // node.shape[1])]


def broadcast(node: Node, element: int, read: Read) -> list[Span]:
    return [Span(i, broadcast_index(element, r.shape, node.shape)) for i, r in enumerate(node.inputs)]


def row(node: Node, element: int, read: Read) -> list[Span]:
    length = node.inputs[0].shape[-1]
    return [Span(0, element * length, length, row=True)]


def quantise(node: Node, element: int, read: Read) -> list[Span]:
    return [Span(0, element), Span(1, element // node.shape[-1])]


def product(node: Node, element: int, read: Read) -> list[Span]:
    rows, columns, length = node.shape[-2], node.shape[-1], node.inputs[0].shape[-1]
    left = element // columns
    right = left // rows * columns + element % columns
    return [
        Span(0, left * length, length, row=True),
        Span(1, left),
        Span(2, right * length, length, row=True),
        Span(3, right),
    ]


def scatter_sum(node: Node, element: int, read: Read) -> list[Span]:
    length = node.inputs[0].shape[-1]
    first = element // node.shape[-1] * length
    own = len(node.inputs[1].shape) == 2
    return [Span(0, first, length, row=True), Span(1, first if own else 0, length, row=True)]


def strided(node: Node, element: int, read: Read) -> list[Span]:
    flat = node.attrs[0]
    for size, stride in zip(reversed(node.shape), reversed(node.attrs[1:]), strict=True):
        flat += (element % size) * stride
        element //= size
    return [Span(0, flat)]


def concat(node: Node, element: int, read: Read) -> list[Span]:
    dim = node.attrs[0]
    inner = prod(node.shape[dim + 1 :])
    position = element // inner % node.shape[dim]
    outer = element // inner // node.shape[dim]
    for ordinal, part in enumerate(node.inputs):
        if position < part.shape[dim]:
            return [Span(ordinal, (outer * part.shape[dim] + position) * inner + element % inner)]
        position -= part.shape[dim]
    raise ValueError("the parts of a concat are shorter than the whole")


def take(node: Node, element: int, read: Read) -> list[Span]:
    shape = node.inputs[0].shape
    inner = prod(shape[1:])
    place = element // inner
    chosen = clamped(read(1, place), shape[0])
    return [Span(1, place), Span(0, chosen * inner + element % inner)]


def pick(node: Node, element: int, read: Read) -> list[Span]:
    length = node.inputs[0].shape[-1]
    return [Span(1, element), Span(0, element * length + clamped(read(1, element), length))]


def broadcast_index(element: int, shape: Shape, to: Shape) -> int:
    """Flat index in a tensor of `shape` of the value that broadcasting to `to` puts at `element`."""
    flat, stride = 0, 1
    for size, out in zip(reversed(shape), reversed(to), strict=False):
        if size != 1:
            flat += (element % out) * stride
        element //= out
        stride *= size
    return flat


def clamped(index: int, count: int) -> int:
    """The index, clamped to `count` elements."""
    return max(0, min(index, count - 1))
