"""Every named algorithm on a small GPT, with a shard away in one round, against its paper's equations.

The rounds are the lowered programs of ``training.catalogue``, and each input slot comes from its protocol
link's source; only training is a function. ``papers.Paper`` computes the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from assay.program.build import ProgramBuilder
from assay.program.execute import Executor, StepContext
from assay.program.isa import DType
from assay.protocol.loops import FromClaim, FromGenesis, Place, round_shape, source_of
from assay.protocol.types import Kind, Loop
from assay.training import algorithms
from assay.training.algorithms import Algorithm
from assay.training.catalogue import CATALOGUE
from assay.training.job import made_round
from assay.training.optimisers import Muon, orthogonalised
from tests.fakes.jobs import account
from tests.fakes.terms import some_terms
from tests.marked import only
from tests.unit.training.papers import (
    GENESIS,
    MOVING,
    ROWS,
    Array,
    Paper,
    batch,
    gradients,
    loss_of,
    muon64,
    optimiser_of,
    rule_of,
    steps_of,
)

CONTEXT = StepContext(None, bytes(32), 0, 0)
ROUNDS, AWAY, LOST = 5, 2, 1
"""In round AWAY shard LOST is not there."""


class Market:
    """A job's rounds in one process: every input slot is from where its link says."""

    def __init__(self, name: str, shards: int) -> None:
        self.rule, self.shards, self.steps = optimiser_of(name), shards, steps_of(name)
        held = self.rule.genesis(dict(zip(MOVING, GENESIS, strict=True)))
        self.kept = list(held)
        b = ProgramBuilder()
        slots = [b.state(DType.F32, tuple(x.shape)) for x in (*GENESIS, *held.values())]
        stand_in = b.finish(slots, params=len(MOVING))
        rule = rule_of(name)
        names = [*MOVING, *(f"optimiser.{n}" for n in held)]
        self.job = made_round(name, stand_in, [*GENESIS, *held.values()], names, shards, rule)
        tasks, outers = (
            [Loop(p.root, len(p.nodes), 1, 1, 1) for p in x] for x in (self.job.tasks, self.job.outers)
        )
        shape = round_shape(tasks, outers, (self.job.links, self.job.outer_links), len(MOVING))
        self.terms = some_terms(shape, client=account("c"), shards=shards, rounds=ROUNDS)
        self.tasks = [None if i == self.job.main else Executor(p) for i, p in enumerate(self.job.tasks)]
        self.outer = Executor(self.job.outer)
        self.begun: dict[Place, list[Tensor]] = {}
        self.ended: dict[Place, list[Tensor]] = {}
        self.away: set[tuple[int, int]] = set()

    def input(self, place: Place) -> list[Tensor]:
        kind, at, unit = place
        genesis = self.job.genesis if kind == Kind.TASK else self.job.outer_genesis
        found = []
        for slot in range(len(genesis)):
            source = source_of(self.terms, kind, at, unit, slot, lambda r, k: (r, k) not in self.away)
            if isinstance(source, FromClaim):
                found.append(self.ended[source.place][source.slot])
            else:
                found.append(genesis[slot] if isinstance(source, FromGenesis) else torch.tensor(source.value))
        return found

    def round(self, at: int, here: Sequence[int]) -> None:
        self.away |= {(at, k) for k in range(self.shards) if k not in here}
        for k in here:
            place = Kind.TASK, at, k
            state = self.begun[place] = self.input(place)
            for run in self.tasks:
                state = self.trained(state, at, k) if run is None else run.step(state, CONTEXT)
            self.ended[place] = list(state)
        place = Kind.OUTER, at, 0
        self.ended[place] = self.outer.step(self.input(place), CONTEXT)

    def trained(self, state: Sequence[Tensor], at: int, shard: int) -> list[Tensor]:
        count, width = len(MOVING), len(self.kept)
        params = dict(zip(MOVING, state, strict=False))
        held = dict(zip(self.kept, state[count : count + width], strict=True))
        for step in range(self.steps):
            grads = gradients(list(params.values()), batch(at, shard, step))
            params, held = self.rule.update(params, dict(zip(MOVING, grads, strict=True)), held)
        return [*params.values(), *(held[n] for n in self.kept), *state[count + width :]]

    def slots(self, at: int, shard: int, prefix: str) -> list[Tensor]:
        """Slots of a task's output by how their names begin."""
        state = self.ended[Kind.TASK, at, shard]
        return [x for n, x in zip(self.job.slot_names, state, strict=True) if n.startswith(prefix)]


def apart(got: Sequence[Tensor], want: Sequence[Array], scale: Sequence[Array]) -> float:
    """The largest error of a tensor's norm as a share of its scale's."""
    errors = [np.linalg.norm(x.double().numpy() - y) for x, y in zip(got, want, strict=True)]
    return max(
        (float(e / (np.linalg.norm(s) + 1e-9)) for e, s in zip(errors, scale, strict=True)), default=0.0
    )


PRODUCTS = ("demo",)
"""Codings of matrix products, which keep 14 bits (docs/arithmetic.md); all else is f32."""
QUICK = ("diloco", "fedopt", "diloco-4bit", "sparseloco", "streaming")
"""Kinds of rule, coding and round; the others are long."""


@pytest.mark.parametrize("name", only(QUICK, CATALOGUE))
def test_rounds_on_a_gpt_follow_the_papers_equations(name: str) -> None:
    """Errors as shares of how far a tensor has moved: f32 leaves 5e-4 of it at most, 14 bits a hundredth."""
    shards = 3
    market, paper = Market(name, shards), Paper(name, shards)
    near = 1e-2 if name in PRODUCTS else 5e-4
    count, start, theta = len(MOVING), paper.past[0], GENESIS
    for at in range(ROUNDS):
        here = [k for k in range(shards) if (at, k) != (AWAY, LOST)]
        market.round(at, here)
        before, state = theta, market.ended[Kind.OUTER, at, 0]
        theta = state[:count]
        moved = [x - y for x, y in zip(theta, before, strict=True)]
        held = state[count : count + paper.algorithm.rule.slots * count]
        if at == 0:
            slope = gradients(before, ROWS)
            assert sum((m * g).sum() for m, g in zip(moved, slope, strict=True)) < 0, (
                "the first step is uphill"
            )
            first_state(paper.algorithm, moved, held)
        if at == AWAY + 1:
            kept_while_away(market)
        wires = {k: market.slots(at, k, "wire.") for k in here}
        paper.round(at, here, wires, [x.numpy() for x in moved])
        assert apart(theta, paper.past[-1], differences(paper.past[-1], start)) < near, f"θ of round {at}"
        kept = [x for own in paper.state for x in own]
        assert apart(held, kept, kept) < near, f"outer state of round {at}"
        for k in here:
            local = market.ended[Kind.TASK, at, k][:count]
            assert apart(local, paper.own[k], differences(paper.own[k], start)) < near, f"shard {k}, {at}"
            left = market.slots(at, k, "residual.")
            assert bool(left) == (paper.algorithm.feedback is not None)
            owed, of = paper.residuals[k][: len(left)], paper.changes[k][: len(left)]
            assert apart(left, owed, of) < 2 * near, f"residual of shard {k}, {at}"
    assert loss_of(theta, ROWS) < loss_of(GENESIS, ROWS) - 0.1, "nothing was learnt"


def kept_while_away(market: Market) -> None:
    """A shard that was away starts with exactly the bits of its own state that it left."""
    last, again = market.ended[Kind.TASK, AWAY - 1, LOST], market.begun[Kind.TASK, AWAY + 1, LOST]
    for slot, x, y in zip(market.job.slot_names, last, again, strict=True):
        if slot.startswith(("residual.", "optimiser.")):
            assert torch.equal(x, y), f"{slot} was lost while its shard was away"


def differences(x: Sequence[Array], y: Sequence[Array]) -> list[Array]:
    return [a - b for a, b in zip(x, y, strict=True)]


def first_state(a: Algorithm, moved: Sequence[Tensor], state: Sequence[Tensor]) -> None:
    """A rule's state after the first step, by that step's size: m = Δ, and not a share of it."""
    slots, rule = a.rule.slots, a.rule
    for i, step in enumerate(moved):
        own = [x.double() for x in state[i * slots : (i + 1) * slots]]
        if isinstance(rule, algorithms.Nesterov):
            change = -step.double() / (rule.lr * (1 + rule.momentum))
            assert torch.allclose(own[0], change, rtol=1e-3, atol=1e-6), "the first momentum"
        elif isinstance(rule, algorithms.DelayedNesterov):
            change = -step.double() / (rule.lr / rule.every)
            assert not own[0].any() and own[2] == 1, "momentum before its turn"
            assert torch.allclose(own[1], change, rtol=1e-3, atol=1e-6), "the first buffer"
        elif isinstance(rule, algorithms.OuterAdam):
            change = own[0] / (1 - rule.beta1)
            assert torch.allclose(own[1], (1 - rule.beta2) * change**2, rtol=1e-3), "the first moments"
            wanted = -rule.lr * own[0] / (own[1].sqrt() + rule.eps)
            assert torch.allclose(step.double(), wanted, rtol=1e-3, atol=1e-6), "without bias correction"


def test_a_round_of_data_parallel_is_one_step_on_the_joint_batch() -> None:
    """Of SGD in float64, on the rows of all, and in the round that a shard is away in, of those present."""
    market, theta = Market("data-parallel", 3), [p.double() for p in GENESIS]
    for at in range(ROUNDS):
        here = [k for k in range(3) if (at, k) != (AWAY, LOST)]
        market.round(at, here)
        joint = torch.cat([batch(at, k, 0) for k in here])
        theta = [p - 0.5 * g for p, g in zip(theta, gradients(theta, joint), strict=True)]
        want = [p.numpy() for p in theta]
        found = market.ended[Kind.OUTER, at, 0][: len(want)]
        assert apart(found, want, differences(want, [p.double().numpy() for p in GENESIS])) < 1e-4, at


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (16, 16), (48, 16), (8, 3, 2, 2)])
def test_muons_step_is_its_equations_in_float64(shape: tuple[int, ...]) -> None:
    """Four steps of momentum 0.95 with Nesterov's look ahead, orthogonalised, scaled; the default numbers."""
    generator = torch.Generator().manual_seed(len(shape) + shape[0])
    params = {"w": torch.randn(shape, generator=generator)}
    rule = Muon()
    state, want, m = rule.genesis(params), params["w"].double().numpy(), np.zeros(shape)
    for _ in range(4):
        gradient = torch.randn(shape, generator=generator)
        before = params["w"]
        params, state = rule.update(params, {"w": gradient}, state)
        g = gradient.double().numpy()
        m = 0.95 * m + g
        step = -0.02 * muon64((g + 0.95 * m).reshape(shape[0], -1)).reshape(shape)
        want = want + step
        assert apart([params["w"] - before], [step], [step]) < 1e-4
        assert apart([state["momentum.w"]], [m], [m]) < 1e-6
    assert apart([params["w"]], [want], [want]) < 1e-5


def test_the_steps_of_newton_and_schulz_keep_signs_and_directions() -> None:
    """A diagonal goes to the published polynomial of its numbers, five times, whichever side is longer."""
    x = torch.zeros(3, 5)
    x[[0, 1, 2], [0, 1, 2]] = torch.tensor([3.0, -2.0, 0.5])
    s = np.array([3.0, -2.0, 0.5]) / np.sqrt(13.25)
    for _ in range(5):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    for found in (orthogonalised(x), orthogonalised(x.t()).t()):
        assert np.allclose(found.diagonal().numpy(), s, atol=1e-5)
        assert found.norm().item() == pytest.approx(np.linalg.norm(s), abs=1e-5), "nothing off the diagonal"
