"""Streaming DiLoCo and eager updates against their papers' equations in float64, over several rounds."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from assay.training.algorithms import Algorithm, Nesterov, OuterSgd
from assay.training.overlap import Eager, Streaming

SHAPES = [(3, 5), (4,)]


def randoms(seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(s, generator=generator) for s in SHAPES]


@pytest.mark.parametrize("alpha", [0.0, 0.25, 1.0])
def test_mixing_keeps_alpha_of_the_workers_own(alpha: float) -> None:
    """The side of α that others' code had the wrong way round: 1 keeps the worker's own, 0 takes θ."""
    streaming = Streaming(((0, 1),), alpha=alpha)
    theta, local = randoms(1), randoms(2)
    for t, p in zip(theta, local, strict=True):
        wanted = alpha * p.double().numpy() + (1 - alpha) * t.double().numpy()
        assert np.allclose(streaming.mixed(t, p).double().numpy(), wanted, atol=1e-6)


@pytest.mark.parametrize("rule", [Nesterov(0.7, 0.9), OuterSgd(0.5)])
def test_eager_updates_take_the_own_change_now_and_the_others_a_round_late(rule: object) -> None:
    """Three workers, four rounds: Δ̃ᵢ = 1/M·Δᵢ(t) + 1/M·Σ of the others' Δ(t − 1), then the outer rule."""
    workers, eager = 3, Eager(rule)  # type: ignore[arg-type]
    zeros = [torch.zeros(s) for s in SHAPES]
    thetas = [randoms(9) for _ in range(workers)]
    states = [[eager.rule.start(z) for z in zeros] for _ in range(workers)]
    late, before = list(zeros), [list(zeros) for _ in range(workers)]
    wide = [[t.double().numpy() for t in theta] for theta in thetas]
    moments = [[np.zeros(s) for s in SHAPES] for _ in range(workers)]
    previous = [[np.zeros(s) for s in SHAPES] for _ in range(workers)]
    for at in range(4):
        own = [randoms(20 + 5 * at + k) for k in range(workers)]
        for k in range(workers):
            for i in range(len(SHAPES)):
                given = thetas[k][i], states[k][i], late[i], own[k][i], before[k][i]
                thetas[k][i], states[k][i] = eager.step(*given, workers)
                others = sum(previous[j][i] for j in range(workers) if j != k)
                change = (own[k][i].double().numpy() + others) / workers
                if isinstance(rule, Nesterov):
                    moments[k][i] = rule.momentum * moments[k][i] + change
                    wide[k][i] = wide[k][i] - rule.lr * (change + rule.momentum * moments[k][i])
                else:
                    wide[k][i] = wide[k][i] - 0.5 * change
                assert np.allclose(thetas[k][i].double().numpy(), wide[k][i], atol=1e-5), (at, k, i)
        previous = [[t.double().numpy() for t in o] for o in own]
        late = [sum((o[i] for o in own), torch.zeros(())) / workers for i in range(len(SHAPES))]
        before = own


def test_the_first_eager_round_is_the_own_change_alone() -> None:
    zero = torch.zeros(2)
    theta, _ = Eager(OuterSgd(1.0)).step(torch.ones(2), [], zero, torch.tensor([4.0, -8.0]), zero, 4)
    assert theta.tolist() == [0.0, 3.0]


def test_streaming_has_its_papers_numbers() -> None:
    made = Streaming(((0,),))
    assert made.alpha == 0.5 and isinstance(made.algorithm, Algorithm) and made.algorithm.feedback is None
    assert made.algorithm.rule == Nesterov(0.4, 0.9)
