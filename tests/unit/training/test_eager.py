"""Eager updates as a market's round: the paper's equations in float64, and a lie about what is sent."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from assay.node.findings import WrongSegment
from assay.program.execute import Executor, StepContext
from assay.program.fault import NodeFault
from assay.protocol.types import Kind
from assay.training.algorithms import Algorithm, Nesterov
from assay.training.eager import eager_programs
from drills.orders import Plan
from drills.solvers import FaultySolver
from tests.fakes.jobs import recipe_files
from tests.fakes.market_day import MarketDay
from tests.unit.training.test_catalogue import fallen

CONTEXT = StepContext(None, bytes(32), 0, 0)
SHAPES = [(4, 3), (5,)]
SHARDS, ROUNDS = 3, 7


def randoms(seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(s, generator=generator) for s in SHAPES]


def doubles(tensors: list[Tensor]) -> list[np.ndarray]:
    return [x.double().numpy() for x in tensors]


@pytest.mark.parametrize("away", [set(), {(3, 1)}])
def test_rounds_follow_the_papers_equations(away: set[tuple[int, int]]) -> None:
    """Seven rounds of three shards, each drawn to an optimum of its own: Δ̃ᵢ = Δ̄′ + (Δᵢ − Δ′ᵢ)/M, Nesterov.
    The outer claim's θ follows Δ̄; who was away begins from it, as if M·Δ̄′ had been its own."""
    made = eager_programs(Algorithm(Nesterov(0.4, 0.8)), SHAPES, SHARDS)
    rejoin, send, outer = (Executor(p) for p in (made.rejoin, made.send, made.outer))
    blank = [torch.zeros_like(t) for wire in made.wires for t in wire]
    zeros, start, optima = [torch.zeros(s) for s in SHAPES], randoms(50), [randoms(k) for k in range(SHARDS)]
    count = len(SHAPES)
    own = [[*start, *zeros, *zeros] for _ in range(SHARDS)]
    common = [*start, *zeros, *zeros]
    theta = [doubles(start) for _ in range(SHARDS)]
    moment, sent_before = ([doubles(zeros) for _ in range(SHARDS)] for _ in range(2))
    mean, world, pace = doubles(zeros), doubles(start), doubles(zeros)
    for at in range(ROUNDS):
        changes: dict[int, list[np.ndarray]] = {}
        wires = [list(blank) for _ in range(SHARDS)]
        for k in range(SHARDS):
            if (at, k) in away:
                continue
            back = (at - 1, k) in away
            begun = rejoin.step([*own[k][:count], *own[k], *common, torch.tensor(not back)], CONTEXT)
            params, own[k] = list(begun[:count]), list(begun[count : 4 * count])
            if back:
                theta[k], moment[k] = list(world), list(pace)
                sent_before[k] = [SHARDS * x for x in mean]
            local = [p - 0.3 * (p - o) for p, o in zip(params, optima[k], strict=True)]
            after = send.step([*local, *own[k], *common[-count:], *blank], CONTEXT)
            own[k], wires[k] = list(after[count : 4 * count]), list(after[5 * count :])
            changes[k] = [0.3 * (t - o) for t, o in zip(theta[k], doubles(optima[k]), strict=True)]
            for i in range(count):
                eager = mean[i] + (changes[k][i] - sent_before[k][i]) / SHARDS
                moment[k][i] = 0.8 * moment[k][i] + eager
                theta[k][i] = theta[k][i] - 0.4 * (eager + 0.8 * moment[k][i])
                assert np.allclose(own[k][i].double().numpy(), theta[k][i], atol=2e-5), (at, k, i)
                assert torch.equal(after[i], own[k][i]), "the next round trains from it"
            sent_before[k] = changes[k]
        there = [torch.tensor((at, k) not in away) for k in range(SHARDS)]
        common = list(outer.step([*common, *(t for w in wires for t in w), *there], CONTEXT)[: 3 * count])
        mean = [sum((c[i] for c in changes.values()), np.zeros(())) / len(changes) for i in range(count)]
        for i in range(count):
            pace[i] = 0.8 * pace[i] + mean[i]
            world[i] = world[i] - 0.4 * (mean[i] + 0.8 * pace[i])
            assert np.allclose(common[i].double().numpy(), world[i], atol=2e-5), (at, i)
            assert np.allclose(common[2 * count + i].double().numpy(), mean[i], atol=2e-5)
    assert not all(np.allclose(theta[0][i], theta[1][i], atol=1e-3) for i in range(count)), "each has its own"


def test_one_bit_of_the_loop_after_training_is_convicted(day: MarketDay) -> None:
    """Also what nobody but the shard itself ever reads: what it has sent."""
    files = recipe_files("eager")
    fault = NodeFault(0, files.tasks[2].outputs[files.slot_names.index("own.change.w")], 1)
    finding, view = fallen(day, partial(FaultySolver, plan=Plan(0, 0, fault, loop=2)), 1, "eager")
    assert (view.claim.kind, view.claim.round) == (Kind.TASK, 0)
    assert isinstance(finding, WrongSegment) and finding.segment == 5
