"""The vectors that forge reads, read here: PyTorch and the integer-only model give the same bits (attack 44).

The format: ``spec/vectors/vectors.py``; the other reader: ``contracts/test/arbiter/Vectors.t.sol``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from assay.dispute import element as model
from assay.numerics.encoding import to_bytes
from assay.program.execute import Executor, StepContext
from assay.program.isa import DType, Input, Node, Op, Program, decode_node
from assay.program.kernels import REFERENCE, TORCH_DTYPES

FOLDER = Path(__file__).parents[2] / "vectors"
OPS = tuple(op for op in Op if op not in (Op.STATE, Op.DATA, Op.STEP, Op.SHARD, Op.RECORD))
FEWEST_CASES = 100
CONTEXT = StepContext(None, bytes(32), 0, 0)


@dataclass(frozen=True)
class Case:
    """One element of a node's output. `spans`: (input, byte offset, bytes)."""

    element: int
    spans: tuple[tuple[int, int, bytes], ...]
    expected: int


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def numbers(self, fmt: str) -> tuple[int, ...]:
        found = struct.unpack_from(">" + fmt, self.data, self.at)
        self.at += struct.calcsize(">" + fmt)
        return found

    def take(self, size: int) -> bytes:
        self.at += size
        return self.data[self.at - size : self.at]

    def case(self) -> Case:
        element, count = self.numbers("IB")
        spans = []
        for _ in range(count):
            source, offset, size = self.numbers("BIH")
            spans.append((source, offset, self.take(size)))
        return Case(element, tuple(spans), self.numbers("I")[0])


def groups(op: Op) -> Iterator[tuple[Node, list[Case]]]:
    """All groups of an instruction's file."""
    reader = _Reader((FOLDER / f"{op.word}.bin").read_bytes())
    while reader.at < len(reader.data):
        node = decode_node(reader.take(reader.numbers("H")[0]))
        yield node, [reader.case() for _ in range(reader.numbers("I")[0])]


def tensor(raw: bytes | bytearray, dtype: DType, shape: tuple[int, ...]) -> Tensor:
    """The tensor of these bytes, NaN payloads and all."""
    return torch.frombuffer(bytearray(raw), dtype=TORCH_DTYPES[dtype]).reshape(shape)


def output(node: Node, inputs: list[Tensor]) -> bytes:
    """Canonical bytes of the node's output, by the executor with the reference kernels."""
    slots = [Node(Op.STATE, ref.dtype, ref.shape, (), (i,)) for i, ref in enumerate(node.inputs)]
    if not slots:
        slots, inputs = [Node(Op.STATE, DType.I32, (), (), (0,))], [torch.tensor(0, dtype=torch.int32)]
    placed = replace(node, inputs=tuple(replace(ref, ref=i) for i, ref in enumerate(node.inputs)))
    program = Program((*slots, placed), tuple(range(len(slots))), 1)
    seen: dict[int, bytes] = {}

    def observe(index: int, x: Tensor) -> None:
        seen[index] = bytes(to_bytes(x))

    Executor(program, kernels=REFERENCE).step(inputs, CONTEXT, observe=observe)
    return seen[len(slots)]


def element_of(data: bytes, element: int, dtype: DType) -> int:
    return int.from_bytes(data[element * dtype.size : (element + 1) * dtype.size], "little")


def by_torch(node: Node, cases: list[Case]) -> list[int]:
    """Every case's bits; cases on one-element tensors are run as one tensor."""
    if node.op.elementwise and len(cases) > 1:
        n = len(cases)
        joined = [b"".join(case.spans[i][2] for case in cases) for i in range(len(node.inputs))]
        wide = replace(node, shape=(n,), inputs=tuple(Input(r.ref, r.dtype, (n,)) for r in node.inputs))
        inputs = [tensor(raw, r.dtype, (n,)) for raw, r in zip(joined, node.inputs, strict=True)]
        out = output(wide, inputs)
        return [element_of(out, i, node.dtype) for i in range(n)]
    found = []
    for case in cases:
        raw = [bytearray(r.dtype.size * model.prod(r.shape)) for r in node.inputs]
        for source, offset, data in case.spans:
            raw[source][offset : offset + len(data)] = data
        inputs = [tensor(b, r.dtype, r.shape) for b, r in zip(raw, node.inputs, strict=True)]
        found.append(element_of(output(node, inputs), case.element, node.dtype))
    return found


def by_model(node: Node, case: Case) -> int:
    """The case's bits by the integer-only model, which may read only the case's spans."""

    def read(source: int, index: int) -> int:
        dtype = node.inputs[source].dtype
        for given, offset, data in case.spans:
            at = index * dtype.size - offset
            if given == source and 0 <= at < len(data):
                return model.values(data[at : at + dtype.size], dtype)[0]
        raise AssertionError(f"element {index} of input {source} is read and is in no span")

    value = model.value(node, case.element, read, 0, 0, lambda: 0)
    return model.bits(value, node.dtype)


def written(bits: int, dtype: DType) -> int:
    """The bits as a tensor's canonical bytes have them: one NaN (docs/arithmetic.md, A2)."""
    nan = dtype is DType.F32 and bits & 0x7FFFFFFF > 0x7F800000
    return 0x7FC00000 if nan else bits


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.word)
def test_vectors_of(op: Op) -> None:
    """One element after the other: file = integer-only model = PyTorch."""
    seen = 0
    for node, cases in groups(op):
        assert node.op is op
        expected = [case.expected for case in cases]
        assert [by_model(node, case) for case in cases] == expected
        assert by_torch(node, cases) == [written(bits, node.dtype) for bits in expected]
        seen += len(cases)
    assert seen >= FEWEST_CASES
