"""Programs that run every instruction on hard inputs, to compare machines, devices and forms.

Contract: each `Exercise` passes its operands through and writes the result of each instruction to a labelled
slot. `state(chunk)` derives the operands of one of `chunks` chunks from counters (``numerics.patterns``), the
same on every machine. Over all chunks every instruction with an f32, i32 or i16 result gets more than
1,000,000 values. Not guaranteed: fast execution.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from assay.numerics import patterns
from assay.program.build import ProgramBuilder
from assay.program.execute import StepContext
from assay.program.isa import DType, Family, Input, Op, Program
from assay.program.kernels import TORCH_DTYPES

CONTEXT = StepContext(None, bytes(32), 0, 3)
"""Context of an exercise's step."""
CONSTANTS = (0.0, -0.0, 1.0, -1.0, 3.0, 0.1, 7.0, 1e-39, 1e30, float("inf"), float("nan"))
"""Constant second operands, which a compiler may treat by other rules than unknown numbers."""
BROADCAST_ROWS = 256
RESULTS = 1 << 17


@dataclass(frozen=True)
class Exercise:
    """A program with labels of its results, and its operands."""

    name: str
    program: Program
    labels: tuple[str, ...]
    operands: Callable[[int], list[Tensor]]
    chunks: int

    @property
    def given(self) -> int:
        """Number of operand slots; the results follow them."""
        return len(self.program.outputs) - len(self.labels)

    def state(self, chunk: int) -> list[Tensor]:
        """State of a chunk: operands, then zeros for the results."""
        empty = [torch.zeros(n.shape, dtype=TORCH_DTYPES[n.dtype]) for n in self.program.state[self.given :]]
        return [*self.operands(chunk), *empty]

    def values(self, label: str) -> int:
        """Number of results for a label over all chunks."""
        return self.chunks * self.program.state[self.given + self.labels.index(label)].elements


class _Author:
    """A builder that labels every result."""

    def __init__(self) -> None:
        self.b = ProgramBuilder()
        self.made: dict[str, Input] = {}

    def add(self, label: str, x: Input) -> Input:
        if label in self.made:
            raise ValueError(f"two results are called {label!r}")
        self.made[label] = x
        return x

    def finish(self, name: str, operands: Callable[[int], list[Tensor]], chunks: int) -> Exercise:
        given = self.b.slots
        for x in self.made.values():
            self.b.state(x.dtype, x.shape)
        program = self.b.finish([*given, *self.made.values()], 1)
        return Exercise(name, program, tuple(self.made), operands, chunks)


def elementwise(size: int = 1 << 16, chunks: int = 17) -> Exercise:
    """Every element-wise instruction, also with constants, shared operands and chains that invite fusion."""
    a = _Author()
    b = a.b
    x, y = (b.state(DType.F32, (size,)) for _ in range(2))
    i, j = (b.state(DType.I32, (size,)) for _ in range(2))
    u, p = b.state(DType.U8, (size,)), b.state(DType.BOOL, (size,))
    for op in Op.of(Family.UNARY):
        a.add(op.word, b.apply(op, x))
    for op in Op.of(Family.BINARY):
        a.add(op.word, b.apply(op, x, y))
    for op, left, right in ((op, *pair) for op in (Op.EQ, Op.LT, Op.LE) for pair in ((x, y), (i, j))):
        a.add(f"{op.word} {left.dtype.name.lower()}", b.apply(op, left, right))
    more, less = b.le(y, x), b.lt(i, j)
    a.add("and", b.and_(more, less))
    a.add("or", b.or_(more, p))
    a.add("not", b.not_(p))
    for name, first, second in (
        ("f32", x, y),
        ("i32", i, j),
        ("u8", u, b.convert(i, DType.U8)),
        ("bool", p, more),
    ):
        a.add(f"select {name}", b.select(less, first, second))
    for op in (Op.IADD, Op.ISUB, Op.IMUL):
        a.add(op.word, b.apply(op, i, j))
    pairs = ((x, DType.I32), (x, DType.BOOL), (i, DType.F32), (i, DType.U8), (i, DType.BOOL), (u, DType.I32))
    a.add("bits i32", b.bits(x))
    a.add("bits f32", b.bits(i))
    for source, target in (*pairs, (u, DType.F32), (p, DType.I32), (p, DType.F32)):
        a.add(f"convert {source.dtype.name.lower()} {target.name.lower()}", b.convert(source, target))
    _with_constants(a, x)
    _chains(a, x, y)
    row = b.slice(x, 0, 0, size // BROADCAST_ROWS) if size % BROADCAST_ROWS == 0 else None
    if row is not None:
        table = b.reshape(y, (BROADCAST_ROWS, size // BROADCAST_ROWS))
        a.add("mul broadcast", b.mul(table, row))
        a.add("div broadcast", b.div(table, b.reshape(b.slice(x, 0, 0, BROADCAST_ROWS), (BROADCAST_ROWS, 1))))
    return a.finish("elementwise", lambda chunk: _mixed(chunk, size), chunks)


def _with_constants(a: _Author, x: Input) -> None:
    b = a.b
    for value in CONSTANTS:
        number = b.const(value, DType.F32)
        for op in (Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.MAX, Op.MIN):
            a.add(f"{op.word} x {value}", b.emit(op, DType.F32, x.shape, (x, number)))
            a.add(f"{op.word} {value} x", b.emit(op, DType.F32, x.shape, (number, x)))


def _chains(a: _Author, x: Input, y: Input) -> None:
    """Expressions that an optimiser might contract, reorder or cancel."""
    b = a.b
    number = b.const(0.1, DType.F32)
    a.add("x*y+y", b.add(b.mul(x, y), y))
    a.add("x*y-y*y", b.sub(b.mul(x, y), b.mul(y, y)))
    a.add("0-x*y", b.sub(b.const(0.0, DType.F32), b.mul(x, y)))
    a.add("-(x-y)", b.neg(b.sub(x, y)))
    a.add("(x+y)-y", b.sub(b.add(x, y), y))
    a.add("(x/y)*y", b.mul(b.div(x, y), y))
    a.add("x-x", b.sub(x, x))
    a.add("x/x", b.div(x, x))
    a.add("x*(0.1*3)", b.mul(x, b.mul(number, b.const(3.0, DType.F32))))
    a.add("iota*0.1", b.mul(b.convert(b.iota(x.shape, 0), DType.F32), number))
    a.add("x/iota", b.div(x, b.convert(b.iota(x.shape, 0), DType.F32)))
    a.add("sqrt(x*x)", b.sqrt(b.mul(x, x)))
    a.add("exp(log(x))", b.exp(b.log(x)))
    a.add("x+step", b.add(x, b.convert(b.step(), DType.F32)))


def _mixed(chunk: int, size: int) -> list[Tensor]:
    """Operands of `elementwise`."""
    x, y = (
        patterns.f32_pairs(1000 + chunk, size)
        if chunk % 2
        else (patterns.f32(chunk, size), patterns.f32(77 + chunk, size)[::-1])
    )
    i, j = patterns.i32(2000 + chunk, size), patterns.i32(3000 + chunk, size)
    j = np.where(np.arange(size) % 5 == 0, i, j)
    u, p = patterns.u8(chunk, size), patterns.bools(4000 + chunk, size)
    return [
        patterns.numbers(x),
        patterns.numbers(y),
        *(torch.from_numpy(np.ascontiguousarray(k)) for k in (i, j, u, p)),
    ]


def contractions(rows: int, length: int, chunks: int) -> Exercise:
    """Every contraction and every index operation on `rows` rows of `length`.

    Products take `rows` by few rows, so that their results are about 2^17.
    """
    a = _Author()
    b = a.b
    x, y = (b.state(DType.F32, (rows, length)) for _ in range(2))
    idx, places = b.state(DType.I32, (length,)), b.state(DType.I32, (rows,))
    foreign = b.state(DType.I16, (rows,))
    few = max(4, min(rows, RESULTS // rows))
    values = 33 if rows <= 1024 else 5
    ex, ey = a.add("exponent", b.exponent(x)), b.exponent(y)
    qx, qy = a.add("quantise", b.quantise(x, ex)), b.quantise(y, ey)
    odd = a.add("quantise foreign", b.quantise(x, foreign))
    qf, ef = b.slice(qy, 0, 0, few), b.slice(ey, 0, 0, few)
    a.add("product", b.product(qx, ex, qf, ef))
    a.add("product foreign", b.product(odd, foreign, qf, ef))
    a.add("product mixed", b.product(odd, ex, qf, b.slice(foreign, 0, 0, few)))
    taken = b.slice(idx, 0, 0, min(length, 256))
    a.add("product moved", b.product(b.flip(qx, 0), b.flip(ex, 0), b.take(qf, taken), b.take(ef, taken)))
    if rows % 4 == 0:
        half = few // 4
        batch = [b.reshape(k, (4, k.shape[0] // 4, *k.shape[1:])) for k in (qx, ex)]
        other = [b.reshape(b.slice(k, 0, 0, 4 * half), (4, half, *k.shape[1:])) for k in (qy, ey)]
        a.add("product batched", b.product(*batch, *other))
    if rows <= 4096:
        _transposed(a, x, y)
    for name, op in (("sum", b.sum), ("amax", b.amax), ("argmax", b.argmax)):
        a.add(name, op(x))
    a.add("sum of products", b.sum(b.mul(x, y)))
    a.add("scatter_sum", b.scatter_sum(x, idx, values))
    own = b.isub(b.expand(b.reshape(idx, (1, length)), (rows, length)), b.iota((rows, length), 0))
    a.add("scatter_sum own", b.scatter_sum(x, own, values))
    _moves(a, x, y, qx, idx, places)
    return a.finish(f"contractions {rows}x{length}", lambda chunk: _rows(chunk, rows, length), chunks)


def _transposed(a: _Author, x: Input, y: Input) -> None:
    b = a.b
    rows = min(x.shape[0], 256)
    xt, yt = (b.transpose(b.slice(k, 0, 0, rows)) for k in (x, y))
    a.add("sum transposed", b.sum(xt))
    a.add("amax transposed", b.amax(xt))
    few = min(x.shape[1], 128)
    a.add("product transposed", b.matmul(xt, b.slice(yt, 0, 0, few)))


def _moves(a: _Author, x: Input, y: Input, q: Input, idx: Input, places: Input) -> None:
    b = a.b
    rows, length = x.shape
    positive = b.convert(b.lt(b.const(0.0, DType.F32), x), DType.BOOL)
    small = b.convert(b.convert(x, DType.I32), DType.U8)
    for name, table in (("f32", x), ("i16", q), ("u8", small), ("bool", positive)):
        a.add(f"take {name}", b.take(table, places))
        a.add(f"pick {name}", b.pick(table, places))
    a.add("take i32", b.take(idx, places))
    a.add("concat", b.concat([q, b.slice(q, 0, 0, 1), b.flip(q, 1)], 0))
    a.add("reshape", b.reshape(y, (length * rows,)))
    a.add("strided windows", b.strided(x, (rows, max(length - 2, 1), min(length, 3)), 0, (length, 1, 1)))
    a.add("strided backward", b.flip(b.flip(y, 0), 1))
    a.add("strided repeated", b.expand(b.reshape(b.slice(x, 1, 0, 1), (1, rows)), (3, rows)))


def _rows(chunk: int, rows: int, length: int) -> list[Tensor]:
    """Operands of `contractions`."""
    seed = 5000 + chunk
    x, y = patterns.rows(seed, rows, length), np.roll(patterns.rows(seed + 500, rows, length), chunk + 1, 0)
    idx = patterns.indices(seed + 1000, length, 33)
    places = patterns.indices(seed + 1500, rows, max(rows, length))
    foreign = patterns.exponents(seed + 2000, rows)
    return [patterns.numbers(x), patterns.numbers(y), *(torch.from_numpy(k) for k in (idx, places, foreign))]


SHAPES = ((1 << 15, 2, 34), (4096, 17, 32), (1024, 256, 16), (256, 1000, 16), (120, 4096, 8))
"""(rows, length, chunks) of `contractions`: short rows, rows of no round length, and the fan-in bound."""


def all_exercises() -> list[Exercise]:
    """Element-wise instructions, then contractions and moves at every shape."""
    return [elementwise(), *(contractions(*shape) for shape in SHAPES)]
