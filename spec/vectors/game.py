"""Writes `tests/vectors/game.bin`: a small program, one step's inputs and every node's honest output.

The court's tests play whole games over it. Format, integers big-endian: u32 nodes, slots, params, record
size, records; 32 bytes seed, u32 shard, u64 step; each node: u16 length, encoding, u32 length, output bytes;
each output: u32 ref; each record. Outputs come from the integer-only model `numerics.scalar`, one by one.

Contract: the same source gives the same bytes. Not guaranteed: that the program trains anything.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import struct
from collections.abc import Callable
from math import prod
from pathlib import Path

from assay.numerics import scalar, scalar_transcendental
from assay.program.isa import DType, Input, Node, Op

F32, I32, I16, U8, BOOL = DType
SEED, SHARD, STEP = hashlib.sha256(b"game").digest(), 3, 0x1_8000_0005
RECORDS, RECORD_BYTES, OFFSET, FIRST_ROW = 11, 40, 2, 1
ROWS, WIDTH, HIDDEN, COPIES = 4, 32, 40, 16

Values = list[int]


class Builder:
    """Nodes with their values, f32 as patterns."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.values: list[Values] = []

    def add(
        self,
        op: Op,
        dtype: DType,
        shape: tuple[int, ...],
        refs: tuple[int, ...],
        values: Values,
        attrs: tuple[int, ...] = (),
    ) -> int:
        if len(values) != prod(shape):
            raise ValueError(f"{op.name} has {len(values)} values for shape {shape}")
        inputs = tuple(Input(r, self.nodes[r].dtype, self.nodes[r].shape) for r in refs)
        self.nodes.append(Node(op, dtype, shape, inputs, attrs))
        self.values.append(values)
        return len(self.nodes) - 1

    def rows(self, ref: int) -> list[Values]:
        n = self.nodes[ref].shape[-1]
        return [self.values[ref][i : i + n] for i in range(0, len(self.values[ref]), n)]

    def each(self, op: Op, dtype: DType, ref: int, model: Callable[[int], int]) -> int:
        return self.add(op, dtype, self.nodes[ref].shape, (ref,), [model(x) for x in self.values[ref]])

    def quantised(self, ref: int) -> tuple[int, int]:
        rows = self.rows(ref)
        es = [scalar.exponent(row) for row in rows]
        e = self.add(Op.EXPONENT, I16, self.nodes[ref].shape[:-1], (ref,), es)
        qs = [scalar.quantise(x, at) for row, at in zip(rows, es, strict=True) for x in row]
        return self.add(Op.QUANTISE, I16, self.nodes[ref].shape, (ref, e), qs), e


def records() -> list[bytes]:
    return [bytes((7 * i + j * j) % 256 for j in range(RECORD_BYTES)) for i in range(RECORDS)]


def record_of(row: int) -> int:
    drawn = hashlib.sha256(b"assay/record/1" + SEED + struct.pack(">IQI", SHARD, STEP, row)).digest()
    return int.from_bytes(drawn[:8], "big") % RECORDS


def build() -> tuple[Builder, tuple[int, ...]]:
    rng = random.Random("game")
    weights = [
        rng.randrange(2) << 31 | rng.randrange(118, 124) << 23 | rng.getrandbits(23)
        for _ in range(HIDDEN * WIDTH)
    ]
    b = Builder()
    w = b.add(Op.STATE, F32, (HIDDEN, WIDTH), (), weights, (0,))
    counter = b.add(Op.STATE, I32, (), (), [41], (1,))
    picked = [records()[record_of(FIRST_ROW + r)] for r in range(ROWS)]
    seen = [row[OFFSET + j] for row in picked for j in range(WIDTH)]
    x = b.add(Op.DATA, U8, (ROWS, WIDTH), (), seen, (OFFSET, FIRST_ROW))
    x = b.each(Op.CONVERT, F32, x, lambda v: scalar.convert(v, source="u8", target="f32"))
    qw, ew = b.quantised(w)
    qx, ex = b.quantised(x)
    out = [
        scalar.product(rx, b.values[ex][i], rw, b.values[ew][j])
        for i, rx in enumerate(b.rows(qx))
        for j, rw in enumerate(b.rows(qw))
    ]
    y = b.add(Op.PRODUCT, F32, (ROWS, HIDDEN), (qx, ex, qw, ew), out)
    y = b.each(Op.TANH, F32, y, scalar_transcendental.tanh)
    b.add(Op.SUM, F32, (ROWS,), (y,), [scalar.row_sum(row) for row in b.rows(y)])
    one = b.add(Op.CONST, I32, (), (), [1], (1,))
    counted = b.add(Op.IADD, I32, (), (counter, one), [42])
    step = b.add(Op.STEP, I32, (), (), [STEP & 0x7FFFFFFF])
    b.each(Op.CONVERT, F32, step, lambda v: scalar.convert(v, source="i32", target="f32"))
    rate = b.add(Op.CONST, F32, (), (), [0x3C23D70A], (0x3C23D70A,))
    change = [scalar.mul(v, 0x3C23D70A) for v in b.values[w]]
    change_ref = b.add(Op.MUL, F32, (HIDDEN, WIDTH), (w, rate), change)
    updated = [scalar.sub(v, c) for v, c in zip(b.values[w], change, strict=True)]
    new = b.add(Op.SUB, F32, (HIDDEN, WIDTH), (w, change_ref), updated)
    strides = (0, 0, WIDTH, 1)
    b.add(Op.STRIDED, F32, (COPIES, HIDDEN, WIDTH), (w,), b.values[w] * COPIES, strides)
    b.add(Op.IOTA, I32, (5,), (), list(range(5)), (0,))
    best = b.add(Op.ARGMAX, I32, (ROWS,), (y,), [scalar.argmax(row) for row in b.rows(y)])
    add_named_records(b, best, y)
    return b, (new, counted)


def add_named_records(b: Builder, best: int, y: int) -> None:
    """Adds nodes that read the shard's number, records by number, bits of numbers, and sums by a row's own
    index."""
    b.add(Op.SHARD, I32, (), (), [SHARD])
    named = [records()[min(max(i, 0), RECORDS - 1)] for i in b.values[best]]
    seen = [row[OFFSET + j] for row in named for j in range(WIDTH)]
    b.add(Op.RECORD, U8, (ROWS, WIDTH), (best,), seen, (OFFSET,))
    whole = b.each(Op.BITS, I32, y, lambda v: scalar.bits(v, source="f32", target="i32"))
    b.each(Op.BITS, F32, whole, lambda v: scalar.bits(v, source="i32", target="f32"))
    columns = b.add(Op.IOTA, I32, (ROWS, HIDDEN), (), list(range(HIDDEN)) * ROWS, (1,))
    shifted = [j - i for i in b.values[best] for j in range(HIDDEN)]
    rows = b.add(Op.RESHAPE, I32, (ROWS, 1), (best,), b.values[best])
    places = b.add(Op.ISUB, I32, (ROWS, HIDDEN), (columns, rows), shifted)
    sums = [
        scalar.scatter_sum(row, at, v=v, V=5)
        for row, at in zip(b.rows(y), b.rows(places), strict=True)
        for v in range(5)
    ]
    b.add(Op.SCATTER_SUM, F32, (ROWS, 5), (y, places), sums)


def encode() -> bytes:
    b, outputs = build()
    out = struct.pack(">5I", len(b.nodes), len(outputs), 1, RECORD_BYTES, RECORDS) + SEED
    out += struct.pack(">IQ", SHARD, STEP)
    for node, values in zip(b.nodes, b.values, strict=True):
        body, size = node.encode(), node.dtype.size
        data = b"".join((v & (256**size - 1)).to_bytes(size, "little") for v in values)
        out += struct.pack(">H", len(body)) + body + struct.pack(">I", len(data)) + data
    return out + struct.pack(f">{len(outputs)}I", *outputs) + b"".join(records())


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the court's test game.")
    parser.add_argument("--check", action="store_true", help="compare with the file instead of writing it")
    args = parser.parse_args()
    path = Path(__file__).resolve().parents[2] / "tests" / "vectors" / "game.bin"
    if not args.check:
        path.write_bytes(encode())
    elif path.read_bytes() != encode():
        raise SystemExit(f"{path} is not what the model gives now; run this without --check and look")


if __name__ == "__main__":
    main()
