"""Streaming DiLoCo and eager updates against their papers' equations in float64, over several rounds."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from assay.program.execute import Executor, StepContext
from assay.training.algorithms import Algorithm, Nesterov, OuterSgd
from assay.training.overlap import Eager, Streaming, eager_program, mixing_program

CONTEXT = StepContext(None, bytes(32), 0, 0)
SHAPES = [(3, 5), (4,)]


def randoms(seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(s, generator=generator) for s in SHAPES]


def test_fragments_are_sent_in_turn_and_applied_later() -> None:
    """(t − t_p) mod H = 0 with t_p = p·H/P; τ steps afterwards the same fragments, in the same order."""
    s = Streaming(((0,), (1,), (2,)), steps=6, delay=1)
    sent = {t: s.sent(t) for t in range(14) if s.sent(t)}
    assert sent == {2: [1], 4: [2], 6: [0], 8: [1], 10: [2], 12: [0]}
    assert {t: s.applied(t) for t in range(14) if s.applied(t)} == {t + 1: p for t, p in sent.items()}
    at_once = Streaming(((0,),), steps=4, delay=0)
    assert [t for t in range(9) if at_once.sent(t)] == [t for t in range(9) if at_once.applied(t)] == [4, 8]


@pytest.mark.parametrize("alpha", [0.0, 0.25, 1.0])
def test_mixing_keeps_alpha_of_the_workers_own(alpha: float) -> None:
    """The side of α that others' code had the wrong way round: 1 keeps the worker's own, 0 takes θ."""
    streaming = Streaming(((0, 1),), alpha=alpha)
    theta, local = randoms(1), randoms(2)
    made = Executor(mixing_program(streaming, SHAPES)).step([*theta, *local], CONTEXT)
    for got, t, p in zip(made[2:], theta, local, strict=True):
        wanted = alpha * p.double().numpy() + (1 - alpha) * t.double().numpy()
        assert np.allclose(got.double().numpy(), wanted, atol=1e-6)
    assert all(torch.equal(a, b) for a, b in zip(made, theta, strict=False)), "θ is only read"


@pytest.mark.parametrize("rule", [Nesterov(0.7, 0.9), OuterSgd(0.5)])
def test_eager_updates_take_the_own_change_now_and_the_others_a_round_late(rule: object) -> None:
    """Three workers, four rounds: Δ̃ᵢ = 1/M·Δᵢ(t) + 1/M·Σ of the others' Δ(t − 1), then the outer rule."""
    workers, eager = 3, Eager(rule)  # type: ignore[arg-type]
    run = Executor(eager_program(eager, SHAPES, workers))
    zeros = [torch.zeros(s) for s in SHAPES]
    slots = eager.rule.slots
    thetas = [randoms(9) for _ in range(workers)]
    states = [[z for z in zeros for _ in range(slots)] for _ in range(workers)]
    late, before = list(zeros), [list(zeros) for _ in range(workers)]
    wide = [[t.double().numpy() for t in theta] for theta in thetas]
    moments = [[np.zeros(s) for s in SHAPES] for _ in range(workers)]
    previous = [[np.zeros(s) for s in SHAPES] for _ in range(workers)]
    for at in range(4):
        own = [randoms(20 + 5 * at + k) for k in range(workers)]
        for k in range(workers):
            made = run.step([*thetas[k], *states[k], *late, *before[k], *own[k]], CONTEXT)
            thetas[k], states[k] = made[:2], made[2 : 2 + len(states[k])]
            for i in range(len(SHAPES)):
                others = sum(previous[j][i] for j in range(workers) if j != k)
                change = (own[k][i].double().numpy() + others) / workers
                if isinstance(rule, Nesterov):
                    moments[k][i] = rule.momentum * moments[k][i] + change
                    wide[k][i] = wide[k][i] - rule.lr * (change + rule.momentum * moments[k][i])
                else:
                    wide[k][i] = wide[k][i] - 0.5 * change
                assert np.allclose(thetas[k][i].double().numpy(), wide[k][i], atol=1e-5), (at, k, i)
        previous = [[t.double().numpy() for t in o] for o in own]
        late = [sum(o[i] for o in own) / workers for i in range(len(SHAPES))]
        before = own


def test_the_first_eager_round_is_the_own_change_alone() -> None:
    run = Executor(eager_program(Eager(OuterSgd(1.0)), [(2,)], 4))
    zero = torch.zeros(2)
    made = run.step([torch.ones(2), zero, zero, torch.tensor([4.0, -8.0])], CONTEXT)
    assert made[0].tolist() == [0.0, 3.0]


def test_streaming_has_its_papers_numbers() -> None:
    made = Streaming(((0,),))
    assert made.alpha == 0.5 and isinstance(made.algorithm, Algorithm) and made.algorithm.feedback is None
    assert made.algorithm.rule == Nesterov(0.4, 0.9)
