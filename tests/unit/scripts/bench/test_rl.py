"""GRPO's programs in process: the same bits twice, rewards that are the task's, bytes that are counted."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from assay.program.validate import validate
from assay.training.verifiable import Addition
from scripts.bench import rl as bench

TINY = replace(
    bench.QUICK, layers=1, heads=1, width=8, rows=8, group=4, warm_rows=8, most_warm=2, most_rounds=2
)


@pytest.mark.slow
def test_two_runs_give_the_same_bits_and_another_seed_gives_others() -> None:
    """Of every rollout's wire and of the last parameters."""
    one, again = bench.play(TINY, 0, None), bench.play(TINY, 0, None)
    assert one.digest == again.digest and one.rewards == again.rewards and len(one.rewards) == 2
    assert bench.play(TINY, 1, None).digest != one.digest
    task = TINY.task
    assert one.wire_bytes_a_rollout == task.length + 4 * task.answer


@pytest.mark.long
def test_rollouts_of_two_actors_differ_and_their_programs_are_valid() -> None:
    """What the learner computes is the rollouts' reward, and only with an advantage does θ move."""
    game = bench.Game(TINY)
    for program in vars(game.programs).values():
        cost = validate(program, 0, max_bytes=1 << 30, max_operations=1 << 40)
        assert cost.operations > 1000
    theta = list(game.params.values())
    first, second = game.rollout(theta, 0), game.rollout(theta, 1)
    assert not torch.equal(first[0], second[0]) and torch.equal(first[0], game.rollout(theta, 0)[0])
    right = Addition(1).drawn(TINY.rows)
    count = len(theta)
    for tokens, known, moves in ((right, torch.zeros_like(first[1]), False), (_half(right), first[1], True)):
        given = [*theta, *TINY.learn.genesis(game.params).values(), *([tokens, known] * 2)]
        made = game._learn.step([*given, torch.zeros(()), torch.zeros(())], game._context(0))
        assert made[-2].item() == pytest.approx(0.5 if moves else 1.0)
        assert any(not torch.equal(a, b) for a, b in zip(theta, made[:count], strict=True)) is moves


def _half(right: torch.Tensor) -> torch.Tensor:
    """Every second answer made wrong."""
    wrong = right.clone()
    wrong[::2, -1] = (wrong[::2, -1] + 1) % 10
    return wrong
