"""The builder infers shapes, shares equal nodes, drops dead ones, and refuses what is no instruction."""

from __future__ import annotations

import pytest
import torch

from assay.program.build import ProgramBuilder
from assay.program.execute import Executor, StepContext
from assay.program.instructions import bits_of
from assay.program.isa import DType, Input, Op
from assay.program.rules import RuleBroken
from assay.program.validate import validate

F32 = DType.F32
CONTEXT = StepContext(None, bytes(32), 0, 0)


def run(b: ProgramBuilder, output: Input, x: torch.Tensor) -> torch.Tensor:
    """Value of `output` where slot 0 is x: a second slot receives it."""
    slot = b.state(output.dtype, output.shape)
    program = b.finish([b.slots[0], *b.slots[1:-1], output], 1)
    validate(program, 0, max_bytes=1 << 30, max_operations=1 << 30)
    assert b.slots[-1] == slot
    zero = {F32: torch.float32, DType.I32: torch.int32}[output.dtype]
    return Executor(program).step([x, torch.zeros(output.shape, dtype=zero)], CONTEXT)[1]


def test_equal_nodes_are_one() -> None:
    b = ProgramBuilder()
    x = b.state(F32, (3, 4))
    assert b.exp(x) == b.exp(x)
    assert b.const(1.0, F32) == b.const(1, F32)
    assert b.const(0.0, F32) != b.const(-0.0, F32)


def test_dead_nodes_go_and_states_stay_first() -> None:
    b = ProgramBuilder(8)
    x = b.state(F32, (2,))
    y = b.exp(x)
    b.data(2, 4)
    unused = b.state(DType.I32, ())
    program = b.finish([y, unused], 1)
    assert [node.op for node in program.nodes] == [Op.STATE, Op.STATE, Op.EXP]
    assert program.outputs == (2, 1)
    assert program.record_size == 0


def test_equal_operands_share_their_quantisation() -> None:
    b = ProgramBuilder()
    x = b.state(F32, (4, 4))
    program = b.finish([b.add(b.matmul(x, x), b.matmul(x, b.exp(x)))], 1)
    ops = [node.op for node in program.nodes]
    assert ops.count(Op.QUANTISE) == ops.count(Op.EXPONENT) == 2
    assert ops.count(Op.PRODUCT) == 2


def test_stacked_views_are_one_strided_node() -> None:
    b = ProgramBuilder()
    x = b.state(F32, (4, 6))
    view = b.flip(b.slice(b.transpose(x), 0, 1, 6, 2), 1)
    assert b.node(view).inputs == (x,)
    assert b.transpose(b.transpose(x)) == x
    value = torch.arange(24.0).view(4, 6)
    assert torch.equal(run(b, view, value), value.t()[1:6:2].flip(1))


def test_views_agree_with_torch() -> None:
    value = torch.arange(24.0).view(2, 3, 4)
    b = ProgramBuilder()
    x = b.state(F32, (2, 3, 4))
    moved = b.permute(x, (2, 0, 1))
    joined = b.concat([moved, b.slice(moved, 1, 0, 1)], 1)
    wide = b.expand(b.unsqueeze(joined, 0), (2, 4, 3, 3))
    expected = value.permute(2, 0, 1)
    expected = torch.cat([expected, expected[:, :1]], 1).unsqueeze(0).expand(2, 4, 3, 3)
    assert torch.equal(run(b, wide, value), expected)


def test_long_contractions_are_chunked() -> None:
    value = torch.ones(1, 10_000)
    for method, expected in (("long_sum", 10_000.0), ("long_amax", 1.0)):
        b = ProgramBuilder()
        assert run(b, getattr(b, method)(b.state(F32, (1, 10_000))), value).item() == expected
    b = ProgramBuilder()
    x = b.state(F32, (1, 10_000))
    assert run(b, b.matmul(x, x), value).item() == 10_000.0


def test_more_than_sixteen_parts_are_joined_in_order() -> None:
    b = ProgramBuilder()
    x = b.state(F32, (20,))
    parts = [b.slice(x, 0, i, i + 1) for i in range(20)]
    value = torch.arange(20.0)
    assert torch.equal(run(b, b.concat(parts, 0), value), value)


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (1.0, F32, 0x3F800000),
        (-0.0, F32, 0x80000000),
        (float("nan"), F32, 0x7FC00000),
        (1e300, F32, 0x7F800000),
        (-1e300, F32, 0xFF800000),
        (-1, DType.I32, 0xFFFFFFFF),
        (-1, DType.I16, 0xFFFF),
        (2, DType.BOOL, 1),
    ],
)
def test_bits_of_numbers(value: float, dtype: DType, expected: int) -> None:
    assert bits_of(value, dtype) == expected


def test_what_is_no_instruction_is_refused() -> None:
    b = ProgramBuilder(8)
    x, y = b.state(F32, (2, 3)), b.state(DType.I32, (2, 3))
    other = ProgramBuilder().state(F32, (9,))
    e = b.exponent(x)
    refused = [
        lambda: b.add(x, y),
        lambda: b.add(x, b.const(0, F32, (4, 3))),
        lambda: b.exp(other),
        lambda: b.data(2, 9),
        lambda: b.strided(x, (2,), 5, (1,)),
        lambda: b.reshape(x, (5,)),
        lambda: b.convert(y, DType.I16),
        lambda: b.product(b.const(1, DType.I16, (2, 3)), e, b.quantise(x, e), e),
        lambda: b.permute(x, (0, 0)),
        lambda: b.slice(x, 0, 1, 1),
        lambda: b.sum(b.const(0, F32)),
        lambda: b.sum(b.const(0, F32, (4097,))),
        lambda: b.const(0, F32, (1 << 14, 1 << 15)),
        lambda: b.finish([x], 1),
        lambda: b.finish([y, x], 1),
        lambda: b.finish([x, y], 3),
    ]
    for attempt in refused:
        with pytest.raises(RuleBroken):
            attempt()
