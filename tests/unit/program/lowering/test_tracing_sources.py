"""Steps that cannot be expressed are refused with the operation's name and the user's line."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from assay.program.lowering.tracing import UnsupportedOperation, decompositions, trace_step
from tests.unit.program.lowered import BATCH, Function, agree, lowered

X = torch.ones(3, 4)


def _line(function: Function, text: str) -> str:
    lines, start = inspect.getsourcelines(function)
    return f"test_tracing_sources.py:{start + next(i for i, line in enumerate(lines) if text in line)}"


def _refused(function: Function) -> UnsupportedOperation:
    with pytest.raises(UnsupportedOperation) as caught:
        lowered(function, [X])
    return caught.value


def test_an_unknown_operation_is_named_with_its_line() -> None:
    def function(x: Tensor, batch: Tensor) -> list[Tensor]:
        y = x + 1
        y = torch.special.bessel_j0(y)
        return [y * 2]

    error = _refused(function)
    assert error.operation == "aten.special_bessel_j0.default"
    assert error.source.endswith(_line(function, "bessel_j0"))
    assert error.source in str(error) and error.code == "unsupported-operation"


def test_an_operation_inside_a_module_is_blamed_on_the_user_that_called_it() -> None:
    leaky = torch.nn.RReLU()

    def function(x: Tensor, batch: Tensor) -> list[Tensor]:
        x = x * 2
        return [torch.func.functional_call(leaky, {}, (x[None],))]

    assert _refused(function).source.endswith(_line(function, "functional_call"))


def test_a_gradient_is_blamed_on_the_forward_line() -> None:
    def function(x: Tensor, batch: Tensor) -> list[Tensor]:
        x = x.detach().requires_grad_()
        y = x * 2
        y = torch.special.i0e(y)
        loss = (y * 3).sum()
        return [torch.autograd.grad(loss, x)[0]]

    graph = trace_step(lambda state, rows: list(function(state[0], rows)), [X], BATCH)
    sources = [n.meta["source"] for n in graph.graph.nodes if n.op == "call_function"]
    wanted = _line(function, "i0e") + ", in its gradient"
    assert any(source.endswith(wanted) for source in sources)


def test_reading_a_value_is_refused_with_its_line() -> None:
    def function(x: Tensor, batch: Tensor) -> list[Tensor]:
        scale = x.sum().item()
        return [x * scale]

    error = _refused(function)
    assert "depends on the data" in str(error)
    assert error.source.endswith(_line(function, "item()"))


@pytest.mark.parametrize("chosen", [lambda x: x[x > 0], lambda x: x if x.sum() > 0 else -x])
def test_a_shape_or_branch_that_depends_on_the_data_is_refused(chosen: Callable[..., Tensor]) -> None:
    def function(x: Tensor, batch: Tensor) -> list[Tensor]:
        return [chosen(x).sum()]

    assert "depends on the data" in str(_refused(function))


def test_random_numbers_that_have_no_rule_are_refused() -> None:
    def function(x: Tensor, batch: Tensor) -> list[Tensor]:
        return [torch.poisson(x)]

    assert _refused(function).source.endswith(_line(function, "poisson"))


def test_double_precision_is_refused() -> None:
    def function(x: Tensor, batch: Tensor) -> list[Tensor]:
        return [(x.double() * 2).float()]

    error = _refused(function)
    assert "float64" in str(error) and error.source.endswith(_line(function, "double"))


def test_writing_into_a_view_is_refused() -> None:
    def function(x: Tensor, batch: Tensor) -> list[Tensor]:
        y = x * 1
        y.diagonal().fill_(5.0)
        return [y]

    error = _refused(function)
    assert "in place" in str(error) and error.source.endswith(_line(function, "y.diagonal"))


def test_a_large_constant_of_different_values_asks_for_a_buffer() -> None:
    table = torch.arange(2000.0)

    def function(x: Tensor, batch: Tensor) -> list[Tensor]:
        return [x[0, 0] + table]

    error = _refused(function)
    assert "buffer" in error.hint and error.source.endswith(_line(function, "+ table"))


def test_writing_into_one_view_leaves_the_others_alone() -> None:
    def function(x: Tensor, batch: Tensor) -> list[Tensor]:
        first, second = (x * 2).split(2, 1)
        first.sigmoid_()
        whole = x * 3
        whole.t().mul_(x.t())
        return [first, second, whole]

    agree(function, torch.arange(12.0).view(3, 4))


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda x, b: [x * x.sum().item()], "keep the number a tensor"),
        (lambda x, b: [torch.unique(x)[:1]], "torch.where"),
        (lambda x, b: [torch.linalg.qr(x)[0]], "Newton"),
        (lambda x, b: [torch.lgamma(x)], "Stirling"),
        (lambda x, b: [torch.special.i0e(x)], "docs/operations.md"),
    ],
)
def test_a_refusal_says_what_to_write_instead(function: Function, says: str) -> None:
    error = _refused(function)
    assert says in error.hint and "test_tracing_sources.py" in error.source


def test_an_operation_of_the_users_own_is_decomposed_when_it_comes_late() -> None:
    before = decompositions()
    assert decompositions() is before, "the table is not made for each trace"
    with torch.library._scoped_library("assay_tests", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CompositeImplicitAutograd")
        assert torch.ops.assay_tests.twice.default in decompositions()
        agree(lambda x, batch: [torch.ops.assay_tests.twice(x)], X)
    assert decompositions().keys() == before.keys()
