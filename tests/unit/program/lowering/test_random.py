"""Random numbers inside a program: the right shares, no visible pattern, one mask for value and gradient."""

from __future__ import annotations

from math import exp, sqrt

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from assay.program.execute import Executor, Records, StepContext
from assay.program.isa import Op
from tests.unit.program.lowered import RECORD, Function, lowered

X = torch.ones(32, 512)


def _run(function: Function, steps: int = 1) -> list[list[Tensor]]:
    """The function's results of X at steps 0, 1, ..."""
    program = lowered(function, [X])
    executor = Executor(program)
    state = [X, *(torch.zeros(n.shape) for n in program.state[1:])]
    dataset = Records(RECORD, len(RECORD))
    return [executor.step(state, StepContext(dataset, bytes(32), 0, t))[1:] for t in range(steps)]


def _correlation(x: Tensor, y: Tensor) -> float:
    """In standard deviations of what independent numbers give."""
    x, y = x.flatten() - x.mean(), y.flatten() - y.mean()
    return ((x @ y) / (x.norm() * y.norm())).item() * sqrt(x.numel())


def _dropped(x: Tensor, batch: Tensor) -> list[Tensor]:
    leaf = x.detach().requires_grad_()
    with torch.enable_grad():
        y = functional.dropout(leaf, 0.25)
    return [y.detach(), torch.autograd.grad(y.sum(), leaf)[0], functional.dropout(x, 0.25)]


def test_dropout_keeps_its_share_and_scales_the_rest() -> None:
    (value, gradient, other), (later, *_) = _run(_dropped, 2)
    assert set(value.unique().tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
    assert (value > 0).float().mean().item() == pytest.approx(0.75, abs=0.012)
    assert torch.equal(value, gradient)
    for mask in (other, later):
        assert not torch.equal(value, mask) and abs(_correlation(value, mask)) < 4


@pytest.mark.parametrize("lag", [1, 2, 3, 16, 511, 512, 513, 4096])
def test_neighbours_are_independent(lag: int) -> None:
    ((value, *_),) = _run(_dropped)
    flat = value.flatten()
    assert abs(_correlation(flat[:-lag], flat[lag:])) < 4


def test_uniform_and_normal_numbers_are_spread_as_they_should() -> None:
    ((uniform, normal),) = _run(lambda x, b: [torch.rand_like(x), torch.randn_like(x)])
    assert uniform.min() >= 0 and uniform.max() < 1
    counts = torch.histc(uniform, 64, 0, 1) - X.numel() / 64
    assert (counts**2).sum().item() / (X.numel() / 64) < 63 + 5 * sqrt(2 * 63)
    assert abs(normal.mean().item()) < 0.03 and normal.std().item() == pytest.approx(1, abs=0.03)
    assert (normal.abs() > 1.96).float().mean().item() == pytest.approx(0.05, abs=0.01)


def test_exponential_numbers_are_spread_as_they_should_and_gumbel_softmax_is_one() -> None:
    def function(x: Tensor, batch: Tensor) -> list[Tensor]:
        drawn = torch.empty_like(x).exponential_(2.0)
        return [drawn, functional.gumbel_softmax(x, tau=1.0), functional.gumbel_softmax(x, hard=True)]

    ((drawn, soft, hard),) = _run(function)
    assert drawn.min() > 0 and drawn.mean().item() == pytest.approx(0.5, abs=0.015)
    assert (drawn > 1.0).float().mean().item() == pytest.approx(exp(-2.0), abs=0.012)
    assert torch.allclose(soft.sum(-1), torch.ones(32)) and soft.isfinite().all()
    assert torch.equal(hard.sum(-1), torch.ones(32)) and set(hard.unique().tolist()) == {0.0, 1.0}


def test_the_same_function_gives_the_same_program_and_another_seed_another() -> None:
    def function(x: Tensor, batch: Tensor) -> list[Tensor]:
        return [functional.dropout(x, 0.5), functional.dropout(x, 1.0), functional.dropout(x, 0.0)]

    (half, none, all_), *_ = _run(function)
    assert torch.equal(all_, X) and not none.any() and half.any()
    first, second = lowered(function, [X]), lowered(function, [X])
    assert first.root == second.root
    assert {Op.STEP, Op.IMUL, Op.IADD} <= {node.op for node in first.nodes}


def test_a_dropped_channel_is_dropped_whole() -> None:
    def function(x: Tensor, batch: Tensor) -> list[Tensor]:
        return [functional.dropout2d(x.view(32, 8, 8, 8), 0.5)]

    ((value,),) = _run(function)
    channels = value.flatten(2)
    assert torch.equal(channels.amin(-1), channels.amax(-1)) and 0 < (channels > 0).float().mean() < 1
