"""Measures the error of a program's matrix products, relative to bfloat16's; for people, never for consensus.

Contract: `products_of` finds the matrix products and convolutions of a program, with the parts that it
multiplies. `Meter` observes an execution and keeps the worst error of each product and `Precision`. An error
is the norm of the product's deviation from the f64 product of the same f32 operands, divided by the typical
effect of rounding both operands to bfloat16: 1 is bfloat16's own. The worst row or column is measured too,
where the effect of outliers shows first. Large products are sampled, rows with the largest numbers for their
norm first. Not guaranteed: digits; the f64 sums depend on the machine.

Source: docs/decisions/0028-outliers.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from assay.numerics import contraction
from assay.numerics.constants import EXPONENT_MIN, EXPONENT_POISONED, QUANTISED_BITS
from assay.program.compiled.affine import strided
from assay.program.isa import Node, Op, Program, Shape
from assay.program.operand_parts import Precision, Term, dequantised_nodes

SAMPLED_ROWS = 128
"""Rows sampled of either operand: half with the largest numbers for their norm, half evenly spaced."""
SAMPLED_BATCHES = 8
_BF16_BITS = 8
_BF16_LEAST = -133
"""Exponent of the spacing of bfloat16's subnormal numbers."""


Move = tuple[Op, Shape, tuple[int, ...]]


@dataclass(frozen=True)
class Operand:
    """One operand of a product."""

    x: int
    """Node of the f32 values."""
    by_row: bool
    """True if each row has its own exponent (A30); otherwise rows share one."""
    moves: tuple[Move, ...]
    """Index operations between quantised values and product, first to last."""


@dataclass(frozen=True)
class Product:
    """A matrix product: of first parts, and of second parts if the program multiplies them."""

    node: int
    left: Operand
    right: Operand
    exponents: tuple[int, int]
    """Nodes of the exponents of both operands' rows."""
    terms: frozenset[Term]

    @property
    def precision(self) -> Precision:
        """Precision of the product in the program."""
        return next(p for p in reversed(Precision) if set(p.terms) <= self.terms)


def products_of(program: Program) -> list[Product]:
    """Products of operands that are quantised and then only viewed, in the program's order."""
    given_back = dequantised_nodes(program)
    rests = _rests(program, given_back)
    found: dict[tuple[Operand, Operand], dict[Term, int]] = {}
    for index, node in enumerate(program.nodes):
        if node.op is not Op.PRODUCT or index in given_back:
            continue
        first, second = (_operand(program, rests, node.inputs[i].ref) for i in (0, 2))
        if first is not None and second is not None:
            (left, i), (right, j) = first, second
            found.setdefault((left, right), {}).setdefault((i, j), index)
    return [
        Product(terms[0, 0], left, right, _exponents(program.nodes[terms[0, 0]]), frozenset(terms))
        for (left, right), terms in found.items()
        if (0, 0) in terms
    ]


def _exponents(node: Node) -> tuple[int, int]:
    return node.inputs[1].ref, node.inputs[3].ref


def _rests(program: Program, given_back: Mapping[int, Term]) -> dict[int, int]:
    """Nodes that hold the rest of a row (``parts.rest``), with the quantise node of its first part."""
    found = {}
    for index, node in enumerate(program.nodes):
        if node.op is Op.SUB:
            ref = node.inputs[1].ref
            while program.nodes[ref].op is Op.RESHAPE:
                ref = program.nodes[ref].inputs[0].ref
            if ref in given_back and program.nodes[given_back[ref][0]].inputs[0] == node.inputs[0]:
                found[index] = given_back[ref][0]
    return found


def _operand(program: Program, rests: Mapping[int, int], ref: int) -> tuple[Operand, int] | None:
    """An operand and the number of its part; None unless it is a view of one quantised tensor."""
    moves: list[Move] = []
    while (node := program.nodes[ref]).op in (Op.STRIDED, Op.RESHAPE):
        moves.append((node.op, node.shape, node.attrs))
        ref = node.inputs[0].ref
    if node.op is not Op.QUANTISE:
        return None
    number = int(node.inputs[0].ref in rests)
    if number:
        node = program.nodes[rests[node.inputs[0].ref]]
    x, maker = node.inputs[0].ref, program.nodes[node.inputs[1].ref]
    own = maker.op is Op.EXPONENT and maker.inputs[0].ref == x
    return Operand(x, own, tuple(reversed(moves))), number


class Error(NamedTuple):
    """Error of a product; 1 is bfloat16's."""

    whole: float = 0.0
    """Error of the whole product, the worst of a batch."""
    line: float = 0.0
    """Error of its worst row or column."""

    def or_worse(self, other: Error) -> Error:
        """The worse of both, in each respect."""
        return Error(max(self.whole, other.whole), max(self.line, other.line))

    def within(self, other: Error) -> bool:
        """True if it is no worse in either respect."""
        return self.whole <= other.whole and self.line <= other.line


@dataclass
class Reading:
    """Measured errors of one product. `errors`: the worst by precision."""

    product: Product
    errors: dict[Precision, Error] = field(default_factory=dict)

    @property
    def error(self) -> Error:
        """Error at the program's precision."""
        return self.errors.get(self.product.precision, Error())


class Meter:
    """Measures products during execution: pass `observe` to ``Executor.step``."""

    def __init__(self, program: Program, precisions: Iterable[Precision] | None = None) -> None:
        """`precisions`: those to measure; default: each product's own."""
        self.readings = [Reading(product) for product in products_of(program)]
        self._tried = None if precisions is None else tuple(precisions)
        self._due: dict[int, list[Reading]] = {}
        self._wanted: dict[int, int] = {}
        self._held: dict[int, Tensor] = {}
        for reading in self.readings:
            product = reading.product
            self._due.setdefault(product.node, []).append(reading)
            for ref in (product.left.x, product.right.x, *product.exponents):
                self._wanted[ref] = max(self._wanted.get(ref, 0), product.node)

    def observe(self, index: int, output: Tensor) -> None:
        """Takes every node's output, in order."""
        if index in self._wanted:
            self._held[index] = output
        for reading in self._due.get(index, ()):
            self._read(reading)
        if index in self._due:
            self._held = {ref: x for ref, x in self._held.items() if self._wanted[ref] > index}

    def _read(self, reading: Reading) -> None:
        product = reading.product
        left, right = (
            _sampled(side, self._held[side.x], self._held[e])
            for side, e in zip((product.left, product.right), product.exponents, strict=True)
        )
        if torch.isfinite(left.x).all() and torch.isfinite(right.x).all():
            for precision, error in errors(left, right, self._tried or (product.precision,)).items():
                reading.errors[precision] = error.or_worse(reading.errors.get(precision, Error()))


@dataclass(frozen=True)
class Rows:
    """Some rows of an operand: f32[b, rows, K], i16[b, rows]."""

    x: Tensor
    e: Tensor
    by_row: bool = True

    def part(self, number: int) -> tuple[Tensor, Tensor]:
        """Quantised numbers and exponents of the first or the second part."""
        q = contraction.quantise(self.x, self.e)
        if number == 0:
            return q, self.e
        kept = q.double() * contraction.power_of_two(self.e.long() - QUANTISED_BITS).unsqueeze(-1)
        rest = self.x - kept.to(torch.float32)
        shared = (self.e - QUANTISED_BITS).clamp(EXPONENT_MIN, EXPONENT_POISONED)
        e = contraction.exponent(rest) if self.by_row else shared
        return contraction.quantise(rest, e), e


def _sampled(operand: Operand, x: Tensor, e: Tensor) -> Rows:
    for op, shape, attrs in operand.moves:
        x = x.reshape(shape) if op is Op.RESHAPE else strided(x, shape, attrs[0], attrs[1:])
    x, e = x.reshape(-1, *x.shape[-2:]), e.reshape(-1, e.shape[-1])
    batches = _spread(x.shape[0], SAMPLED_BATCHES)
    x, e = x[batches], e[batches]
    if x.shape[1] > SAMPLED_ROWS:
        crest = x.abs().amax(-1) / x.square().mean(-1).sqrt().clamp(min=1e-30)
        first = crest.topk(SAMPLED_ROWS // 2, dim=1).indices
        others = _spread(x.shape[1], SAMPLED_ROWS // 2).expand(len(x), -1)
        rows = torch.cat([first, others], 1)
        x = x.gather(1, rows.unsqueeze(-1).expand(-1, -1, x.shape[-1]))
        e = e.gather(1, rows)
    return Rows(x, e, operand.by_row)


def _spread(count: int, most: int) -> Tensor:
    return torch.linspace(0, count - 1, min(count, most)).round().long()


def errors(left: Rows, right: Rows, precisions: Iterable[Precision]) -> dict[Precision, Error]:
    """Error at each precision."""
    exact = left.x.double() @ right.x.double().mT
    products, typical = _Products(left, right), bf16_variance(left.x, right.x)
    return {p: _relative(products.of(p).double() - exact, typical) for p in precisions}


def product(left: Rows, right: Rows, precision: Precision) -> Tensor:
    """Product of left by right transposed, f32[b, M, N], as a program computes it."""
    return _Products(left, right).of(precision)


class _Products:
    """Products of two operands in every precision, from shared partial products."""

    def __init__(self, left: Rows, right: Rows) -> None:
        self._sides = left, right
        self._parts: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        self._terms: dict[Term, Tensor] = {}

    def of(self, precision: Precision) -> Tensor:
        total: Tensor | None = None
        for i, j in reversed(precision.terms):
            term = self._term(i, j)
            total = term if total is None else term + total
        assert total is not None, "a product has terms"
        return total

    def _term(self, i: int, j: int) -> Tensor:
        if (i, j) not in self._terms:
            self._terms[i, j] = contraction.product(*self._part(0, i), *self._part(1, j))
        return self._terms[i, j]

    def _part(self, side: int, number: int) -> tuple[Tensor, Tensor]:
        if (side, number) not in self._parts:
            self._parts[side, number] = self._sides[side].part(number)
        return self._parts[side, number]


def _relative(deviation: Tensor, typical: Tensor) -> Error:
    """Error of f64[b, M, N] deviations, relative to bfloat16's mean squares."""
    square = deviation.square()

    def worst(dims: tuple[int, ...]) -> float:
        ours, theirs = square.sum(dims), typical.sum(dims)
        return float(torch.where(ours > 0, ours / theirs, 0.0).max()) ** 0.5

    return Error(worst((-2, -1)), max(worst((-1,)), worst((-2,))))


def bf16_variance(left: Tensor, right: Tensor) -> Tensor:
    """f64[b, M, N]: mean square of the effect of rounding both operands to bfloat16, with errors uniform in
    an ulp."""
    x, y = left.double(), right.double()
    return _rounding(x) @ y.square().mT + x.square() @ _rounding(y).mT


def _rounding(x: Tensor) -> Tensor:
    ulp = torch.ldexp(torch.ones_like(x), (torch.frexp(x).exponent - _BF16_BITS).clamp(min=_BF16_LEAST))
    return torch.where(x == 0, 0.0, ulp.square() / 12)
