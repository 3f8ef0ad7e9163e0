"""Every instruction, compiled, gives the reference's bytes on uniform, special and adversarial patterns."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from assay.numerics.encoding import to_bytes
from assay.program.build import ProgramBuilder
from assay.program.compiled.executor import CompiledExecutor
from assay.program.compiled.graph import trace
from assay.program.execute import Executor, Records, StepContext
from assay.program.isa import DType, Family, Input, Op, Program
from tests.unit.numerics import patterns

CONTEXT = StepContext(None, bytes(32), 0, 3)
ELEMENTS = 1 << 17
ROWS, LENGTH = 512, 256


def finished(b: ProgramBuilder, made: list[Input]) -> Program:
    """The program that passes its state on and writes `made` to slots of their own."""
    given = b.slots
    for x in made:
        b.state(x.dtype, x.shape)
    return b.finish([*given, *made], 1)


def elementwise() -> Program:
    b = ProgramBuilder()
    x, y = (b.state(DType.F32, (ELEMENTS,)) for _ in range(2))
    i, j = (b.state(DType.I32, (ELEMENTS,)) for _ in range(2))
    made = [b.emit(op, DType.F32, x.shape, (x,)) for op in Op.of(Family.UNARY)]
    made += [b.emit(op, DType.F32, x.shape, (x, y)) for op in Op.of(Family.BINARY)]
    for value in (0.0, -0.0, 1.0, -1.0, 3.0):
        number = b.const(value, DType.F32)
        for op in (Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.MAX, Op.MIN):
            made += [b.emit(op, DType.F32, x.shape, pair) for pair in ((x, number), (number, x))]
    comparisons = [compare(a, c) for compare in (b.eq, b.lt, b.le) for a, c in ((x, y), (i, j))]
    made += [*comparisons, b.and_(*comparisons[:2]), b.or_(*comparisons[2:4]), b.not_(comparisons[0])]
    made += [b.iadd(i, j), b.isub(i, j), b.imul(i, j), b.select(comparisons[2], x, y)]
    made += [
        b.convert(x, DType.I32),
        b.convert(x, DType.BOOL),
        b.convert(i, DType.F32),
        b.convert(i, DType.U8),
    ]
    made += [b.bits(x), b.bits(i), b.bits(b.mul(x, y))]
    made += [b.convert(b.convert(i, DType.BOOL), DType.F32), b.sub(b.mul(x, y), b.mul(y, y))]
    made += [b.neg(b.sub(x, y)), b.add(b.mul(x, y), y), b.sub(b.const(0.0, DType.F32), b.mul(x, y))]
    folded = b.mul(b.const(0.1, DType.F32), b.const(3.0, DType.F32))
    made += [b.mul(x, folded), b.mul(b.convert(b.iota((ELEMENTS,), 0), DType.F32), b.const(0.1, DType.F32))]
    return finished(b, made)


def contractions() -> Program:
    b = ProgramBuilder()
    x, y = (b.state(DType.F32, (ROWS, LENGTH)) for _ in range(2))
    idx = b.state(DType.I32, (LENGTH,))
    foreign = b.state(DType.I16, (ROWS,))
    xt = b.transpose(x)
    ex, ey, et = b.exponent(x), b.exponent(y), b.exponent(xt)
    qx, qy, qt = b.quantise(x, ex), b.quantise(y, ey), b.quantise(xt, et)
    odd = b.quantise(x, foreign)
    made = [ex, ey, et, qx, odd, b.product(qx, ex, qy, ey), b.product(odd, foreign, qy, ey)]
    made += [
        b.product(qt, et, b.quantise(b.transpose(y), b.exponent(b.transpose(y))), et),
        b.product(odd, ex, qy, ey),
    ]
    made += [
        b.product(
            b.reshape(q, (8, 64, LENGTH)),
            b.reshape(e, (8, 64)),
            b.reshape(qy, (8, 64, LENGTH)),
            b.reshape(ey, (8, 64)),
        )
        for q, e in ((qx, ex),)
    ]
    backward = b.flip(qx, 0)
    made += [b.product(backward, b.flip(ex, 0), b.take(qy, idx), b.take(ey, idx))]
    made += [
        b.sum(x),
        b.sum(xt),
        b.sum(b.reshape(x, (ROWS * LENGTH // 2, 2))),
        b.sum(b.reshape(x, (ROWS * LENGTH, 1))),
    ]
    made += [b.sum(b.mul(x, y)), b.amax(x), b.amax(xt), b.argmax(x), b.scatter_sum(x, idx, 33)]
    made += [b.scatter_sum(x, b.convert(y, DType.I32), 33)]
    made += [
        b.take(x, idx),
        b.pick(x, b.argmax(y)),
        b.concat([qx, b.slice(qy, 0, 3, 9)], 0),
        b.strided(x, (3, 5), 7, (1, 2)),
    ]
    return finished(b, made)


def adversarial(seed: int) -> list[Tensor]:
    """f32 pairs, i32 pairs: special patterns first, then uniform bits and ordinary numbers."""
    a, c = patterns.pairs(seed, ELEMENTS + 5_000)
    generator = np.random.default_rng(seed)
    i = generator.integers(-(2**31), 2**31, (2, ELEMENTS)).astype(np.int32)
    i[:, :4] = [[-(2**31), 2**31 - 1, 0, -1], [-1, 2**31 - 1, 0, -(2**31)]]
    order = generator.permutation(len(a))[:ELEMENTS] if seed % 2 else slice(0, ELEMENTS)
    return [patterns.tensor(a[order]), patterns.tensor(c[order]), *(torch.from_numpy(k) for k in i)]


def rows(seed: int) -> list[Tensor]:
    """Rows of every scale, some poisoned, zero, subnormal or close to overflow; some indices out of range."""
    generator = torch.Generator().manual_seed(seed)
    pair = []
    for _ in range(2):
        x = torch.randn(ROWS, LENGTH, generator=generator)
        x *= torch.exp2(torch.randint(-140, 120, (ROWS, 1), generator=generator).float())
        x[:8] = 0.0
        x[8:12] = -0.0
        x[20, 3], x[21, 4], x[22, 5] = float("nan"), float("inf"), float("-inf")
        x[23, :2] = torch.tensor([float("inf"), float("-inf")])
        x[24:28] = torch.tensor(3.4028235e38)
        x[28:32] = torch.tensor(1e-45)
        x[32:40] = torch.randint(-8192, 8193, (8, LENGTH), generator=generator).float() * 0.5
        pair.append(x[torch.randperm(ROWS, generator=generator)])
    idx = torch.randint(-3, 40, (LENGTH,), generator=generator, dtype=torch.int32)
    foreign = torch.randint(-200, 200, (ROWS,), generator=generator).to(torch.int16)
    return [*pair, idx, foreign]


def compare(program: Program, form: CompiledExecutor, given: list[Tensor]) -> None:
    outputs = [torch.zeros(n.shape, dtype=t) for n, t in zip(program.state, dtypes(program), strict=True)]
    state = [*given, *outputs[len(given) :]]
    with torch.inference_mode():
        wanted, found = Executor(program).step(state, CONTEXT), form.step(state, CONTEXT)
    for slot, (a, c) in enumerate(zip(wanted, found, strict=True)):
        node = program.nodes[program.outputs[slot]]
        assert to_bytes(a) == to_bytes(c), f"slot {slot}: {node.op.name} {node.shape}"


def dtypes(program: Program) -> list[torch.dtype]:
    known = {DType.F32: torch.float32, DType.I32: torch.int32, DType.I16: torch.int16}
    return [{**known, DType.U8: torch.uint8, DType.BOOL: torch.bool}[node.dtype] for node in program.state]


CASES: list[tuple[Callable[[], Program], Callable[[int], list[Tensor]]]] = [
    (elementwise, adversarial),
    (contractions, rows),
]


@pytest.mark.long
@pytest.mark.parametrize(("make", "inputs"), CASES, ids=["elementwise", "contractions"])
def test_compiled_operations_give_the_reference_bytes(
    make: Callable[[], Program], inputs: Callable[[int], list[Tensor]]
) -> None:
    program = make()
    form = CompiledExecutor(program, self_check=False)
    for seed in range(2):
        compare(program, form, inputs(seed))


@pytest.mark.slow
@pytest.mark.parametrize(("make", "inputs"), CASES, ids=["elementwise", "contractions"])
def test_a_million_inputs_of_every_operation(
    make: Callable[[], Program], inputs: Callable[[int], list[Tensor]]
) -> None:
    program = make()
    form = CompiledExecutor(program, self_check=False)
    for seed in range(10, 20):
        compare(program, form, inputs(seed))


@pytest.mark.long
def test_views_of_windows_and_reversed_ones() -> None:
    """What the kernel of windows cannot read is copied first."""
    b = ProgramBuilder()
    x, y = b.state(DType.F32, (16, 12)), b.state(DType.F32, (5, 6))
    q, e = b.quantise(x, made := b.exponent(x)), b.quantise(y, b.exponent(y))
    views = [
        b.strided(b.strided(q, (8, 11, 6), 3, (12, 1, 2)), (7, 6), 5, (60, 1)),
        b.strided(q, (7, 6), 191, (-12, -1)),
    ]
    program = finished(b, [b.product(v, b.strided(made, (7,), 0, (1,)), e, b.exponent(y)) for v in views])
    assert "windowed_product" in str(trace(program, torch.device("cpu")).graph)
    generator = torch.Generator().manual_seed(1)
    given = [torch.randn(shape, generator=generator) for shape in ((16, 12), (5, 6))]
    states = [*given, *(torch.zeros(7, 5) for _ in views)]
    compiled, wanted = CompiledExecutor(program, self_check=False), Executor(program)
    assert compiled.ready
    for a, want in zip(compiled.step(states, CONTEXT), wanted.step(states, CONTEXT), strict=True):
        assert to_bytes(a) == to_bytes(want)


@pytest.mark.long
def test_shard_and_records_by_computed_numbers() -> None:
    """One form serves every dataset and shard; numbers beyond the records are clamped."""
    b = ProgramBuilder(RECORD := 5)
    idx = b.state(DType.I32, (4,))
    rows = b.iadd(b.imul(idx, b.const(3, DType.I32)), b.shard())
    program = finished(b, [b.record(rows, 3, 1), b.iadd(b.shard(), b.step())])
    compiled, reference = CompiledExecutor(program, self_check=False), Executor(program)
    empty = [torch.zeros(n.shape, dtype=t) for n, t in zip(program.state, dtypes(program), strict=True)]
    state = [torch.tensor([-7, 0, 2, 50], dtype=torch.int32), *empty[1:]]
    seen = []
    for records, shard in ((3, 1), (11, 1), (11, 2)):
        data = bytes((7 * i) % 251 for i in range(RECORD * records))
        context = StepContext(Records(data, RECORD), bytes(32), shard, 9)
        made = compiled.step(state, context)
        rows_read = [data[5 * min(max(3 * i + shard, 0), records - 1) :][1:4] for i in (-7, 0, 2, 50)]
        assert made[1].tolist() == [list(row) for row in rows_read]
        assert made[2].item() == shard + 9
        assert [to_bytes(x) for x in made] == [to_bytes(x) for x in reference.step(state, context)]
        seen.append(bytes(to_bytes(made[1])))
    assert len({*seen}) == 3


def test_products_make_the_exponents_of_their_operands_where_they_are_their_own() -> None:
    b = ProgramBuilder()
    x, y = b.state(DType.F32, (40, 16)), b.state(DType.F32, (24, 16))
    ex, ey = b.exponent(x), b.exponent(y)
    own = b.product(b.quantise(x, ex), ex, b.quantise(y, ey), ey)
    other = b.strided(ex, (24,), 3, (1,))
    foreign = b.product(b.quantise(x, ex), ex, b.quantise(y, other), other)
    program = finished(b, [own, foreign])
    graph = trace(program, torch.device("cpu")).graph
    products = [node for node in graph.nodes if "quantised_product" in str(node.target)]
    assert [[node.args[at] is None for at in (1, 3)] for node in products] == [[True, True], [True, False]]
    maxima = [node for node in graph.nodes if "amax" in str(node.target)]
    assert len(maxima) == 1, "of x, whose exponents another operand is quantised by"
    state = [torch.randn(40, 16), torch.randn(24, 16), torch.zeros(40, 24), torch.zeros(40, 24)]
    made = trace(program, torch.device("cpu"))(*state, torch.tensor(0, dtype=torch.int32))
    wanted = Executor(program).step(state, CONTEXT)
    assert [to_bytes(z) for z in made] == [to_bytes(z) for z in wanted]


def test_truth_values_are_kept_as_numbers_of_32_bits() -> None:
    """Inductor loads bytes one by one."""
    b = ProgramBuilder()
    x = b.state(DType.F32, (8, 16, 16))
    rows, columns = (b.iota((16, 16), d) for d in (0, 1))
    mask = b.strided(b.le(columns, rows), (8, 16, 16), 0, (0, 16, 1))
    program = finished(b, [b.select(mask, x, b.const(-1.0, DType.F32, (8, 16, 16)))])
    graph = trace(program, torch.device("cpu")).graph
    kept = [node for node in graph.nodes if "force_stride_order" in str(node.target)]
    assert [node.meta["val"].dtype for node in kept] == [torch.int32]


def test_scattered_additions_are_left_to_pytorch() -> None:
    """Inductor would write beyond the buffer with more than one thread (`fused.scatter_sum`)."""
    b = ProgramBuilder()
    x, idx = b.state(DType.F32, (37, 129)), b.state(DType.I32, (129,))
    graph = trace(finished(b, [b.scatter_sum(x, idx, 33)]), torch.device("cpu")).graph
    called = [str(node.target) for node in graph.nodes if node.op == "call_function"]
    assert called.count("assay.added_at.default") == 1
    assert not [name for name in called if "index_add" in name or "scatter" in name or "index_put" in name]
