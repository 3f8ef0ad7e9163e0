"""Where outer steps overshoot: found from an algorithm's code, compared with rounds that are played."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from assay.training.outer import DiLoCo, Overlap
from assay.training.stability import covers_at_most, steady_rate

ROUNDS = 3000


def late(c: float, lr: float, momentum: float, by: int) -> float:
    """The greatest number of the last rounds, by the equations: m = µm + Δ, θ −= lr·(Δ + µm)."""
    thetas, m = [1.0] * (by + 1), 0.0
    for _ in range(ROUNDS):
        delta = c * thetas[-1 - by]
        m = momentum * m + delta
        thetas.append(thetas[-1] - lr * (delta + momentum * m))
    return max(map(abs, thetas[-100:]))


def delayed(c: float, lr: float, momentum: float, every: int) -> float:
    """Momentum after every so many rounds: m = µm + B/N, θ −= lr·(Δ/N + µm), B the sum of the changes."""
    theta, m, changes, last = 1.0, 0.0, list[float](), list[float]()
    for _ in range(ROUNDS):
        changes.append(c * theta)
        theta -= lr * changes[-1] / every
        if len(changes) == every:
            m = momentum * m + sum(changes) / every
            theta -= lr * momentum * m
            changes = []
        last.append(abs(theta))
    return max(last[-100:])


PLAYED: dict[str, Callable[[float, float, float], float]] = {
    "diloco": partial(late, by=0),
    "diloco-late": partial(late, by=1),
}


@pytest.mark.parametrize(("every", "lr"), [(1, 0.7), (1, 1.5), (2, 1.4), (4, 2.8), (4, 5.0), (4, 9.0)])
def test_delayed_momentum_is_looked_at_over_its_rounds(every: int, lr: float) -> None:
    covered = covers_at_most("delayed-nesterov", DiLoCo(lr, 0.9, every), 2)
    assert delayed(covered, lr, 0.9, every) <= 2
    assert (covered < 1) == (lr in (1.5, 9.0))
    if covered < 1:
        assert delayed(covered + 0.02, lr, 0.9, every) > 100
    assert covers_at_most("delayed-nesterov", DiLoCo(100.0, 0.9, 1000), 2) == 1, "of so many nothing is said"


@pytest.mark.parametrize("name", PLAYED)
@pytest.mark.parametrize(("lr", "momentum"), [(0.7, 0.9), (0.4, 0.9), (0.7, 0.6)])
def test_what_is_said_to_hold_comes_to_rest_and_what_is_not_grows(
    name: str, lr: float, momentum: float
) -> None:
    covered = covers_at_most(name, DiLoCo(lr, momentum), 4)
    assert PLAYED[name](covered, lr, momentum) <= 2
    if covered < 1:
        assert PLAYED[name](covered + 0.02, lr, momentum) > 100


def streamed(c: float, lr: float, momentum: float, said: Overlap) -> float:
    """A fragment of shards that are all alike, which cover c of the way in the `fragments` rounds between two
    times that it is sent: they go on for `delay` of these before they mix in what came of it."""
    count, left = said.fragments or 4, 1 - c
    theta, own, m, last = 1.0, 1.0, 0.0, list[float]()
    for _ in range(ROUNDS):
        own *= left ** ((count - said.delay) / count)
        delta = theta - own
        m = momentum * m + delta
        theta -= lr * (delta + momentum * m)
        own = said.alpha * own * left ** (said.delay / count) + (1 - said.alpha) * theta
        last.append(abs(theta))
    return max(last[-100:])


@pytest.mark.parametrize(
    ("said", "lr", "covered"),
    [
        (Overlap(), 1.6, 0.76),
        (Overlap(4, 1, 0.5), 1.6, 0.76),
        (Overlap(4, 0, 0.0), 1.6, 0.84),
        (Overlap(4, 3, 0.0), 2.0, 0.98),
        (Overlap(4, 1, 0.9), 1.3, 1.0),
    ],
)
def test_streamings_own_numbers_say_how_far_a_round_may_come(
    said: Overlap, lr: float, covered: float
) -> None:
    rule = DiLoCo(lr, 0.9, overlap=said)
    assert covers_at_most("streaming", rule, 4) == pytest.approx(covered)
    assert streamed(covered, lr, 0.9, said) <= 2
    if covered < 1:
        assert not streamed(covered + 0.02, lr, 0.9, said) <= 100, "it grows, or is no number any more"
        steady = steady_rate("streaming", rule, 4)
        assert 0 < steady < lr and covers_at_most("streaming", replace(rule, lr=steady), 4) == 1


def test_the_usual_rate_is_too_high_for_changes_that_come_late() -> None:
    usual = DiLoCo(0.7, 0.9)
    assert covers_at_most("diloco", usual, 4) == covers_at_most("streaming", usual, 4) == 1
    assert math.isclose(covers_at_most("diloco-late", usual, 4), 0.36)


@pytest.mark.parametrize("name", ["diloco-late"])
def test_the_steady_rate_is_the_largest_that_holds(name: str) -> None:
    rate = steady_rate(name, DiLoCo(0.7, 0.9), 4)
    assert 0 < rate < 0.7
    assert covers_at_most(name, DiLoCo(rate, 0.9), 4) == 1
    assert covers_at_most(name, DiLoCo(rate + 0.01, 0.9), 4) < 1


@pytest.mark.parametrize("name", ["fedopt", "demo", "evaluate", "own"])
def test_nothing_is_said_of_rules_that_are_not_linear(name: str) -> None:
    assert covers_at_most(name, DiLoCo(9.0, 0.0), 4) == 1
