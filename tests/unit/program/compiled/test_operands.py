"""Matrices that products on a GPU read by columns are found; their operands are made with the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.fitness.digests import stored
from assay.numerics.encoding import to_bytes
from assay.program.build import ProgramBuilder
from assay.program.compiled import operands
from assay.program.compiled.attention import Attention
from assay.program.compiled.graph import trace
from assay.program.compiled.operands import Key, matrices
from assay.program.execute import Executor, StepContext, read_data
from assay.program.isa import DType, Input, Op, Program
from assay.program.operand_parts import dequantised_nodes
from tests.marked import only
from tests.unit.program.compiled.gpu_forms import gpu_forms as gpu_forms
from tests.unit.program.compiled.gpu_forms import product

CPU = torch.device("cpu")
SAMPLES = {sample.name: sample for sample in stored().samples}


pytestmark = pytest.mark.usefixtures("gpu_forms")


def both(b: ProgramBuilder, x: Input) -> list[Input]:
    return [product(b, x, x), product(b, b.transpose(x), b.transpose(x))]


def rows(b: ProgramBuilder, x: Input) -> list[Input]:
    return [product(b, x, x)]


def columns(b: ProgramBuilder, x: Input) -> list[Input]:
    return [product(b, b.transpose(x), b.transpose(x))]


def parts_across(b: ProgramBuilder, x: Input) -> list[Input]:
    found = [b.slice(x, 1, *ends) for ends in ((0, 9), (9, 16), (16, 30))]
    return [product(b, b.transpose(x), b.transpose(x)), *(product(b, y, y) for y in found)]


def parts_down(b: ProgramBuilder, x: Input) -> list[Input]:
    turned = [b.strided(x, (30, n), 30 * at, (1, 30)) for at, n in ((0, 8), (8, 16))]
    return [product(b, x, x), *(product(b, y, y) for y in turned)]


def heads(b: ProgramBuilder, x: Input) -> list[Input]:
    """Of three heads, as attention reads them; the second product takes its columns."""
    seen = b.strided(x, (2, 3, 12, 10), 0, (360, 10, 30, 1))
    flat = b.reshape(seen, (6, 12, 10))
    turned = b.strided(seen, (6, 10, 12), 0, (120, 1, 10))
    return [product(b, flat, flat), product(b, turned, turned)]


def loss(b: ProgramBuilder, x: Input) -> list[Input]:
    """A gradient over a vocabulary, in parts."""
    powers = b.exp(b.sub(x, b.reshape(b.amax(x), (24, 1))))
    total = b.reshape(b.sum(powers), (24, 1))
    place = b.reshape(b.convert(b.iota((24,), 0), DType.I32), (24, 1))
    hit = b.eq(b.iota((30,), 0), place)
    share = b.div(b.const(-1.0, DType.F32), b.const(3.0, DType.F32))
    row = b.select(hit, share, b.const(0.0, DType.F32))
    factor = b.reshape(b.sum(row), (24, 1))
    return parts_across(b, b.sub(row, b.mul(b.div(powers, total), factor)))


def gap(b: ProgramBuilder, x: Input) -> list[Input]:
    found = [b.slice(x, 1, *ends) for ends in ((0, 9), (16, 30))]
    return [product(b, b.transpose(x), b.transpose(x)), *(product(b, y, y) for y in found)]


def foreign(b: ProgramBuilder, x: Input) -> list[Input]:
    """Quantised by exponents of other rows."""
    turned = b.transpose(x)
    e = b.exponent(b.neg(turned))
    q = b.quantise(turned, e)
    return [b.product(q, e, q, e)]


def read(b: ProgramBuilder, x: Input) -> list[Input]:
    """Quantised values that not only products read."""
    turned = b.transpose(x)
    e = b.exponent(turned)
    q = b.quantise(turned, e)
    return [b.product(q, e, q, e), q]


def mirrored(b: ProgramBuilder, x: Input) -> list[Input]:
    turned = b.strided(x, (30, 24), 23 * 30, (1, -30))
    return [product(b, turned, turned)]


Makes = Callable[[ProgramBuilder, Input], list[Input]]
FOUND: list[tuple[Makes, list[tuple[int, ...]]]] = [
    (both, [(1, 24, 30)]),
    (rows, []),
    (columns, [(1, 24, 30)]),
    (parts_across, [(1, 24, 30)]),
    (parts_down, [(1, 24, 30)]),
    (heads, [(6, 12, 10)]),
    (loss, [(1, 24, 30)]),
    (gap, []),
    (foreign, []),
    (read, []),
    (mirrored, []),
]


def program(makes: Makes) -> Program:
    b = ProgramBuilder()
    x = b.state(DType.F32, (24, 30))
    made = makes(b, x)
    for one in made:
        b.state(one.dtype, one.shape)
    return b.finish([x, *made], params=1)


def numbers(kind: str) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(24, 30, generator=generator)
    if kind == "any bits":
        return (
            torch.randint(-(2**31), 2**31, x.shape, generator=generator).to(torch.int32).view(torch.float32)
        )
    if kind == "hard":
        x[0], x[1], x[2, 3], x[5, 7], x[9, 0] = 0.0, -0.0, float("nan"), float("inf"), float("-inf")
        x[:, 11], x[12], x[13] = 2.0**-149, 3.4028234e38, -1.9999999
    return x


@pytest.mark.parametrize("kind", ["normal", "any bits", "hard"])
@pytest.mark.parametrize(("makes", "found"), FOUND)
def test_operands_of_a_matrix(makes: Makes, found: list[tuple[int, ...]], kind: str) -> None:
    made = program(makes)
    assert [tuple(key[1:]) for key in matrices(made, dequantised_nodes(made))] == found
    graph = trace(made, CPU)
    asked = [node for node in graph.graph.nodes if "assay.operands" in str(node.target)]
    assert len(asked) == len(found)
    assert [len(node.args[3]) for node in asked] == ([4] if makes is loss else [0] * len(found))
    state: list[Any] = [numbers(kind), *(torch.zeros(n.shape) for n in made.state[1:])]
    state = [x.to(torch.int16) if n.dtype is DType.I16 else x for x, n in zip(state, made.state, strict=True)]
    wanted = Executor(made).step(state, StepContext(None, b"", 0, 0))
    with torch.inference_mode():
        after = graph(*state, torch.tensor(0))
    assert [to_bytes(x) for x in after] == [to_bytes(x) for x in wanted]


def test_a_small_matrix_is_left_to_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    made = program(both)
    monkeypatch.setattr(operands, "LEAST_ELEMENTS", 24 * 30 + 1)
    assert not matrices(made, {})


@pytest.mark.parametrize("name", only(["mlp"], SAMPLES))
def test_training_steps(name: str) -> None:
    sample = SAMPLES[name]
    program, state = sample.program, sample.genesis()
    graph = trace(program, CPU)
    asked = [str(node.target) for node in graph.graph.nodes].count("assay.operands.default")
    attention = Attention(program, dequantised_nodes(program))
    found: dict[Key, Any] = dict(matrices(program, dequantised_nodes(program), attention))
    others = [i for i, n in enumerate(program.nodes) if n.op is Op.QUANTISE and i not in attention]
    made = sum(len(m.across) + len(m.down) for m in found.values())
    assert asked == len(found) > 3 and (made == len(others)) == (name == "gpt")
    data = [read_data(n, CPU, sample.context(0)) for n in program.nodes if n.op is Op.DATA]
    with torch.inference_mode():
        after = graph(*state, *data, torch.tensor(0, dtype=torch.int32))
    wanted = Executor(program).step(state, sample.context(0))
    assert [to_bytes(x) for x in after] == [to_bytes(x) for x in wanted]
