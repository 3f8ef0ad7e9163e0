"""Writes the arithmetic test vectors that forge and pytest share.

Each file `<op>.bin` holds groups of cases for one instruction: one element of one node, the input bytes it
may read, and its bits by the integer-only model (`numerics.scalar`); index operations use numpy.

Format, integers big-endian: file = group*; group = u16 length, node encoding, u32 cases, case*; case = u32
element, u8 spans, (u8 input, u32 byte offset, u16 length, bytes)*, u32 expected bits, zero-extended.

Contract: the same `--count` and `--seed` give the same bytes. The small committed set is the default; the
large one is written and run in parts by `scripts/prove/vectors.py`: `ASSAY_VECTORS` and `ASSAY_VECTOR_COUNT`
point forge's VectorsTest at them. Half of the cases are at the hard places of `hard_places.py`, the others
uniform over bit patterns or special. Not guaranteed: coverage beyond what is listed here.
"""

from __future__ import annotations

import argparse
import random
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

import numpy as np

from assay.numerics import scalar
from assay.program.isa import DType, Family, Input, Node, Op
from spec.vectors import hard_places as hard
from spec.vectors.vector_values import (
    BOOL,
    F32,
    HARD_EXP,
    HARD_LOG,
    I16,
    I32,
    SPECIAL_F32,
    SPECIAL_I32,
    U8,
    any_exponent,
    any_f32,
    any_indices,
    any_operands,
    any_value,
    length_of,
    pairs,
    row_of,
    shape_of,
    tensor,
)


@dataclass
class Case:
    element: int
    spans: list[tuple[int, int, bytes]]
    expected: int

    def encode(self) -> bytes:
        out = struct.pack(">IB", self.element, len(self.spans))
        for source, offset, data in self.spans:
            out += struct.pack(">BIH", source, offset, len(data)) + data
        return out + struct.pack(">I", self.expected)


@dataclass
class Group:
    node: Node
    cases: list[Case] = field(default_factory=list)

    def encode(self) -> bytes:
        node = self.node.encode()
        head = struct.pack(">H", len(node)) + node + struct.pack(">I", len(self.cases))
        return head + b"".join(case.encode() for case in self.cases)


def bits_of(value: int, dtype: DType) -> int:
    """The element's bits, zero-extended."""
    return value & (256**dtype.size - 1)


def raw(values: list[int], dtype: DType) -> bytes:
    """Little-endian bytes of elements given as f32 patterns or integer values."""
    return b"".join(bits_of(v, dtype).to_bytes(dtype.size, "little") for v in values)


Model = Callable[..., int]


def elementwise(
    rng: random.Random,
    op: Op,
    sources: list[DType],
    to: DType,
    model: Model,
    first: Sequence[tuple[int, ...]],
    count: int,
) -> Iterator[Group]:
    """Cases on one-element tensors, `first` before random ones; then a few on broadcast shapes."""
    group = Group(Node(op, to, (1,), tuple(Input(i, d, (1,)) for i, d in enumerate(sources))))
    draw = hard.operands(op, sources, to)
    for n in range(count):
        if n < len(first):
            values = first[n]
        elif draw is not None and n % 2:
            values = draw(rng)
        else:
            values = any_operands(rng, sources)
        spans = [(i, 0, raw([v], d)) for i, (v, d) in enumerate(zip(values, sources, strict=True))]
        group.cases.append(Case(0, spans, bits_of(model(*values), to)))
    yield group
    yield from broadcasts(rng, op, sources, to, model, max(4, count // 50))


def broadcasts(
    rng: random.Random, op: Op, sources: list[DType], to: DType, model: Model, count: int
) -> Iterator[Group]:
    for _ in range(count):
        shape = tuple(rng.randrange(1, 5) for _ in range(rng.randrange(0, 5)))
        shapes = []
        for _ in sources:
            kept = shape[rng.randrange(len(shape) + 1) :]
            shapes.append(tuple(1 if rng.randrange(3) == 0 else d for d in kept))
        tensors = [[any_value(rng, d) for _ in range(prod(s))] for d, s in zip(sources, shapes, strict=True)]
        element = rng.randrange(prod(shape))
        values = [
            int(np.broadcast_to(np.array(t, dtype=np.int64).reshape(s), shape).reshape(-1)[element])
            for t, s in zip(tensors, shapes, strict=True)
        ]
        inputs = tuple(Input(i, d, s) for i, (d, s) in enumerate(zip(sources, shapes, strict=True)))
        spans = [(i, 0, raw(t, d)) for i, (t, d) in enumerate(zip(tensors, sources, strict=True))]
        yield Group(Node(op, to, shape, inputs), [Case(element, spans, bits_of(model(*values), to))])


def elementwise_groups(rng: random.Random, op: Op, count: int) -> Iterator[Group]:
    family, model = op.row.family, model_of(op)
    if family is Family.CONVERSION:
        yield from conversions(rng, op, count)
    elif family is Family.COMPARISON:
        yield from elementwise(rng, op, [F32, F32], BOOL, model, pairs(SPECIAL_F32, count // 2), count)
        as_i32 = pairs(SPECIAL_I32, count // 2)
        yield from elementwise(rng, op, [I32, I32], BOOL, lambda a, b: model(a, b, type="i32"), as_i32, count)
    elif family is Family.SELECT:
        for to in DType:
            yield from elementwise(rng, op, [BOOL, to, to], to, model, [], count // 5)
    else:
        ((sources, to),) = op.row.types
        first: Sequence[tuple[int, ...]] = []
        if family is Family.UNARY:
            places = {Op.LOG: HARD_LOG, Op.EXP: HARD_EXP}.get(op, ())
            near = [(place + d) % 2**32 for place in places for d in range(-2, 3)]
            first = [(x,) for x in (*near, *SPECIAL_F32)]
        elif family is not Family.LOGIC:
            first = pairs(SPECIAL_F32 if to is F32 else SPECIAL_I32, count // 2)
        yield from elementwise(rng, op, list(sources), to, model, first, count)


def model_of(op: Op) -> Model:
    assert op.row.model is not None
    return op.row.model


def conversions(rng: random.Random, op: Op, count: int) -> Iterator[Group]:
    pairs_of_types = scalar.CONVERSIONS if op is Op.CONVERT else (("f32", "i32"), ("i32", "f32"))
    whole = model_of(op)
    for source, to in pairs_of_types:
        a, b = DType[source.upper()], DType[to.upper()]
        first = {F32: SPECIAL_F32, I32: SPECIAL_I32, U8: tuple(range(256)), BOOL: (0, 1)}[a]

        def model(x: int, source: str = source, to: str = to) -> int:
            return int(whole(x, source=source, target=to))

        cases = max(count // (4 if op is Op.CONVERT else 2), 4)
        yield from elementwise(rng, op, [a], b, model, [(x,) for x in first], cases)


def row_groups(rng: random.Random, op: Op, count: int) -> Iterator[Group]:
    """sum, amax, exponent, argmax: row 1 of three, its bytes alone."""
    ((_, to),) = op.row.types
    model = model_of(op)
    for case in range(count):
        n = length_of(rng, case)
        row = row_of(rng, n)
        node = Node(op, to, (3,), (Input(0, F32, (3, n)),))
        yield Group(node, [Case(1, [(0, 4 * n, raw(row, F32))], bits_of(model(row), to))])


def quantise_groups(rng: random.Random, count: int) -> Iterator[Group]:
    node = Node(Op.QUANTISE, I16, (2, 3), (Input(0, F32, (2, 3)), Input(1, I16, (2,))))
    group = Group(node)
    for _ in range(count):
        x = any_f32(rng)
        near = (x >> 23 & 255) - 126 + rng.randrange(-2, 3)
        e = near if rng.randrange(2) else any_exponent(rng)
        if rng.randrange(2):
            x, e = hard.quantised(rng)
        spans = [(0, 16, raw([x], F32)), (1, 0, raw([0, e], I16))]
        group.cases.append(Case(4, spans, bits_of(scalar.quantise(x, e), I16)))
    yield group


def product_groups(rng: random.Random, count: int) -> Iterator[Group]:
    for case in range(count):
        k, batch, m, n = length_of(rng, case), *(rng.randrange(1, 4) for _ in range(3))
        bound = 32768 if case == 0 else rng.choice((2, 100, 8192, 32768))
        a, b = ([rng.randrange(-bound, bound) for _ in range(k)] for _ in range(2))
        if case == 0:
            a, b = [-32768] * k, [-32768] * k  # the largest sum there is, 2^42
        elif rng.randrange(2):
            a, b = hard.factors(rng, k)
        ea, eb = hard.exponents(rng) if rng.randrange(2) else (any_exponent(rng), any_exponent(rng))
        row, column, b_index = rng.randrange(m), rng.randrange(n), rng.randrange(batch)
        i, j = b_index * m + row, b_index * n + column
        inputs = (
            *(Input(0, I16, (batch, m, k)), Input(1, I16, (batch, m))),
            *(Input(2, I16, (batch, n, k)), Input(3, I16, (batch, n))),
        )
        spans = [(0, 2 * k * i, raw(a, I16)), (1, 2 * i, raw([ea], I16))]
        spans += [(2, 2 * k * j, raw(b, I16)), (3, 2 * j, raw([eb], I16))]
        node = Node(Op.PRODUCT, F32, (batch, m, n), inputs)
        yield Group(node, [Case(i * n + column, spans, scalar.product(a, ea, b, eb))])


def scatter_groups(rng: random.Random, count: int) -> Iterator[Group]:
    for case in range(count):
        n, d, v = length_of(rng, case), rng.randrange(1, 4), rng.randrange(1, 5)
        row, wanted, at = row_of(rng, n), rng.randrange(v), rng.randrange(d)
        idx = [rng.randrange(-1, v + 1) for _ in range(n)]
        if case % 8 == 1:
            idx = hard.indices(rng, n, v)
        own = case % 3 == 2
        node = Node(
            Op.SCATTER_SUM, F32, (d, v), (Input(0, F32, (d, n)), Input(1, I32, (d, n) if own else (n,)))
        )
        spans = [(0, 4 * n * at, raw(row, F32)), (1, 4 * n * at if own else 0, raw(idx, I32))]
        yield Group(node, [Case(at * v + wanted, spans, scalar.scatter_sum(row, idx, v=wanted, V=v))])


def index_case(
    rng: random.Random, op: Op, dtype: DType
) -> tuple[list[np.ndarray], np.ndarray, tuple[int, ...]]:
    """Inputs, output and attributes of one random index operation."""
    x = tensor(rng, shape_of(rng, 1), dtype)
    if op is Op.RESHAPE:
        return [x], x.reshape(rng.choice([(-1,), (1, -1), (x.size, 1), x.shape[::-1]])), ()
    if op is Op.STRIDED:
        view = x.transpose(rng.sample(range(x.ndim), x.ndim))
        view = view[tuple(slice(None, None, rng.choice((1, 2, -1))) for _ in range(view.ndim))]
        if rng.randrange(2):
            view = np.broadcast_to(view, (2, *view.shape))
        start = view.__array_interface__["data"][0] - x.__array_interface__["data"][0]
        return [x], view, (start // 8, *(s // 8 for s in view.strides))
    if op is Op.CONCAT:
        along = rng.randrange(x.ndim)
        parts = [x]
        for _ in range(rng.choice((0, 1, 2, 3, 15))):
            shape = list(x.shape)
            shape[along] = rng.randrange(1, 4)
            parts.append(tensor(rng, tuple(shape), dtype))
        return parts, np.concatenate(parts, axis=along), (along,)
    if op is Op.TAKE:
        idx = any_indices(rng, 6, x.shape[0]).reshape(
            rng.choice([(6,), (2, 3), (3, 1, 2)] if x.ndim < 7 else [(6,), (3, 2)])
        )
        return [x, idx], x[np.clip(idx, 0, x.shape[0] - 1)], ()
    idx = any_indices(rng, prod(x.shape[:-1]), x.shape[-1]).reshape(x.shape[:-1])
    picked = np.take_along_axis(x, np.clip(idx, 0, x.shape[-1] - 1)[..., None], -1)[..., 0]
    return [x, idx], picked, ()


def index_groups(rng: random.Random, op: Op, count: int) -> Iterator[Group]:
    for _ in range(count):
        dtype = rng.choice(list(DType))
        inputs, out, attrs = index_case(rng, op, dtype)
        types = [I32 if op in (Op.TAKE, Op.PICK) and i == 1 else dtype for i in range(len(inputs))]
        typed = list(enumerate(zip(types, inputs, strict=True)))
        node = Node(op, dtype, out.shape, tuple(Input(i, t, x.shape) for i, (t, x) in typed), attrs)
        spans = [(i, 0, raw([int(v) for v in x.reshape(-1)], t)) for i, (t, x) in typed]
        element = rng.randrange(out.size)
        yield Group(node, [Case(element, spans, bits_of(int(out.reshape(-1)[element]), dtype))])


def source_groups(rng: random.Random, op: Op, count: int) -> Iterator[Group]:
    for _ in range(count):
        shape = shape_of(rng, 1)
        element = rng.randrange(prod(shape))
        if op is Op.IOTA:
            dim = rng.randrange(len(shape))
            expected = int(np.indices(shape)[dim].reshape(-1)[element])
            yield Group(Node(op, I32, shape, (), (dim,)), [Case(element, [], expected)])
        else:
            dtype = rng.choice(list(DType))
            bits = bits_of(any_value(rng, dtype), dtype)
            if dtype is F32 and bits & 0x7FFFFFFF > 0x7F800000:
                bits = 0x7FC00000
            yield Group(Node(op, dtype, shape, (), (bits,)), [Case(element, [], bits)])


def groups(op: Op, count: int, seed: int) -> Iterator[Group]:
    """All groups of an instruction."""
    rng = random.Random(f"{seed}/{op.name}")
    if op.elementwise:
        yield from elementwise_groups(rng, op, count)
    elif op is Op.QUANTISE:
        yield from quantise_groups(rng, count)
    elif op is Op.PRODUCT:
        yield from product_groups(rng, count)
    elif op is Op.SCATTER_SUM:
        yield from scatter_groups(rng, count)
    elif op.row.family is Family.REDUCTION:
        yield from row_groups(rng, op, count)
    elif op.moves:
        yield from index_groups(rng, op, count)
    else:
        yield from source_groups(rng, op, count)


OPS = tuple(op for op in Op if op not in (Op.STATE, Op.DATA, Op.STEP, Op.SHARD, Op.RECORD))
"""The others have no operands to draw: they read a game's state, counter, shard or records, and random games
hold the court to them (`make games`)."""


def encoded(op: Op, count: int, seed: int) -> tuple[bytes, int]:
    """A vector file of an instruction, and the number of its cases."""
    made = list(groups(op, count, seed))
    return b"".join(group.encode() for group in made), sum(len(group.cases) for group in made)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the arithmetic test vectors.")
    parser.add_argument("--count", type=int, default=150, help="cases an instruction, at least")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[2] / "tests" / "vectors")
    parser.add_argument("--check", action="store_true", help="compare with the files instead of writing them")
    parser.add_argument("--only", nargs="*", help="instruction names")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for op in OPS:
        name = op.word
        if args.only and name not in args.only:
            continue
        data, _ = encoded(op, args.count, args.seed)
        path = args.out / f"{name}.bin"
        if not args.check:
            path.write_bytes(data)
        elif path.read_bytes() != data:
            raise SystemExit(f"{path} is not what the model gives now; run this without --check and look")


if __name__ == "__main__":
    main()
