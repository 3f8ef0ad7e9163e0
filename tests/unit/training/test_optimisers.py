"""Optimisers: their programs against native fp32, their values against PyTorch's own."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from assay.program.isa import Op
from assay.protocol.errors import Stop
from assay.training import job, models
from assay.training.losses import cross_entropy
from assay.training.optimisers import AdamW, Lion, Muon, Optimiser, Sgd, orthogonalised
from assay.training.schedules import Schedule
from tests.unit.training.steps import batch_of, built, compare, corpus, images

COSINE = Schedule(2, "cosine", 8, floor=0.1)
GPT = models.GptConfig(n_layer=1, n_head=2, d_model=16, context=8)


@pytest.mark.long
@pytest.mark.parametrize(
    "rule",
    [
        AdamW(lr=0.01, schedule=COSINE, no_decay=("*embedding*",), eps=1e-4),
        Sgd(lr=0.1, nesterov=True, schedule=Schedule(0, "linear", 5), weight_decay=0.1, no_decay=("*norm*",)),
        Lion(lr=0.001, schedule=COSINE, clip_norm=1.0),
        Muon(lr=0.02, schedule=COSINE, weight_decay=0.1, clip_norm=1.0, others=AdamW(lr=1e-3, eps=1e-4)),
        Muon(lr=0.02),
    ],
    ids=["adamw", "sgd", "lion", "muon", "muon-constant"],
)
def test_a_step_is_what_pytorch_computes(rule: Optimiser) -> None:
    compare(models.build(GPT, 1), rule, corpus(8), steps=3, relative=3e-2)


def test_a_schedule_warms_up_and_decays() -> None:
    schedule = Schedule(4, "cosine", 12, floor=0.2)
    found = [schedule.factor(torch.tensor(float(t))).item() for t in (0, 3, 4, 8, 12, 50)]
    middle = 0.2 + 0.8 * 0.5
    assert found == pytest.approx([0.25, 1.0, 1.0, middle, 0.2, 0.2])
    linear = Schedule(0, "linear", 10)
    assert [linear.factor(torch.tensor(float(t))).item() for t in (0, 5, 10)] == pytest.approx([1, 0.5, 0])


def test_a_schedule_that_cannot_be_is_refused() -> None:
    with pytest.raises(Stop):
        Schedule(5, "cosine", 5)
    with pytest.raises(Stop):
        Schedule(0, "stepwise", 5)  # type: ignore[arg-type]


def test_the_schedule_counts_inside_the_program() -> None:
    made = built(models.build(GPT, 1), Sgd(lr=1.0, momentum=0.0, schedule=Schedule(4)), corpus(8))
    assert made.slot_names[-2:] == ["step", "metric.loss"]
    assert not [n for n in made.inner.nodes if n.op is Op.STEP]


def test_weight_decay_leaves_out_what_no_decay_names() -> None:
    params = {"a.weight": torch.ones(2, 2), "b.weight": torch.ones(2, 2), "a.bias": torch.ones(2)}
    grads = {name: torch.zeros_like(p) for name, p in params.items()}
    for rule in (
        AdamW(lr=0.1, weight_decay=0.5, no_decay=("b.*",)),
        Lion(lr=0.1, weight_decay=0.5, no_decay=("b.*",)),
    ):
        after, _ = rule.update(params, grads, rule.genesis(params))
        assert [x.unique().item() for x in after.values()] == pytest.approx([0.95, 1.0, 1.0])


def test_lion_moves_by_the_sign() -> None:
    rule, params = Lion(lr=0.1, weight_decay=0.0), {"w": torch.zeros(3)}
    after, state = rule.update(params, {"w": torch.tensor([2.0, -0.5, 0.0])}, rule.genesis(params))
    assert after["w"].tolist() == pytest.approx([-0.1, 0.1, 0.0])
    assert state["exp_avg.w"].tolist() == pytest.approx([0.02, -0.005, 0.0])


@pytest.mark.parametrize("shape", [(6, 10), (10, 6)])
def test_muon_makes_steps_nearly_orthogonal(shape: tuple[int, int]) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(2))
    values = torch.linalg.svdvals(orthogonalised(x))
    assert values.min() > 0.5 and values.max() < 1.3


@pytest.mark.parametrize("shape", [(6, 4), (4, 6)])
def test_muon_agrees_with_the_library_step_by_step(shape: tuple[int, int]) -> None:
    """Three steps with different gradients, to cover momentum and Nesterov's look-ahead.

    The library's momentum is a mean and ours is a sum; the first division of the Newton-Schulz iteration
    removes the difference.
    """
    generator = torch.Generator().manual_seed(4)
    theirs = nn.Parameter(torch.randn(shape, generator=generator))
    library = torch.optim.Muon([theirs], lr=0.1, momentum=0.95, weight_decay=0.1)
    rule, ours = Muon(lr=0.1, weight_decay=0.1), {"w": theirs.detach().clone()}
    state = rule.genesis(ours)
    for _ in range(3):
        gradient = torch.randn(shape, generator=generator)
        before, theirs.grad = theirs.detach().clone(), gradient.clone()
        library.step()
        expected = theirs.detach() - before
        other, _ = replace(rule, momentum=0.5).update(ours, {"w": gradient}, state)
        after, state = rule.update(ours, {"w": gradient}, state)
        wrong, moved, ours = other["w"] - ours["w"], after["w"] - ours["w"], after
        assert (moved - expected).norm() < 0.05 * expected.norm()
    assert (wrong - expected).norm() > 0.05 * expected.norm(), "the momentum is seen"


@pytest.mark.long
def test_muon_leaves_embeddings_heads_and_vectors_to_adamw() -> None:
    made = built(models.build(GPT, 1), Muon(), corpus(8))
    mine = {n.removeprefix("momentum.") for n in made.slot_names if n.startswith("momentum.")}
    others = {n.removeprefix("exp_avg.") for n in made.slot_names if n.startswith("exp_avg.")}
    assert mine | others == set(made.slot_names[: made.inner.params]) and not mine & others
    assert "blocks.0.up.weight" in mine and {"embedding.weight", "head.weight", "norm.weight"} <= others


def test_accumulated_batches_are_one_larger_batch() -> None:
    config = models.MlpConfig(hidden=8)
    made = compare(models.build(config, 3), Sgd(), images(), steps=2, relative=2e-3, batch=4, accumulate=3)
    native = job.step_function(models.build(config, 3), cross_entropy, Sgd(), images().layout)
    whole = native([x.clone() for x in made.genesis], batch_of(made, 0, 12))
    parts = job.step_function(models.build(config, 3), cross_entropy, Sgd(), images().layout, 3)
    for x, y in zip(parts([x.clone() for x in made.genesis], batch_of(made, 0, 12)), whole, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5)
    read = [(n.shape, n.attrs) for n in made.inner.nodes if n.op is Op.DATA]
    wanted = [[((4, 64), (0, first)), ((4, 1), (64, first))] for first in (0, 4, 8)]
    assert sorted(read) == sorted(part for parts in wanted for part in parts)


def test_a_name_that_the_optimiser_needs_is_refused() -> None:
    class Model(nn.Linear):
        def __init__(self) -> None:
            super().__init__(64, 10)
            self.step = nn.Parameter(torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + self.step

    with pytest.raises(Stop, match="both have tensors named step"):
        built(Model(), Sgd(schedule=Schedule(2)), images())
