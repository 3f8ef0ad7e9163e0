"""Random small programs with their data, for tests that quantify over programs.

Contract: the same seed gives the same program, dataset and state; every instruction occurs over the seeds;
some tensors span several leaves, and states hold zeros of both signs, subnormals, infinities and NaN.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.program.build import ProgramBuilder
from assay.program.execute import Records
from assay.program.isa import CONVERSIONS, DType, Family, Input, Op, Program
from assay.program.rules import RuleBroken

RECORD_SIZE = 24
RECORDS = 37
_SPECIAL = (0.0, -0.0, 1.0, -1.0, 1e-40, 3.4e38, float("inf"), float("-inf"), float("nan"), 0.5, 100.0)


@dataclass(frozen=True)
class Sample:
    """A program and all that a run of it needs."""

    program: Program
    dataset: Records
    state: list[Tensor]


def random_f32(rng: random.Random, shape: tuple[int, ...], special: float = 0.02) -> Tensor:
    """Mostly ordinary numbers of mixed size, sometimes special ones."""
    generator = torch.Generator().manual_seed(rng.getrandbits(32))
    x = torch.randn(shape, generator=generator) * torch.exp(2 * torch.randn(shape, generator=generator))
    flat = x.view(-1)
    for _ in range(round(special * flat.numel())):
        flat[rng.randrange(flat.numel())] = rng.choice(_SPECIAL)
    return x


class _Author:
    """Adds random instructions to a builder."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.b = ProgramBuilder(RECORD_SIZE)
        self.pool: list[Input] = []

    def any(self, dtype: DType | None = None, dims: int = 0) -> Input:
        fit = [x for x in self.pool if (dtype is None or x.dtype is dtype) and len(x.shape) >= dims]
        return self.rng.choice(fit)

    def partner(self, x: Input) -> Input:
        """Something of x's dtype that broadcasts with x."""
        fit = [y for y in self.pool if y.dtype is x.dtype and (y.shape == x.shape or not y.shape)]
        return self.rng.choice(fit)

    def unary(self) -> Input:
        op = self.rng.choice(Op.of(Family.UNARY))
        x = self.any(DType.F32)
        return self.b.apply(op, x)

    def binary(self) -> Input:
        op = self.rng.choice(Op.of(Family.BINARY))
        x = self.any(DType.F32)
        return self.b.apply(op, x, self.partner(x))

    def widened(self) -> Input:
        x = self.any(DType.F32)
        shape = (2, *x.shape)
        return self.b.emit(Op.ADD, DType.F32, shape, (x, self.partner(x)))

    def compare(self) -> Input:
        x = self.any(self.rng.choice([DType.F32, DType.I32]))
        return self.rng.choice([self.b.eq, self.b.lt, self.b.le])(x, self.partner(x))

    def logic(self) -> Input:
        x = self.any(DType.BOOL)
        if self.rng.random() < 0.3:
            return self.b.not_(x)
        return self.rng.choice([self.b.and_, self.b.or_])(x, self.partner(x))

    def select(self) -> Input:
        x = self.any()
        ordered = x.dtype in (DType.F32, DType.I32)
        which = self.b.lt(x, self.partner(x)) if ordered else self.b.const(1, DType.BOOL)
        return self.b.select(which, x, self.partner(x))

    def integer(self) -> Input:
        x = self.any(DType.I32)
        return self.rng.choice([self.b.iadd, self.b.isub, self.b.imul])(x, self.partner(x))

    def convert(self) -> Input:
        source, target = self.rng.choice(sorted(CONVERSIONS))
        return self.b.convert(self.any(source), target)

    def reduce(self) -> Input:
        x = self.any(DType.F32, 1)
        return self.rng.choice([self.b.sum, self.b.amax, self.b.argmax, self.b.exponent])(x)

    def matmul(self) -> Input:
        x = self.any(DType.F32, 2)
        return self.b.matmul(x, self.rng.choice([x, self.b.mul(x, self.b.const(0.5, DType.F32))]))

    def scatter(self) -> Input:
        x = self.b.reshape(y := self.any(DType.F32, 1), (y.elements // y.shape[-1], y.shape[-1]))
        index = self.b.convert(self.b.slice(x, 0, 0, 1), DType.I32)
        if self.rng.random() < 0.5:
            return self.b.scatter_sum(x, self.b.convert(x, DType.I32), 5)
        return self.b.scatter_sum(x, self.b.reshape(index, x.shape[1:]), 5)

    def bits(self) -> Input:
        return self.b.bits(self.any(self.rng.choice([DType.F32, DType.I32])))

    def record(self) -> Input:
        rows = [x for x in self.pool if x.dtype is DType.I32 and len(x.shape) == 1]
        index = self.rng.choice(rows) if rows else self.b.iota((3,), 0)
        return self.b.record(index, 8, self.rng.randrange(RECORD_SIZE - 7))

    def view(self) -> Input:
        x = self.any(None, 1)
        dim = self.rng.randrange(len(x.shape))
        start = self.rng.randrange(x.shape[dim])
        moves: list[Callable[[], Input]] = [
            lambda: self.b.transpose(x, 0, dim),
            lambda: self.b.flip(x, dim),
            lambda: self.b.slice(x, dim, start, x.shape[dim], 2),
            lambda: self.b.expand(x, (3, *x.shape)),
            lambda: self.b.reshape(x, (x.elements,)),
            lambda: self.b.concat([x, self.b.slice(x, dim, start, x.shape[dim])], dim),
        ]
        return self.rng.choice(moves)()

    def lookup(self) -> Input:
        x = self.any(None, 1)
        if self.rng.random() < 0.5:
            return self.b.take(x, self.any(DType.I32))
        rows = self.b.iota(x.shape[:-1], 0) if len(x.shape) > 1 else self.any(DType.I32)
        return self.b.pick(x, rows)

    def digest(self, total: Input) -> Input:
        """A scalar that depends on an element of everything made, so that nothing is dead."""
        for x in self.pool:
            one = self.b.strided(x, (), self.rng.randrange(x.elements), ())
            if one.dtype is DType.BOOL or one.dtype is DType.I32 or one.dtype is DType.U8:
                one = self.b.convert(one, DType.F32)
            if one.dtype is DType.F32:
                total = self.b.min(self.b.add(total, one), self.b.const(9.0, DType.F32))
        return total

    def add(self) -> None:
        moves = [self.unary, self.binary, self.binary, self.widened, self.compare, self.logic, self.select]
        moves += [self.integer, self.convert, self.reduce, self.matmul, self.scatter, self.bits, self.record]
        moves += [self.view, self.view, self.lookup]
        try:
            made = self.rng.choice(moves)()
        except RuleBroken:
            return
        if made.elements <= 20_000:
            self.pool.append(made)


def random_sample(seed: int, instructions: int = 40) -> Sample:
    """Program, dataset and state of a seed."""
    rng = random.Random(seed)
    author = _Author(rng)
    b = author.b
    shapes = [(rng.randint(1, 5), rng.randint(1, 9)), (rng.randint(20, 40), rng.randint(40, 64)), ()]
    slots = [b.state(DType.F32, shape) for shape in shapes]
    counter, flags = b.state(DType.I32, ()), b.state(DType.BOOL, (5,))
    raw = b.data(4, 16, offset=rng.randint(0, 8), first_row=rng.randint(0, 3))
    author.pool += [
        *slots,
        counter,
        flags,
        raw,
        b.convert(raw, DType.F32),
        b.step(),
        b.shard(),
        b.iota((3, 7), 1),
    ]
    author.pool += [b.const(rng.choice(_SPECIAL), DType.F32), b.const(2, DType.I32)]
    for _ in range(instructions):
        author.add()
    author.pool.append(author.digest(slots[-1]))
    outputs = []
    for slot in (*slots, counter, flags):
        fit = [x for x in author.pool if (x.dtype, x.shape) == (slot.dtype, slot.shape)]
        outputs.append(fit[-1])
    program = b.finish(outputs, 2)
    state = [random_f32(rng, shape) for shape in shapes]
    state.append(torch.tensor(rng.randint(-5, 5), dtype=torch.int32))
    state.append(torch.tensor([True, False, True, True, False]))
    return Sample(program, Records(rng.randbytes(RECORDS * RECORD_SIZE), RECORD_SIZE), state)


def training_sample() -> Sample:
    """A step of gradient descent on a linear layer: 2 parameters of several leaves, a counter."""
    b = ProgramBuilder(RECORD_SIZE)
    w, bias, counter = b.state(DType.F32, (24, 64)), b.state(DType.F32, (64,)), b.state(DType.I32, ())
    x = b.mul(b.convert(b.data(20, 24), DType.F32), b.const(1 / 256, DType.F32))
    y = b.tanh(b.add(b.matmul(x, b.transpose(w)), bias))
    rate = b.const(0.01, DType.F32)
    grad = b.matmul(b.transpose(x), b.transpose(y))
    next_w = b.sub(w, b.mul(grad, rate))
    next_bias = b.sub(bias, b.mul(b.sum(b.transpose(y)), rate))
    program = b.finish([next_w, next_bias, b.iadd(counter, b.const(1, DType.I32))], 2)
    rng = random.Random(1)
    state = [random_f32(rng, (24, 64), 0.0), random_f32(rng, (64,), 0.0), torch.tensor(0, dtype=torch.int32)]
    return Sample(program, Records(rng.randbytes(RECORDS * RECORD_SIZE), RECORD_SIZE), state)
