"""Builds programs: views and long contractions from instructions, without dead nodes.

Contract: `finish` returns a program that `program.validate` accepts (apart from the caller's limits). State
nodes come first, all others in order of creation, and the same calls give the same bytes. Not guaranteed:
that handles' indices stay valid after `finish`, which renumbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from assay.program.instructions import Instructions
from assay.program.isa import MAX_NODES, Input, Node, Op, Program, Shape
from assay.program.operand_parts import Precision, in_terms, operand_part
from assay.program.rules import MAX_FAN_IN, RuleBroken, TooLarge, broadcast, contiguous


class ProgramBuilder(Instructions):
    """A program under construction; every method but `finish` returns the handle of a node's output."""

    def __init__(self, record_size: int = 0) -> None:
        super().__init__(record_size)
        self.places: dict[int, int] = {}
        """After `finish`: index of each remaining node in the program."""

    # Views: all become one strided node of the tensor below, however many are stacked

    def _view(self, x: Input) -> tuple[Input, int, tuple[int, ...]]:
        node = self.node(x)
        if node.op is Op.STRIDED:
            return node.inputs[0], node.attrs[0], node.attrs[1:]
        return x, 0, contiguous(x.shape)

    def permute(self, x: Input, dims: Sequence[int]) -> Input:
        """Dimension d of the result is dimension dims[d] of x."""
        base, offset, strides = self._view(x)
        order = [d % len(x.shape) for d in dims]
        if sorted(order) != list(range(len(x.shape))):
            raise RuleBroken(f"{list(dims)} is no permutation of {len(x.shape)} dimensions")
        return self.strided(base, tuple(x.shape[d] for d in order), offset, [strides[d] for d in order])

    def transpose(self, x: Input, a: int = -2, b: int = -1) -> Input:
        """x with two dimensions swapped."""
        order = list(range(len(x.shape)))
        order[a], order[b] = order[b], order[a]
        return self.permute(x, order)

    def expand(self, x: Input, shape: Shape) -> Input:
        """x repeated to `shape` by broadcasting."""
        if broadcast([x.shape, shape]) != tuple(shape):
            raise RuleBroken(f"{x.shape} does not broadcast to {shape}")
        base, offset, strides = self._view(x)
        missing = len(shape) - len(x.shape)
        repeated = [
            0 if n == 1 and m != 1 else s for n, m, s in zip(x.shape, shape[missing:], strides, strict=True)
        ]
        return self.strided(base, tuple(shape), offset, [0] * missing + repeated)

    def slice(self, x: Input, dim: int, start: int, stop: int, step: int = 1) -> Input:
        """x[start:stop:step] along `dim`; 0 <= start < stop <= size, step >= 1."""
        dim %= len(x.shape)
        if not (0 <= start < stop <= x.shape[dim] and step >= 1):
            raise RuleBroken(f"slice [{start}:{stop}:{step}] lies outside dimension {dim} of {x.shape}")
        base, offset, strides = self._view(x)
        shape = (*x.shape[:dim], -(-(stop - start) // step), *x.shape[dim + 1 :])
        steps = [s * step if d == dim else s for d, s in enumerate(strides)]
        return self.strided(base, shape, offset + start * strides[dim], steps)

    def flip(self, x: Input, dim: int) -> Input:
        """x in reverse along `dim`."""
        dim %= len(x.shape)
        base, offset, strides = self._view(x)
        steps = [-s if d == dim else s for d, s in enumerate(strides)]
        return self.strided(base, x.shape, offset + (x.shape[dim] - 1) * strides[dim], steps)

    def unsqueeze(self, x: Input, dim: int) -> Input:
        """x with a dimension of size 1 before `dim`."""
        dim %= len(x.shape) + 1
        return self.reshape(x, (*x.shape[:dim], 1, *x.shape[dim:]))

    def squeeze(self, x: Input, dim: int) -> Input:
        """x without its dimension `dim` of size 1."""
        dim %= len(x.shape)
        return self.reshape(x, (*x.shape[:dim], *x.shape[dim + 1 :]))

    # Contractions of any length, in a fixed order of chunks

    def _chunks(self, x: Input) -> list[Input]:
        length = x.shape[-1]
        return [self.slice(x, -1, at, min(at + MAX_FAN_IN, length)) for at in range(0, length, MAX_FAN_IN)]

    def long_sum(self, x: Input) -> Input:
        """f32 [..., n] -> [...] for any n: chunk sums, then their sum. A different program from `sum` beyond
        4096.
        """
        length = x.shape[-1]
        if length <= MAX_FAN_IN:
            return self.sum(x)
        count = -(-length // MAX_FAN_IN)
        if length % count == 0:
            return self.long_sum(self.sum(self.reshape(x, (*x.shape[:-1], count, length // count))))
        total, *rest = (self.sum(chunk) for chunk in self._chunks(x))
        for part in rest:
            total = self.add(total, part)
        return total

    def long_amax(self, x: Input) -> Input:
        """f32 [..., n] -> [...] for any n."""
        length = x.shape[-1]
        count = -(-length // MAX_FAN_IN)
        if count > 1 and length % count == 0:
            return self.long_amax(self.amax(self.reshape(x, (*x.shape[:-1], count, length // count))))
        highest, *rest = (self.amax(chunk) for chunk in self._chunks(x))
        for part in rest:
            highest = self.max(highest, part)
        return highest

    def matmul(self, x: Input, y_t: Input, precision: Precision = Precision.SINGLE) -> Input:
        """f32 [b.., M, K], f32 [b.., N, K] -> f32 [b.., M, N] = x y_t^T, quantised by rows; K > 4096 in
        chunks added in order.

        Equal operands share their exponent and quantise nodes, as all equal nodes do.
        """
        total: Input | None = None
        for a, b in zip(self._chunks(x), self._chunks(y_t), strict=True):
            for operand in (a, b):
                self.exponent(operand)  # both before either's quantise, as in programs without parts
            made = in_terms(self, precision.terms, partial(self._term, a, b))
            total = made if total is None else self.add(total, made)
        if total is None:
            raise RuleBroken("a matrix product needs a dimension to contract")
        return total

    def _term(self, a: Input, b: Input, left: int, right: int) -> Input:
        """Product of one part of each operand's rows."""
        return self.product(*operand_part(self, a, left), *operand_part(self, b, right))

    def finish(self, outputs: Sequence[Input], params: int) -> Program:
        """The program whose next state is `outputs`, slot by slot; the first `params` slots are
        parameters."""
        if not self._states or len(outputs) != len(self._states):
            raise RuleBroken(
                f"{len(self._states)} slots and {len(outputs)} outputs: both must be one number, at least 1"
            )
        for slot, (before, after) in enumerate(zip(self.slots, outputs, strict=True)):
            if (before.dtype, before.shape) != (after.dtype, after.shape):
                raise RuleBroken(f"slot {slot} is {before.dtype.name} {before.shape} but becomes {after}")
        if not 0 <= params <= len(self._states):
            raise RuleBroken(f"{params} parameters do not fit {len(self._states)} slots")
        order = self._states + [i for i in sorted(self._live(outputs)) if self._nodes[i].op is not Op.STATE]
        if len(order) > MAX_NODES:
            raise TooLarge(f"a program has at most {MAX_NODES} nodes, not {len(order)}")
        place = {old: new for new, old in enumerate(order)}
        self.places = place
        nodes = []
        for old in order:
            node = self._nodes[old]
            refs = tuple(Input(place[r.ref], r.dtype, r.shape) for r in node.inputs)
            nodes.append(Node(node.op, node.dtype, node.shape, refs, node.attrs))
        reads = any(node.op.reads_records for node in nodes)
        refs_out = tuple(place[x.ref] for x in outputs)
        return Program(tuple(nodes), refs_out, params, self._record_size if reads else 0)

    def _live(self, outputs: Sequence[Input]) -> set[int]:
        live: set[int] = set()
        pending = [x.ref for x in outputs]
        while pending:
            index = pending.pop()
            if index not in live:
                live.add(index)
                pending.extend(ref.ref for ref in self._nodes[index].inputs)
        return live
