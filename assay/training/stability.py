"""Checks whether outer steps with late changes and momentum overshoot.

Contract: the model is one number with optimum 0; a round covers the share c of the way from the θ it started
with, so its change is c·θ. The outer step is then a linear map, taken from the algorithm's own code; if its
spectral radius exceeds 1 the number grows from round to round. Without lateness Nesterov's usual 0.7 and 0.9
are stable for every c, with a change one round late up to c = 0.36 (measured: decision 0038). Not guaranteed:
anything about noise, codings, or losses that are not parabolas.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from assay.training.algorithms import DelayedNesterov, Rule
from assay.training.catalogue import CATALOGUE, algorithm_of
from assay.training.outer import DiLoCo, Overlap
from assay.training.streaming import FRAGMENTS, streaming_of

SHARES = [percent / 100 for percent in range(1, 101)]
ROUNDING = 1e-9
MOST_ROUNDS = 16
"""Maximum rounds of delayed Nesterov that are analysed as one."""

Round = Callable[[list[Tensor], float], list[Tensor]]
"""(numbers, c) → the numbers a round later."""


def covers_at_most(name: str, rule: DiLoCo, shards: int) -> float:
    """The largest share c, in steps of 0.01, up to which the round is stable.

    1.0 also if the map is not linear (Adam, signs, DeMo), is the client's own or does not exist, or momentum
    waits for more than `MOST_ROUNDS`: then nothing is known.
    """
    found = _round_of(name, rule, shards)
    if found is None:
        return 1.0
    advance, size = found
    grows = (c for c in SHARES if _radius(advance, size, c) > 1 + ROUNDING)
    return next(grows, 1.01) - 0.01


def steady_rate(name: str, rule: DiLoCo, shards: int) -> float:
    """The largest outer learning rate, in hundredths and at most the rule's own, that is stable for every c
    with the rule's momentum; 0.0 if there is none."""
    rates = range(1, math.floor(100 * rule.lr) + 1)

    def overshoots(percent: int) -> bool:
        return covers_at_most(name, replace(rule, lr=percent / 100), shards) < 1

    return bisect_left(rates, True, key=overshoots) / 100


def _round_of(name: str, rule: DiLoCo, shards: int) -> tuple[Round, int] | None:
    """The named algorithm's round on one number, and the size of its state."""
    if name not in CATALOGUE:
        return None
    algorithm, kind = algorithm_of(name, rule.lr, rule.momentum, rule.every), CATALOGUE[name].round
    if kind == "streaming":
        return _streaming(algorithm.rule, rule.overlap)
    if isinstance(algorithm.rule, DelayedNesterov) and rule.every <= MOST_ROUNDS:
        return _delayed(algorithm.rule)
    if not getattr(algorithm.rule, "linear", False):
        return None
    return _late(algorithm.rule, algorithm.late)


def _late(rule: Rule, late: int) -> tuple[Round, int]:
    """[θ, θ of as many earlier rounds as a change is late, the rule's state]."""

    def advance(x: list[Tensor], c: float) -> list[Tensor]:
        theta, state = rule.step(x[0], c * x[late], x[1 + late :])
        return [theta, *x[:late], *state]

    return advance, 1 + late + rule.slots


def _delayed(rule: DelayedNesterov) -> tuple[Round, int]:
    """[θ, the momentum], over one period, after which nothing is pending."""

    def advance(x: list[Tensor], c: float) -> list[Tensor]:
        theta, state = x[0], [x[1], torch.zeros_like(x[1]), torch.zeros((), dtype=torch.int32)]
        for _ in range(rule.every):
            theta, state = rule.step(theta, c * theta, state)
        return [theta, state[0]]

    return advance, 2


def _streaming(rule: Rule, overlap: Overlap) -> tuple[Round, int]:
    """[θ of a fragment, the shards' own value just after mixing, the rule's state]; c covers the time between
    two sends.

    Without a number of fragments it takes as many as most models have.
    """
    streaming = streaming_of([()] * (overlap.fragments or FRAGMENTS), overlap=overlap)
    after = streaming.delay / len(streaming.fragments)

    def advance(x: list[Tensor], c: float) -> list[Tensor]:
        sent = x[1] * (1 - c) ** (1 - after)
        theta, state = rule.step(x[0], x[0] - sent, x[2:])
        return [theta, streaming.mixed(theta, sent * (1 - c) ** after), *state]

    return advance, 2 + rule.slots


def _radius(advance: Round, size: int, c: float) -> float:
    """Spectral radius of a linear round."""
    columns = [torch.stack(advance(list(unit), c)) for unit in torch.eye(size, dtype=torch.float64)]
    return float(torch.linalg.eigvals(torch.stack(columns, 1)).abs().max())
