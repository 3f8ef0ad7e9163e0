"""Streaming DiLoCo as a market's round: its paper's equations in float64, and a lie about a wire."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from assay.node.findings import WrongSegment
from assay.program.execute import Executor, StepContext
from assay.program.fault import NodeFault
from assay.protocol.errors import Stop
from assay.protocol.types import Kind
from assay.training.algorithms import Algorithm, Nesterov
from assay.training.codings import E3M0
from assay.training.outer import Overlap
from assay.training.streaming import stream_programs, streaming_of
from drills.orders import Plan
from drills.solvers import FaultySolver
from tests.fakes.jobs import recipe_files
from tests.fakes.market_day import MarketDay
from tests.marked import long
from tests.unit.training.test_catalogue import fallen

CONTEXT = StepContext(None, bytes(32), 0, 0)
SHAPES = [(4, 3), (5,), (2, 2)]
SHARDS, ROUNDS = 3, 9


NUMBERS = [
    Overlap(3, 1, 0.25),
    Overlap(3, 2, 0.75),
    Overlap(2, 1, 0.5),
    Overlap(2, 0, 0.0),
    Overlap(1, 0, 0.5),
]
"""Fragments, τ and α."""


def nearest(x: np.ndarray) -> np.ndarray:
    """4 bits a number with one scale, in float64."""
    scale = np.abs(x).max() or 1.0
    levels = np.array([0.0] + [2.0**-k for k in range(6, -1, -1)])
    return np.sign(x) * levels[np.abs(np.abs(x / scale)[..., None] - levels).argmin(-1)] * scale


def randoms(seed: int, scale: float = 1.0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [scale * torch.randn(s, generator=generator) for s in SHAPES]


@pytest.mark.parametrize("numbers", [NUMBERS[0], *map(long, NUMBERS[1:])], ids=str)
@pytest.mark.parametrize("coded", [False, True])
def test_rounds_follow_the_papers_equations(coded: bool, numbers: Overlap) -> None:
    """Nine rounds of three shards, one away in round 4.

    Δ = mean of θ(t − H) − θ_m of the present shards, for the fragment whose turn it is; Nesterov; τ rounds
    later θ_m ← α·θ_m + (1 − α)·θ; a shard that was away starts from θ.
    """
    made = streaming_of(SHAPES, Algorithm(Nesterov(0.4, 0.9)), numbers)
    if coded:
        made = replace(made, algorithm=Algorithm(Nesterov(0.4, 0.9), E3M0()))
    count, tau, alpha = made.steps, numbers.delay, numbers.alpha
    fragments = [next(p for p, members in enumerate(made.fragments) if i in members) for i in range(3)]
    assert set(fragments) == set(range(count)) and (count, made.delay) == (numbers.fragments, tau)
    traced = stream_programs(made, SHAPES, SHARDS)
    merge, compress, outer = (Executor(p) for p in (traced.merge, traced.compress, traced.outer))
    empty = [torch.zeros_like(t) for wire in traced.wires for t in wire]
    optima = [randoms(k) for k in range(SHARDS)]
    past, own = [randoms(50)] * (1 + tau), [randoms(50) for _ in range(SHARDS)]
    state, wires = [torch.zeros(s) for s in SHAPES], [list(empty) for _ in range(SHARDS)]
    theta = [[x.double().numpy() for x in randoms(50)]] * (1 + tau)  # after as many rounds
    local = [[x.double().numpy() for x in randoms(50)] for _ in range(SHARDS)]
    moments = [np.zeros(s) for s in SHAPES]
    changed = []
    for at in range(ROUNDS):
        away = {1} if at == 4 else set()
        base, done = past[0], torch.tensor(at, dtype=torch.int32)
        for k in set(range(SHARDS)) - away:
            here = torch.tensor(not (at == 5 and k == 1))
            began = merge.step([*own[k], *base, here, done], CONTEXT)[:3]
            own[k] = [p - 0.2 * (p - o) for p, o in zip(began, optima[k], strict=True)]
            wires[k] = compress.step([*base, *own[k], *wires[k], done], CONTEXT)[6:-1]
            for i in range(3):
                if at == 5 and k == 1:
                    local[k][i] = theta[0][i]
                elif at > tau and fragments[i] == (at - tau) % count:  # sent at the end of round at − τ − 1
                    local[k][i] = alpha * local[k][i] + (1 - alpha) * theta[0][i]
                local[k][i] = local[k][i] - 0.2 * (local[k][i] - optima[k][i].double().numpy())
                assert np.allclose(own[k][i].double().numpy(), local[k][i], atol=2e-5), (at, k, i)
        there = [torch.tensor(k not in away) for k in range(SHARDS)]
        sent = [t for wire in wires for t in wire]
        last = past[-1]
        after = outer.step([*last, *state, done, *sent, *there], CONTEXT)
        past, state, counted = [*past[1:], list(after[:3])], list(after[3:6]), after[6]
        assert int(counted) == at + 1
        now, turn = list(theta[-1]), [i for i in range(3) if fragments[i] == (at + 1) % count]
        for i in turn:
            deltas = [theta[0][i] - local[k][i] for k in range(SHARDS) if k not in away]
            mean = sum(map(nearest, deltas) if coded else deltas) / len(deltas)
            moments[i] = 0.9 * moments[i] + mean
            now[i] = now[i] - 0.4 * (mean + 0.9 * moments[i])
        theta = [*theta[1:], now]
        changed.append(turn)
        for i in range(3):
            assert np.allclose(past[-1][i].double().numpy(), now[i], atol=2e-5), (at, i)
            same = torch.equal(past[-1][i], last[i])
            assert same == (i not in turn), (
                "only the fragment whose turn it is moves, and the others keep all bits"
            )
    assert changed[:count] == changed[count : 2 * count]
    assert sorted(i for turn in changed[:count] for i in turn) == [0, 1, 2]


def test_fragments_have_about_as_many_elements_and_one_parameter_is_refused() -> None:
    made = streaming_of([(100,), (10,), (60,), (50,), (40,), (3,)])
    assert made.fragments == ((0,), (1, 4, 5), (2,), (3,)) and made.steps == 4
    with pytest.raises(Stop, match="one parameter"):
        streaming_of([(8,)])


def test_fragments_are_as_many_as_are_asked_for() -> None:
    shapes = [(100,), (10,), (60,), (50,), (40,), (3,)]
    two, six = (streaming_of(shapes, overlap=Overlap(count, 1, 0.25)) for count in (2, 6))
    assert two.fragments == ((0, 4), (1, 2, 3, 5)) and (two.steps, two.delay, two.alpha) == (2, 1, 0.25)
    assert six.fragments == tuple((i,) for i in range(6))
    assert streaming_of([(8,)], overlap=Overlap(1, 0)).fragments == ((0,),)
    assert streaming_of(shapes, overlap=Overlap()) == streaming_of(shapes), "the usual numbers"


@pytest.mark.parametrize(
    ("overlap", "why"),
    [
        (Overlap(7), "7 fragments are asked for, and each needs"),
        (Overlap(3, 3), "sent again after 3 rounds, and with an overlap of 3 rounds"),
        (Overlap(None, 4), "sent again after 4 rounds"),
        (Overlap(1), "sent again after 1 round, and with an overlap of 1 round its"),
    ],
)
def test_fragments_that_cannot_be_and_overlaps_of_a_whole_turn_are_refused(
    overlap: Overlap, why: str
) -> None:
    with pytest.raises(Stop, match=why):
        streaming_of([(2,)] * 6, overlap=overlap)


@pytest.mark.long
def test_one_bit_of_the_loop_after_training_is_convicted(day: MarketDay) -> None:
    files = recipe_files("streaming")
    fault = NodeFault(0, files.tasks[2].outputs[files.slot_names.index("wire.0")], 1)
    finding, view = fallen(day, partial(FaultySolver, plan=Plan(0, 0, fault, loop=2)), 1, "streaming")
    assert (view.claim.kind, view.claim.round) == (Kind.TASK, 0)
    assert isinstance(finding, WrongSegment) and finding.segment == 5
