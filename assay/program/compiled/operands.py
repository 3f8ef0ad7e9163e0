"""Finds matrices that products on an accelerator read by columns, so that their operands are made in one go.

Contract: a `Matrix` is a node's elements in their order, and its operands are quantise nodes with the
exponents of what they quantise that only products read: whole rows or columns, or adjacent parts of them that
cover the matrix. Not guaranteed: that every such matrix is found; small ones, and matrices read by rows alone
are left out, which a compiler fuses with what makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

from torch import Tensor

from assay.numerics import fused
from assay.program.compiled.one_hot import one_hot_row
from assay.program.compiled.slices import Span, covers, under_reshapes
from assay.program.isa import Node, Op, Program, Shape
from assay.program.rules import contiguous

LEAST_ELEMENTS = 1 << 24
"""Of a matrix that is worth it: a smaller one stays in a GPU's cache between the readings that a compiler
makes while it computes it, and Python takes some 0.15 ms for the launches."""


class Key(NamedTuple):
    """A node's elements seen as matrices."""

    source: int
    matrices: int
    rows: int
    columns: int


@dataclass
class Matrix:
    """Operands of a matrix: quantise nodes by the span that they cover."""

    across: dict[Span, list[int]] = field(default_factory=dict)
    """Rows of these columns."""
    down: dict[Span, list[int]] = field(default_factory=dict)
    """Columns of these rows."""


def matrices(program: Program, restored: Collection[int], others: Container[int] = ()) -> dict[Key, Matrix]:
    """Matrices that are worth it, without the quantise nodes that `others` make."""
    found = all_matrices(program, restored, others)
    return {key: matrix for key, matrix in found.items() if _worth(key, matrix)}


def all_matrices(
    program: Program, restored: Collection[int], others: Container[int] = ()
) -> dict[Key, Matrix]:
    """All matrices found; `restored` are products that only restore a quantise node's values."""
    found: dict[Key, Matrix] = {}
    for index in _operands(program, restored):
        if index in others:
            continue
        place = _place(program, program.nodes[index].inputs[0].ref)
        if place is not None:
            key, by_rows, span = place
            matrix = found.setdefault(key, Matrix())
            (matrix.across if by_rows else matrix.down).setdefault(span, []).append(index)
    return found


def _operands(program: Program, restored: Collection[int]) -> Iterable[int]:
    """quantise nodes of own exponents that only products read."""
    nodes = program.nodes
    others = set(program.outputs)
    for index, node in enumerate(nodes):
        if node.op is not Op.PRODUCT or index in restored:
            others.update(ref.ref for ref in node.inputs)
    for index, node in enumerate(nodes):
        if node.op is Op.QUANTISE and index not in others:
            maker = nodes[node.inputs[1].ref]
            if maker.op is Op.EXPONENT and maker.inputs[0].ref == node.inputs[0].ref:
                yield index


def _place(program: Program, ref: int) -> tuple[Key, bool, Span] | None:
    """The matrix in whose rows or columns an operand lies: (key, by rows, span)."""
    node = program.nodes[ref]
    if node.op is Op.STRIDED and (seen := _strided(program, node)) is not None:
        return seen
    *batch, rows, columns = (1, *node.shape)
    return Key(under_reshapes(program, ref), prod(batch), rows, columns), True, (0, columns)


def _strided(program: Program, node: Node) -> tuple[Key, bool, Span] | None:
    """An operand that is columns of a matrix, or a part of its rows."""
    whole = node.inputs[0]
    offset, *steps = node.attrs
    *batch, lines, length = node.shape
    source = under_reshapes(program, whole.ref)
    if steps[-2:-1] == [1] and lines > 1:
        width = steps[-1]
        rows = length if batch else whole.elements // width
        plain = contiguous((*batch, rows, width))[: len(batch)] == tuple(steps[:-2])
        if lines == width and offset % width == 0 and prod(batch) * rows * width == whole.elements and plain:
            top = offset // width
            return Key(source, prod(batch), rows, width), False, (top, top + length)
    elif (
        len(steps) == 2
        and steps[1] == 1
        and steps[0] * lines == whole.elements
        and offset + length <= steps[0]
    ):
        return Key(source, 1, lines, steps[0]), True, (offset, offset + length)
    return None


def _worth(key: Key, matrix: Matrix) -> bool:
    """True if its operands cover it, and it is large and read by columns."""
    covered = not matrix.across or covers(matrix.across, key.columns)
    covered = covered and bool(matrix.down) and covers(matrix.down, key.rows)
    single = key.matrices == 1 or max(len(matrix.across), len(matrix.down)) == 1
    elements = key.matrices * key.rows * key.columns
    return covered and single and elements >= LEAST_ELEMENTS


def loss_gradient(program: Program, key: Key) -> tuple[int, ...] | None:
    """For a matrix that is the gradient of a loss (`operand_triton.loss_gradient`): its exponentials, their
    sums, factors, places and shares, one of each a row."""
    made = program.nodes[key.source]
    shape, column = (key.rows, key.columns), ((), (1,), (1, 1), (key.rows, 1))
    if made.op is not Op.SUB or made.shape != shape:
        return None
    hit, scaled = (program.nodes[ref.ref] for ref in made.inputs)
    row = one_hot_row(program, hit)
    if row is None or hit.shape != shape or scaled.op is not Op.MUL or scaled.inputs[1].shape not in column:
        return None
    ratio = program.nodes[scaled.inputs[0].ref]
    if ratio.op is not Op.DIV or ratio.inputs[0].shape != shape or ratio.inputs[1].shape not in column:
        return None
    x, total = (ref.ref for ref in ratio.inputs)
    return x, total, scaled.inputs[1].ref, *row


class Operands:
    """Values of the nodes that are made together: when the first of a matrix is asked for."""

    def __init__(self, program: Program, restored: Collection[int], others: Container[int] = ()) -> None:
        self._program = program
        self._found = matrices(program, restored, others)
        self._matrix_of: dict[int, Key] = {}
        self._made: dict[int, fused.Quantised | fused.Exponents] = {}
        for key, matrix in self._found.items():
            for index in (
                i for spans in (matrix.across, matrix.down) for same in spans.values() for i in same
            ):
                self._matrix_of.update(dict.fromkeys((index, program.nodes[index].inputs[1].ref), key))

    def __contains__(self, index: int) -> bool:
        return index in self._matrix_of

    def value(self, index: int, tensor: Callable[[int], Tensor]) -> fused.Quantised | fused.Exponents:
        """A node's value; `tensor` gives another's."""
        if index not in self._made:
            key = self._matrix_of[index]
            loss = loss_gradient(self._program, key)
            x, *vectors = map(tensor, [key.source] if loss is None else loss)
            vectors = [vector.expand(key.rows, 1).reshape(key.rows) for vector in vectors]
            self._made.update(self._operands(key, self._found[key], x, vectors))
        return self._made[index]

    def _operands(
        self, key: Key, matrix: Matrix, x: Tensor, loss: list[Tensor]
    ) -> Iterator[tuple[int, fused.Quantised | fused.Exponents]]:
        spans = [*sorted(matrix.across), *sorted(matrix.down)]
        nodes = [
            *(matrix.across[s] for s in sorted(matrix.across)),
            *(matrix.down[s] for s in sorted(matrix.down)),
        ]
        across, down = (sorted({at for s in found for at in s}) for found in (matrix.across, matrix.down))
        made = fused.operands(x.reshape(_shape(key, tuple(x.shape))), across, down, loss)
        for (start, stop), same, (e, *parts) in zip(spans, nodes, made, strict=True):
            for index in same:
                shape = self._program.nodes[index].shape
                high, low = (part.reshape(*shape[:-1], part.shape[-1]) for part in parts)
                yield index, fused.quantised_of_parts(high, low, stop - start)
                yield (
                    self._program.nodes[index].inputs[1].ref,
                    fused.Exponents(e.reshape(shape[:-1]), own=True),
                )


def _shape(key: Key, source: Shape) -> Shape:
    """The matrices' shape: the source's own where it is one."""
    same = source[-2:] == (key.rows, key.columns) and len(source) <= 4
    return source if same else (key.matrices, key.rows, key.columns)
