"""Operands in parts: exact, the same bits in every form, and accurate where one large number hides others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from assay.fitness.check import model_differences
from assay.numerics.bits import differences
from assay.program.build import ProgramBuilder
from assay.program.compiled import graph as compiled_graph
from assay.program.compiled.executor import CompiledExecutor
from assay.program.execute import Executor, Records, StepContext
from assay.program.isa import DType, Op, Program
from assay.program.kernels import FAST, REFERENCE
from assay.program.lowering import lower
from assay.program.lowering.tracing import trace_step
from assay.program.operand_parts import Precision, dequantised, dequantised_nodes, rest
from assay.program.validate import validate
from tests.marked import only

CONTEXT = StepContext(Records(bytes(4), 4), bytes(32), 0, 0)
OUTLIER = 30_000.0
PARTS = [p for p in Precision if p is not Precision.SINGLE]


def hard_rows() -> Tensor:
    """f32 [8, 64]: ordinary rows, one outlier, ties, subnormals, zeros, an infinity, a NaN, large ones."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn((8, 64), generator=generator)
    x[1, 3] = OUTLIER
    x[2] = torch.arange(64) * 0.5 - 16 + 2.0**-14
    x[3] = torch.arange(64).to(torch.int32).view(torch.float32)
    x[4] = torch.tensor([0.0, -0.0] * 32)
    x[5, 7] = float("inf")
    x[6, 8] = float("nan")
    x[7] = (2.0**128 - 2.0**115) * ((torch.arange(64) % 5 - 2) / 2)
    return x


def parts_program() -> Program:
    """Slots: x f32 [8, 64], then what its first part keeps of it, and the rest."""
    builder = ProgramBuilder()
    x, _, _ = (builder.state(DType.F32, (8, 64)) for _ in range(3))
    e = builder.exponent(x)
    q = builder.quantise(x, e)
    return builder.finish([x, dequantised(builder, q, e), rest(builder, x, q, e)], 1)


def test_the_two_parts_of_a_row_add_up_to_it_exactly() -> None:
    x = hard_rows()
    _, first, second = Executor(parts_program()).step([x, x, x], CONTEXT)
    finite = torch.isfinite(x).all(-1)
    assert finite.tolist() == [True] * 5 + [False, False, True]
    assert torch.equal(first[finite].double() + second[finite].double(), x[finite].double())
    e = torch.frexp(x[finite].abs().amax(-1, keepdim=True).double()).exponent.clamp(min=-125)
    assert bool((second[finite].double().abs() <= torch.ldexp(torch.ones(()).double(), e - 14)).all())
    assert bool(second[0].any()), "a row of random numbers leaves a rest"
    assert bool((x[7].abs() > 1e38).any())
    assert bool(first[~finite].isnan().all() and second[~finite].isnan().all())


Function = Callable[..., Sequence[Tensor]]


def matrices(x: Tensor, w: Tensor) -> Sequence[Tensor]:
    return [x @ w]


def convolved(x: Tensor, w: Tensor) -> Sequence[Tensor]:
    """A strided convolution in groups, and both of its gradients."""
    seen, kernels = x.detach().requires_grad_(), w.detach().requires_grad_()
    with torch.enable_grad():
        made = functional.conv2d(seen, kernels, None, 2, 1, 1, 2)
        grads = torch.autograd.grad((made * made).sum(), [seen, kernels])
    return [made.detach(), *grads]


def _random(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def cases() -> dict[str, tuple[Function, list[Tensor]]]:
    """By name: a function, and inputs of which the first has an outlier that meets a zero of the second."""
    rows, weights = _random(9, 80), _random(80, 7)
    rows[:, 3], weights[3] = OUTLIER, 0
    batch, others = _random(2, 3, 5, 40), _random(2, 3, 40, 6)
    batch[..., 3], others[..., 3, :] = OUTLIER, 0
    long, tall = _random(3, 5000), _random(5000, 4)
    long[:, 4500], tall[4500] = OUTLIER, 0
    planes, kernels = _random(4, 4, 9, 9), _random(6, 2, 3, 3)
    planes[1, 2, 4, 4], kernels[:, 0] = OUTLIER, 0
    return {
        "matrices": (matrices, [rows, weights]),
        "a batch": (matrices, [batch, others]),
        "more than 4,096 terms": (matrices, [long, tall]),
        "convolution": (convolved, [planes, kernels]),
    }


CASES = cases()


def program_of(function: Function, inputs: Sequence[Tensor], precision: Precision) -> Program:
    """State: the inputs, then one slot for each result."""
    results = [torch.zeros_like(y) for y in function(*inputs)]

    def step(state: list[Tensor], rows: Tensor) -> list[Tensor]:
        given = state[: len(inputs)]
        return [*given, *function(*[x.clone() for x in given])]

    batch = torch.zeros((1, 4), dtype=torch.uint8)
    made = lower(trace_step(step, [*inputs, *results], batch), params=1, choose=lambda site: precision)
    validate(made.program, 4, max_bytes=1 << 30, max_operations=1 << 36)
    assert made.sites and all(chosen is precision for _, chosen, _ in made.sites)
    return made.program


def state_of(program: Program, inputs: Sequence[Tensor]) -> list[Tensor]:
    return [*inputs, *(torch.zeros(node.shape) for node in program.state[len(inputs) :])]


@pytest.mark.parametrize("name", CASES)
def test_an_outlier_that_meets_a_zero_hides_nothing_in_two_parts(name: str) -> None:
    function, inputs = CASES[name]
    wanted = function(*[x.double() for x in inputs])[0]
    errors = {}
    for precision in Precision:
        program = program_of(function, inputs, precision)
        found = Executor(program).step(state_of(program, inputs), CONTEXT)[len(inputs)]
        errors[precision] = float((found.double() - wanted).norm() / wanted.norm())
    assert min(errors[Precision.SINGLE], errors[Precision.RIGHT]) > 0.1, "the outlier was planted"
    assert max(errors[p] for p in (Precision.LEFT, Precision.SPLIT, Precision.FULL)) < 5e-4, errors


def test_outliers_on_both_sides_need_all_four_products() -> None:
    x, w = CASES["matrices"][1]
    x, w = x.clone(), w.clone()
    x[:, 5], w[5] = 0, OUTLIER
    wanted = x.double() @ w.double()
    errors = {}
    for precision in Precision:
        program = program_of(matrices, [x, w], precision)
        found = Executor(program).step(state_of(program, [x, w]), CONTEXT)[2]
        errors[precision] = float((found.double() - wanted).norm() / wanted.norm())
    assert errors.pop(Precision.FULL) < 5e-4
    assert min(errors.values()) > 0.1


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("precision", PARTS)
def test_every_node_is_what_the_integer_model_says_also_in_the_fast_form(
    name: str, precision: Precision
) -> None:
    function, inputs = CASES[name]
    program = program_of(function, inputs, precision)
    seen: dict[int, Tensor] = {}
    state = state_of(program, inputs)
    Executor(program, kernels=REFERENCE).step(state, CONTEXT, lambda i, x: seen.update({i: x}))
    for index, node in enumerate(program.nodes):
        if node.op is Op.PRODUCT:
            assert not model_differences(node, index, seen, reads=1 << 12)
    fast = Executor(program, kernels=FAST).step(state, CONTEXT)
    for ref, made in zip(program.outputs, fast, strict=True):
        assert differences(made, seen[ref])[0] == 0


def _graph_outputs(program: Program, state: Sequence[Tensor]) -> list[Tensor]:
    graph = compiled_graph.trace(program, torch.device("cpu"))
    return list(graph(*state, torch.zeros((), dtype=torch.int32)))


@pytest.mark.parametrize("name", only(("matrices", "a batch"), CASES))
@pytest.mark.parametrize("precision", PARTS)
def test_the_graph_for_compilers_has_the_same_bits(name: str, precision: Precision) -> None:
    function, inputs = CASES[name]
    program = program_of(function, inputs, precision)
    state = state_of(program, inputs)
    for made, wanted in zip(
        _graph_outputs(program, state), Executor(program).step(state, CONTEXT), strict=True
    ):
        assert differences(made, wanted)[0] == 0


def test_the_graph_for_compilers_gives_back_hard_rows_as_the_reference_does() -> None:
    program, x = parts_program(), hard_rows()
    assert len(dequantised_nodes(program)) == 1
    for made, wanted in zip(
        _graph_outputs(program, [x, x, x]), Executor(program).step([x, x, x], CONTEXT), strict=True
    ):
        assert differences(made, wanted)[0] == 0


def test_a_product_of_length_1_by_another_number_is_not_taken_for_a_first_part() -> None:
    builder = ProgramBuilder()
    x = builder.state(DType.F32, (4, 8))
    e = builder.exponent(x)
    q = builder.quantise(x, e)
    for number in (1.0, 2.0):
        one = builder.const(number, DType.F32, (1, 1))
        exponent = builder.exponent(one)
        repeated = builder.reshape(builder.strided(e, (4, 8), 0, (1, 0)), (32,))
        column = builder.product(
            builder.reshape(q, (32, 1)), repeated, builder.quantise(one, exponent), exponent
        )
        program = builder.finish([builder.reshape(column, (4, 8))], 1)
        assert bool(dequantised_nodes(program)) is (number == 1.0)
        state = [_random(4, 8)]
        assert torch.equal(_graph_outputs(program, state)[0], Executor(program).step(state, CONTEXT)[0])


@pytest.mark.slow
def test_compiled_steps_with_parts_have_the_same_bits(tmp_path: Path) -> None:
    for name, (function, inputs) in CASES.items():
        program = program_of(function, inputs, Precision.FULL)
        state = state_of(program, inputs)
        made = CompiledExecutor(program, cache_dir=tmp_path).step(state, CONTEXT)
        for found, wanted in zip(made, Executor(program).step(state, CONTEXT), strict=True):
            assert differences(found, wanted)[0] == 0, name
