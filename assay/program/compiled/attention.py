"""Values of a program's nodes that the kernels of causal attention make (``numerics.attention_triton``).

Contract: they are a softmax with the operand that its rows are, and the operands of products that read the
softmax's columns, and rows and columns of the gradient of its scores. Not guaranteed: that every one is made
so; small ones are left to the compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor

from assay.numerics import fused
from assay.numerics.operand_triton import Operand
from assay.program.compiled import operands
from assay.program.compiled.operands import Key, Matrix
from assay.program.compiled.segments import Part
from assay.program.compiled.slices import under_reshapes
from assay.program.compiled.softmaxes import Gradient, gradient_of, scores_of
from assay.program.isa import Op, Program

Value = Tensor | fused.Quantised | fused.Exponents
Tensors = Callable[[int], Tensor]
"""A node's value."""


class Attention:
    """Values that are made together: when the first of them is asked for."""

    def __init__(self, program: Program, restored: Mapping[int, tuple[int, int]]) -> None:
        self._program = program
        self._found = operands.all_matrices(program, restored)
        self._made: dict[int, Value] = {}
        self._makers: dict[int, Callable[[Tensors], None]] = {}
        for ref, node in enumerate(program.nodes):
            if node.elements < operands.LEAST_ELEMENTS:
                continue
            if (scores := scores_of(program, ref)) is not None:
                self._add_softmax(ref, scores)
            elif (gradient := gradient_of(program, ref)) is not None:
                self._add_gradient(ref, gradient)

    def __contains__(self, index: object) -> bool:
        return index in self._makers

    def value(self, index: int, tensor: Tensors) -> Value:
        """A node's value; `tensor` gives any other's."""
        if index not in self._made:
            self._makers[index](tensor)
        return self._made[index]

    def _add_softmax(self, ref: int, scores: int) -> None:
        rows, _ = self._read(ref)

        def make(tensor: Tensors) -> None:
            self._made[ref], operand = fused.causal_softmax(tensor(scores))
            self._keep(rows, operand)

        self._makers.update(dict.fromkeys((ref, *self._with_exponents(rows)), make))

    def _add_gradient(self, ref: int, gradient: Gradient) -> None:
        rows, columns = self._read(ref)
        _, of_softmax = self._read(gradient.softmax)
        if not rows or not columns or not of_softmax:
            return

        def make(tensor: Tensors) -> None:
            p, slope = tensor(gradient.softmax), tensor(gradient.slope)
            made = fused.causal_softmax_gradient(p, slope, self._read_all(gradient, tensor))
            for nodes, operand in zip((rows, columns, of_softmax), made, strict=True):
                self._keep(nodes, operand)

        made = self._with_exponents((*rows, *columns, *of_softmax))
        self._makers.update(dict.fromkeys(made, make))

    def _read(self, ref: int) -> tuple[list[int], list[int]]:
        """quantise nodes of the rows and of the columns of a node's square matrices."""
        length, source = self._program.nodes[ref].shape[-1], under_reshapes(self._program, ref)
        key = Key(source, self._program.nodes[ref].elements // length**2, length, length)
        matrix, whole = self._found.get(key, Matrix()), (0, length)
        return matrix.across.get(whole, []), matrix.down.get(whole, [])

    def _read_all(self, gradient: Gradient, tensor: Tensors) -> Tensor:
        """Rows above whose diagonal something may matter (`attention_triton.gradient_definition`)."""
        softmax, slope = under_reshapes(self._program, gradient.softmax), self._program.nodes[gradient.slope]
        if slope.op is Op.PRODUCT and self._is_softmax(softmax):
            a, ea, _, eb = slope.inputs
            return fused.maybe_infinite(tensor(ea.ref), tensor(eb.ref), a.shape[-1])
        return torch.ones_like(tensor(gradient.slope)[..., 0], dtype=torch.int32)

    def _is_softmax(self, ref: int) -> bool:
        given = self._program.softmaxes if isinstance(self._program, Part) else ()
        return ref in given or scores_of(self._program, ref) is not None

    def _with_exponents(self, nodes: Iterable[int]) -> Iterable[int]:
        for index in nodes:
            yield from (index, self._program.nodes[index].inputs[1].ref)

    def _keep(self, nodes: Iterable[int], operand: Operand) -> None:
        for index in nodes:
            node = self._program.nodes[index]
            e, high, low = (x.reshape(*node.shape[:-1], *x.shape[operand[0].dim() :]) for x in operand)
            self._made[index] = fused.quantised_of_parts(high, low, node.shape[-1])
            self._made[node.inputs[1].ref] = fused.Exponents(e, own=True)
