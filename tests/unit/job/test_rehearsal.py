"""The first rounds by a user's outer algorithm, as `job validate` rehearses them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.job.build import build
from assay.job.estimate import drafted
from assay.job.read import parse_job_file
from assay.job.rehearsal import own_warnings
from assay.job.templates import LOCAL, by_own_algorithm, own_template, stated
from assay.training.algorithms import Algorithm, Nesterov
from assay.training.codings import Bins
from assay.training.datasets import digits
from assay.training.losses import cross_entropy
from assay.training.recipe import Recipe


@dataclass(frozen=True)
class Plain:
    """theta + rate * delta."""

    rate: float
    slots: int = 0

    def start(self, theta: Tensor) -> list[Tensor]:
        return []

    def step(self, theta: Tensor, delta: Tensor, state: Any) -> tuple[Tensor, list[Tensor]]:
        return theta + delta * self.rate, []


@dataclass(frozen=True)
class EverySecond:
    """Moves in every second round, and not in the first and the third."""

    slots: int = 1

    def start(self, theta: Tensor) -> list[Tensor]:
        return [torch.zeros_like(theta)]

    def step(self, theta: Tensor, delta: Tensor, state: Any) -> tuple[Tensor, list[Tensor]]:
        return theta - delta * state[0], [1 - state[0]]


@dataclass(frozen=True)
class Second:
    """Divides by nothing in the second round."""

    slots: int = 1

    def start(self, theta: Tensor) -> list[Tensor]:
        return [torch.ones_like(theta)]

    def step(self, theta: Tensor, delta: Tensor, state: Any) -> tuple[Tensor, list[Tensor]]:
        return theta - delta / state[0], [state[0] - 1]


def of_all(deltas: Any, present: Any, sent: Any) -> Tensor:
    """A mean that takes absent shards for present ones."""
    return sum(deltas[1:], deltas[0]) / len(deltas)


def said(outer: Algorithm, min_shards: int = 2) -> list[str]:
    """Output of the rehearsal for a linear model by this algorithm."""
    text = own_template("mine.py:build", batch=8, rounds=4, times=LOCAL, optimiser="sgd", precision="single")
    text = by_own_algorithm(text)
    for key, value in (
        ("steps_per_round", "4"),
        ("segment_steps", "4"),
        ("shards", "3"),
        ("min_shards", str(min_shards)),
    ):
        text = stated(text, f"training.{key}", value)
    text = stated(text, "money.solver_stake", '"880tok"')
    torch.manual_seed(0)
    own = Recipe(nn.Linear(64, 10), cross_entropy, digits(), outer=outer)
    body = parse_job_file(text, "a test")
    files = build(body, own)
    return own_warnings(files, drafted(body, files), body.training.seed)


@pytest.mark.long
def test_what_goes_where_training_went_is_no_warning() -> None:
    assert said(Algorithm(Plain(-0.5))) == []
    assert said(Algorithm(Nesterov(0.7, 0.9), Bins(4, 64), feedback=1.0)) == []
    assert said(Algorithm(Plain(-0.5), late=1)) == []


@pytest.mark.parametrize("late", [0, 1])
def test_a_rule_with_the_wrong_sign_is_told(late: int) -> None:
    (line,) = said(Algorithm(Plain(0.5), late=late))
    assert "moves parameters against what training changed, in 3 rounds rehearsed" in line


@pytest.mark.long
def test_a_mean_that_counts_an_absent_shard_is_told() -> None:
    (line,) = said(Algorithm(Plain(-0.5), mean=of_all))
    assert line.startswith("with one shard absent the outer step of your own goes elsewhere")
    assert said(Algorithm(Plain(-0.5), mean=of_all), min_shards=3) == [], "then no shard is ever absent"
    for mean in (lambda deltas, *_: deltas[0], lambda deltas, *_: (deltas[0] + deltas[1]) / 2):
        (line,) = said(Algorithm(Plain(-0.5), mean=mean))
        assert line.startswith("with one shard absent"), "it reads some of the shards alone"
    (line,) = said(Algorithm(EverySecond(), mean=of_all))
    assert line.startswith("with one shard absent"), "seen in the round that moves"


def test_a_rule_that_moves_nothing_is_told() -> None:
    (line,) = said(Algorithm(Plain(0.0)))
    assert "moves no parameter in 3 rounds rehearsed" in line


def test_numbers_that_cease_to_be_finite_are_told_with_their_round() -> None:
    (line,) = said(Algorithm(Second()))
    assert line.startswith("after the outer step of round 2 of 3 rehearsed ")
    assert "Inf or NaN" in line
