"""GRPO's parts against NumPy in float64, and the cache against whole rows; in the program's arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from assay.training.grpo import Decoder, Shape, advantages, answers_known, clipped_loss, decoded
from assay.training.verifiable import Addition, Brackets, Sorting, Verifiable


@pytest.mark.parametrize("digits", [1, 2, 3])
def test_rewards_are_for_exactly_right_answers(digits: int) -> None:
    task, generator = Addition(digits), np.random.default_rng(digits)
    a, b = generator.integers(0, 10**digits, (2, 50))
    rows = task.problems(torch.tensor(a).float(), torch.tensor(b).float())
    for row, x, y in zip(rows.int().tolist(), a, b, strict=True):
        assert row[:digits] == [int(c) for c in f"{x:0{digits}}"] and row[digits] == 10
        assert row[task.prompt :] == [int(c) for c in reversed(f"{x + y:0{digits + 1}}")]
    assert task.rewards(rows).tolist() == [1.0] * 50
    for place in range(task.prompt, task.length):
        wrong = rows.clone()
        wrong[:, place] = (wrong[:, place] + 1) % 10
        assert not task.rewards(wrong).any()


def test_advantages_are_relative_to_the_group() -> None:
    rewards = torch.tensor([1.0, 0, 0, 0, 1, 1, 1, 1])
    made = advantages(rewards, 4).double().numpy()
    wide = rewards.double().numpy().reshape(2, 4)
    wanted = (wide - wide.mean(1, keepdims=True)) / (wide.std(1, keepdims=True) + 1e-4)
    assert np.allclose(made, wanted.ravel(), atol=1e-5) and made[0] > 0 > made[1] and not made[4:].any()


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_objective_is_clipped_where_it_would_pay(sign: float) -> None:
    """Its value and gradient; beyond the bound on the side that pays, no gradient is left."""
    now = torch.tensor([[-1.0, -0.5, -2.0, -1.1]], requires_grad=True)
    before = torch.full((1, 4), -1.0)
    loss = clipped_loss(now, before, torch.tensor([sign]))
    loss.backward()
    ratio = np.exp(now.detach().double().numpy() + 1.0)
    wanted = -np.minimum(ratio * sign, np.clip(ratio, 0.8, 1.28) * sign).mean()
    assert loss.item() == pytest.approx(wanted, rel=1e-6)
    assert now.grad is not None
    beyond = ratio > 1.28 if sign > 0 else ratio < 0.8
    assert ((now.grad == 0).numpy() == beyond).all() and beyond.sum() == 1
    assert (now.grad.numpy()[~beyond] * sign < 0).all(), "the loss falls towards what was good"


@pytest.mark.parametrize("task", [Addition(1), Sorting(3), Brackets(4, 2)], ids=str)
def test_decoding_with_the_cache_knows_what_the_whole_row_knows(task: Verifiable) -> None:
    """Position by position with keys and values of the state, the same log-probabilities as all at once."""
    torch.manual_seed(1)
    net = Decoder(Shape(2, 2, 16, task.length), task.vocabulary)
    tokens, known, at = torch.zeros(6, task.length), torch.zeros(6, task.length), torch.zeros(())
    cache: list[Tensor] = net.cache(6)
    cache = [torch.full_like(t, 3.0) for t in cache]  # a stale cache, of the rollout before
    with torch.no_grad():
        for _ in range(task.length - 1):
            tokens, known, at, cache = decoded(net, task, 3, tokens, known, at, cache)
        whole = answers_known(net, task, tokens)
    assert torch.allclose(known[:, task.prompt :], whole, atol=1e-5) and at == task.length - 1
    problems = tokens[:, : task.prompt].reshape(2, 3, -1)
    assert (problems == problems[:, :1]).all()
    assert (problems.reshape(6, -1) == task.right(tokens)[:, : task.prompt]).all()
    assert not isinstance(task, Addition) or ((tokens[:, 1] == 10) & (tokens[:, 3] == 11)).all()
    assert known[:, : task.prompt].eq(0).all() and (known[:, task.prompt :] < 0).all()
