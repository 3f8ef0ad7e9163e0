"""Error feedback, absent shards and lying shards in an algorithm's programs, on a quadratic.

Its equations: ``test_algorithms_on_a_gpt``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from assay.job.wire_size import file_bytes
from assay.numerics.packed_size import HEADER_BYTES
from assay.program.execute import Executor, StepContext
from assay.training import algorithms
from assay.training.algorithms import Algorithm, MedianNorm, OuterSgd
from assay.training.catalogue import RECIPES
from assay.training.codings import Largest
from assay.training.rounds import programs

CONTEXT = StepContext(None, bytes(32), 0, 0)
SHARDS = 4


@dataclass
class Run:
    """An algorithm's programs between rounds."""

    algorithm: Algorithm
    theta: list[Tensor]

    def __post_init__(self) -> None:
        made = programs(self.algorithm, [tuple(p.shape) for p in self.theta], SHARDS)
        self.compress, self.outer = Executor(made.compress), Executor(made.outer)
        self.wires = [t for wire in made.wires for t in wire]
        self.state = [x for p in self.theta for x in self.algorithm.rule.start(p)]
        fed = self.algorithm.feedback is not None
        self.residuals = [[torch.zeros_like(p) for p in self.theta] if fed else [] for _ in range(SHARDS)]

    def round(self, local: Sequence[Sequence[Tensor]], present: Sequence[bool]) -> None:
        """One round from every shard's θ and presence. An absent shard's wire is spoiled."""
        sent: list[Tensor] = []
        for k, params in enumerate(local):
            if not present[k]:
                spoil = [torch.full_like(t, float("nan")) if t.is_floating_point() else t for t in self.wires]
                sent += spoil
                continue
            given = [*self.theta, *params, *self.residuals[k], *self.wires]
            after = self.compress.step(given, CONTEXT)[2 * len(self.theta) :]
            self.residuals[k] = after[: len(self.residuals[k])]
            sent += after[len(self.residuals[k]) :]
        here = [torch.tensor(p) for p in present]
        made = self.outer.step([*self.theta, *self.state, *sent, *here], CONTEXT)
        count = len(self.theta)
        self.theta, self.state = made[:count], made[count : count + len(self.state)]


SHAPES = [(6, 20), (9,)]


def quadratic(seed: int = 3) -> tuple[list[Tensor], Callable[[Sequence[Tensor], int], list[Tensor]], Tensor]:
    """Genesis; shard k's θ after four steps towards its own optimum; the mean of all optima."""
    generator = torch.Generator().manual_seed(seed)
    optimum = [torch.randn(s, generator=generator) for s in SHAPES]
    own = [[o + 0.1 * torch.randn(o.shape, generator=generator) for o in optimum] for _ in range(SHARDS)]

    def trained(theta: Sequence[Tensor], k: int) -> list[Tensor]:
        made = [t.clone() for t in theta]
        for _ in range(4):
            made = [p - 0.05 * (p - o) for p, o in zip(made, own[k], strict=True)]
        return made

    middle = torch.cat([torch.stack([o[i] for o in own]).mean(0).flatten() for i in range(len(SHAPES))])
    return [torch.zeros(s) for s in SHAPES], trained, middle


@pytest.mark.parametrize("name", ["diloco-u8", "diloco-4bit", "diloco-int4", "diloco-2bit"])
def test_error_feedback_loses_nothing(name: str) -> None:
    """The sent and the retained parts add up to all changes."""
    algorithm = replace(RECIPES[name], rule=OuterSgd(1.0))
    run = Run(algorithm, [torch.zeros(10, 20)])
    generator = torch.Generator().manual_seed(1)
    total = torch.zeros(10, 20)
    for _ in range(5):
        change = torch.randn(10, 20, generator=generator)
        total += change
        run.round([[run.theta[0] - change]] * SHARDS, [True] * SHARDS)
    assert torch.allclose(-run.theta[0] + run.residuals[0][0], total, atol=1e-4)
    assert run.residuals[0][0].norm() > 0.01, "something was held back"


@pytest.mark.long
def test_an_absent_shard_keeps_its_residual_and_moves_nothing() -> None:
    run, other = (Run(RECIPES["diloco-4bit"], [torch.zeros(64)]) for _ in range(2))
    local = [[torch.linspace(-1, 1, 64) * (k + 1)] for k in range(SHARDS)]
    run.round(local, [True, False, True, True])
    spoiled = [local[0], [torch.full((64,), 7.0)], *local[2:]]
    other.round(spoiled, [True, False, True, True])
    assert torch.equal(run.theta[0], other.theta[0]) and run.theta[0].isfinite().all()
    assert not run.residuals[1][0].any()
    before = [t.clone() for t in run.theta]
    run.round(local, [False] * SHARDS)
    assert torch.equal(run.state[0] * 0 + before[0], before[0]), "no division by nobody"


def test_sparse_wires_are_divided_by_those_who_sent_the_place() -> None:
    algorithm = Algorithm(OuterSgd(1.0), Largest(1, 2, cosine=False))
    run = Run(algorithm, [torch.zeros(4)])
    local = [[-torch.tensor(v)] for v in ([8.0, 1, 1, 1], [4.0, 1, 1, 1], [1.0, 1, 6, 1], [1.0, 1, 1, 0])]
    run.round(local, [True] * SHARDS)
    assert torch.allclose(run.theta[0], torch.tensor([-13 / 3, 0.0, -6.0, 0.0]))


def test_bits_on_the_wire() -> None:
    n = 1 << 20
    sent = {name: recipe.coding.bits((1024, 1024)) for name, recipe in RECIPES.items()}
    assert sent["diloco"] == 32 * n and sent["diloco-4bit"] == sent["diloco-int4"]
    assert 7 < 32 * n / sent["diloco-4bit"] < 8
    assert sent["sparseloco"] < n // 4
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(1))
    for name, recipe in RECIPES.items():
        wire = recipe.coding.encode(x)
        stored = sum(map(file_bytes, wire))
        assert 0 <= 8 * stored - recipe.coding.bits(x.shape) <= 8 * HEADER_BYTES * len(wire), name


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_a_third_that_is_far_longer_turns_no_parameter_round(size: float) -> None:
    """Ten times the change, the wrong way: a plain mean follows them, whatever a change's size."""
    generator = torch.Generator().manual_seed(1)
    way = torch.randn(64, generator=generator) * size
    honest = [way + torch.randn(64, generator=generator) * size / 4 for _ in range(4)]
    deltas, here = [*honest, -10 * way, -10 * way], [torch.tensor(True)] * 6
    assert algorithms.Average()(deltas, here, [None] * 6) @ way < 0
    found = MedianNorm()(deltas, here, [None] * 6)
    assert (found @ way) / (way @ way) > 0.2
