"""How Streaming DiLoCo mixes what came late."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from assay.training.algorithms import Algorithm, Nesterov
from assay.training.streaming import Streaming

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


def test_streaming_has_its_papers_numbers() -> None:
    made = Streaming(((0,),))
    assert made.alpha == 0.5 and isinstance(made.algorithm, Algorithm) and made.algorithm.feedback is None
    assert made.algorithm.rule == Nesterov(0.4, 0.9)
