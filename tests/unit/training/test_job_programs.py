"""Jobs built from models: their programs against native fp32, the outer step, the templates."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from assay.program.execute import Executor, StepContext
from assay.protocol.errors import Stop
from assay.training import models
from assay.training.optimisers import AdamW, Sgd
from assay.training.outer import DiLoCo, outer_genesis, outer_program
from assay.training.schedules import Schedule
from tests.unit.training.steps import SEED, built, compare, corpus, images

GPTS = {
    "plain": models.GptConfig(n_layer=2, n_head=2, d_model=16, context=12),
    "gpt-2": models.GptConfig(n_layer=1, n_head=2, d_model=16, context=8, tied=True, bias=True),
    "erf": models.GptConfig(n_layer=1, n_head=1, d_model=8, context=5, activation="gelu_erf"),
    "relu": models.GptConfig(n_layer=1, n_head=1, d_model=8, context=5, activation="relu"),
}


@pytest.mark.long
@pytest.mark.parametrize("name", GPTS)
def test_a_gpt_step_is_what_pytorch_computes(name: str) -> None:
    config = GPTS[name]
    rule = Sgd(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)
    compare(models.build(config, 1), rule, corpus(config.context), steps=2, relative=2e-3)


@pytest.mark.parametrize(
    "rule", [Sgd(), Sgd(momentum=0.0, schedule=Schedule(2)), Sgd(nesterov=True, clip_norm=1)]
)
def test_an_mlp_step_is_what_pytorch_computes(rule: Sgd) -> None:
    compare(models.build(models.MlpConfig(hidden=16), 3), rule, images(), steps=2, relative=1e-3)


def test_adamw_agrees_with_the_library() -> None:
    generator = torch.Generator().manual_seed(5)
    params = [torch.randn(3, 4, generator=generator), torch.randn(2, 2, generator=generator)]
    ours, rule = {str(i): p.clone() for i, p in enumerate(params)}, AdamW(lr=0.01, beta2=0.99)
    theirs = [nn.Parameter(p.clone()) for p in params]
    library = torch.optim.AdamW(theirs, lr=0.01, betas=(0.9, 0.99), eps=rule.eps, weight_decay=0.1)
    state = rule.genesis(ours)
    for _ in range(5):
        grads = [torch.randn(p.shape, generator=generator) for p in params]
        for p, g in zip(theirs, grads, strict=True):
            p.grad = g
        library.step()
        ours, state = rule.update(ours, {str(i): g for i, g in enumerate(grads)}, state)
    for x, y in zip(ours.values(), theirs, strict=True):
        torch.testing.assert_close(x, y.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("nesterov", [False, True])
def test_sgd_agrees_with_the_library(nesterov: bool) -> None:
    ours = {"w": torch.tensor([[1.0, -2.0]])}
    theirs = nn.Parameter(ours["w"].clone())
    rule = Sgd(lr=0.1, momentum=0.8, nesterov=nesterov, weight_decay=0.05)
    library = torch.optim.SGD([theirs], lr=0.1, momentum=0.8, nesterov=nesterov, weight_decay=0.05)
    state = rule.genesis(ours)
    for i in range(4):
        theirs.grad = torch.tensor([[0.5 * i, 1.0]])
        library.step()
        ours, state = rule.update(ours, {"w": theirs.grad}, state)
    torch.testing.assert_close(ours["w"], theirs.detach())


@pytest.mark.long
def test_slots_come_in_the_order_of_the_contract() -> None:
    config = GPTS["plain"]
    made = built(models.build(config, 0), AdamW(schedule=Schedule(2)), corpus(config.context))
    names, count = made.slot_names, made.inner.params
    model_names = [name for name, _ in models.build(config, 0).named_parameters()]
    assert names[:count] == model_names
    assert names[count : 2 * count] == [f"exp_avg.{name}" for name in model_names]
    assert names[-4:] == ["beta1_power", "beta2_power", "step", "metric.loss"]
    assert len(names) == made.inner.slots == len(made.genesis) and made.outer.slots == 4 * count
    assert made.genesis[-1].item() == 0


@pytest.mark.long
def test_equal_arguments_give_equal_roots_and_another_seed_another_genesis() -> None:
    config = GPTS["erf"]
    first, second, other = (built(models.build(config, seed), AdamW(), corpus(5)) for seed in (1, 1, 2))
    assert first.inner.root == second.inner.root == other.inner.root
    assert all(torch.equal(x, y) for x, y in zip(first.genesis, second.genesis, strict=True))
    assert not torch.equal(first.genesis[0], other.genesis[0])


def test_a_buffer_is_a_slot_that_the_step_may_change() -> None:
    class Counting(nn.Module):
        scale: Tensor
        seen: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(64, 10)
            self.register_buffer("scale", torch.tensor([1.0, 2.0, 3.0, 4.0] * 16))
            self.register_buffer("seen", torch.tensor(0))

        def forward(self, x: Tensor) -> Tensor:
            self.seen.add_(1)
            return self.linear(x * self.scale)

    made = built(Counting(), Sgd(), images())
    seen = made.slot_names.index("seen")
    assert made.slot_names[2:4] == ["seen", "scale"], "what a step changes stands by the parameters"
    after = Executor(made.inner).run(made.genesis, StepContext(made.records, SEED, 0, 0), 3)
    assert after[seen].item() == 3 and torch.equal(after[3], made.genesis[3])


@pytest.mark.long
def test_training_reduces_the_loss() -> None:
    config = models.GptConfig(n_layer=1, n_head=2, d_model=32, context=16)
    made = built(models.build(config, 0), AdamW(lr=5e-3), corpus(16), batch=8)
    executor, state, losses = Executor(made.inner), made.genesis, []
    for step in range(40):
        state = executor.step(state, StepContext(made.records, SEED, 0, step))
        losses.append(state[-1].item())
    assert losses[0] == pytest.approx(math.log(256), rel=0.05)
    assert sum(losses[-5:]) / 5 < 0.65 * losses[0]


def test_the_outer_step_is_diloco_in_the_order_of_the_shards() -> None:
    generator = torch.Generator().manual_seed(7)
    shapes, shards, rule = [(3, 2), (5,), ()], 3, DiLoCo(lr=0.7, momentum=0.9)
    program = outer_program(shapes, shards, rule)
    state = [torch.randn(s, generator=generator) for _ in range(2 + shards) for s in shapes]
    after = Executor(program).step(state, StepContext(None, SEED, 0, 0))
    for i in range(3):
        theta, moment, held = state[i], state[3 + i], [state[6 + 3 * k + i] for k in range(shards)]
        delta = (((theta - held[0]) + (theta - held[1])) + (theta - held[2])) / torch.tensor(3.0)
        moment = moment * torch.tensor(0.9) + delta
        assert torch.equal(after[i], theta - (delta + moment * torch.tensor(0.9)) * torch.tensor(0.7))
        assert torch.equal(after[3 + i], moment)
    assert all(torch.equal(x, y) for x, y in zip(after[6:], state[6:], strict=True))


def test_the_outer_genesis_moves_nothing() -> None:
    params = [torch.tensor([1.0, -2.0]), torch.tensor(3.0)]
    state = outer_genesis(params, 2)
    program = outer_program([(2,), ()], 2, DiLoCo())
    after = Executor(program).step(state, StepContext(None, SEED, 0, 0))
    assert len(state) == program.slots == 8
    assert all(torch.equal(x, y) for x, y in zip(after, state, strict=True))


@pytest.mark.parametrize("model", [nn.ReLU(), nn.Linear(64, 10).double()])
def test_a_model_that_cannot_be_trained_is_refused(model: nn.Module) -> None:
    with pytest.raises(Stop):
        built(model, Sgd(), images())
