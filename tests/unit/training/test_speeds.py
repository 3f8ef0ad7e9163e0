"""Groups of different speed under delayed Nesterov.

Its paper's server in float64, its bits through the market, cheats in a slow shard and about which is slow.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from assay.compute.node_calls import NodeCalls
from assay.node.artifacts import LoadedJob
from assay.node.engine import Engine
from assay.node.findings import WrongSegment
from assay.node.work import Work
from assay.program.execute import Executor, StepContext
from assay.protocol.errors import Stop
from assay.protocol.types import Kind
from assay.training.algorithms import DelayedNesterov, Nesterov
from assay.training.catalogue import RECIPES, algorithm_of
from assay.training.checks import check_speeds
from assay.training.rounds import programs
from drills.orders import CheatSpec, WeightPlan
from drills.solvers import CheatingSolver, FaultySolver
from tests.fakes.alone import recipe_alone
from tests.fakes.jobs import RULES, recipe_files
from tests.fakes.market_day import MarketDay
from tests.fakes.staged import convicted, roots_of, staffed

CONTEXT = StepContext(None, bytes(32), 0, 0)
SLOW = (1, 2)
"""The second of two shards takes half as many steps."""


def server(theta: np.ndarray, changes: list[np.ndarray], size: int, lr: float, beta: float) -> np.ndarray:
    """Algorithm 3 of Liu and others (c = 0), to which changes come one by one, `size` of them to a buffer."""
    moment, buffer = np.zeros_like(theta), np.zeros_like(theta)
    for t, g in enumerate(changes):
        buffer = buffer + g
        if (t + 1) % size == 0:
            moment, buffer = beta * moment + buffer / size, np.zeros_like(buffer)
            theta = theta - lr * (beta * moment + g / size)
        else:
            theta = theta - lr * g / size
    return theta


@pytest.mark.parametrize("every", [1, 2, 3])
def test_rounds_are_the_papers_server_to_which_all_changes_of_a_round_come(every: int) -> None:
    """Four shards on a quadratic, of which two take a quarter of the steps: six rounds of the outer program
    are 24 arrivals at the paper's server whose buffer holds `every` rounds' worth."""
    shards, dim, rng = 4, 5, np.random.default_rng(1)
    optima = rng.normal(size=(shards, dim))
    algorithm = algorithm_of("delayed-nesterov", 0.7, 0.9, every)
    outer = Executor(programs(algorithm, [(dim,)], shards).outer)
    theta = torch.zeros(dim)
    state, here = algorithm.rule.start(theta), [torch.tensor(True)] * shards
    arrived: list[np.ndarray] = []
    for round_ in range(6):
        changes = []
        for k in range(shards):
            local = theta.double().numpy()
            for _ in range(8 if k < 2 else 2):
                local = local - 0.1 * (local - optima[k])
            changes.append(theta.double().numpy() - local)
        arrived += changes
        sent = [torch.tensor(g, dtype=torch.float32) for g in changes]
        theta, *state = outer.step([theta, *state, *sent, *here], CONTEXT)[:4]
        expected = server(np.zeros(dim), arrived, every * shards, 0.7, 0.9)
        assert np.allclose(theta.double().numpy(), expected, atol=2e-6), round_
        assert bool(state[0].any()) == (round_ + 1 >= every), "the momentum waits for its rounds"
        assert bool(state[1].any()) == ((round_ + 1) % every != 0) and int(state[2]) == round_ + 1


def test_a_buffer_of_one_round_is_nesterovs_momentum_bit_for_bit() -> None:
    generator = torch.Generator().manual_seed(2)
    late, plain = DelayedNesterov(0.7, 0.9, 1), Nesterov(0.7, 0.9)
    x = y = torch.randn(50, generator=generator)
    state, kept = late.start(x), plain.start(y)
    for _ in range(5):
        delta = torch.randn(50, generator=generator)
        x, state = late.step(x, delta, state)
        y, kept = plain.step(y, delta, kept)
        assert torch.equal(x, y) and torch.equal(state[0], kept[0])
    assert RECIPES["delayed-nesterov"].rule == DelayedNesterov(0.7, 0.9, 4)


def test_speeds_that_do_not_fit_are_refused_with_the_reason() -> None:
    check_speeds(1, 4, 2, 4)
    with pytest.raises(Stop, match="covers all 2 shards"):
        check_speeds(2, 2, 2, 4)
    with pytest.raises(Stop, match="cannot be divided by 3"):
        check_speeds(1, 3, 2, 4)
    with pytest.raises(Stop, match="a segment is already one step") as refused:
        check_speeds(1, 2, 2, 1)
    assert "leave [speeds] out" in refused.value.hint


@pytest.mark.long
def test_the_market_gives_its_bits_with_a_slow_shard(day: MarketDay, tmp_path: Path) -> None:
    """Four rounds, two moves of the momentum; the slow shard's task has as many segments, each half as
    long."""
    job_id = day.post(recipe_files("delayed-nesterov"), rounds=4, slow=SLOW)
    terms = day.market_state.jobs[job_id].view.terms
    assert [terms.main.of(k).steps for k in range(2)] == [8, 4]
    staffed(day)
    assert day.run(day.closed(job_id)), day.events[-3:]
    assert not day.market_state.games
    rule = RULES["delayed-nesterov"]
    algorithm = algorithm_of("delayed-nesterov", rule.lr, rule.momentum, rule.every)
    expected = recipe_alone(algorithm, terms.seed, 4, slow=SLOW)
    assert roots_of(day) == expected.roots
    assert torch.equal(day.fetch(job_id, tmp_path / "model")["w"], expected.theta[0])
    alike = recipe_alone(algorithm, terms.seed, 4)
    assert not torch.equal(alike.theta[0], expected.theta[0]), "its speed was felt"


def test_a_solver_takes_shards_of_its_operators_speed(day: MarketDay) -> None:
    """Ann takes the slow shard if she may, and otherwise the fast one. A solver of fast shards only says
    why it leaves a slow one. If all are alike, the speed does not matter."""
    ann = day.solver("ann", slow=False)
    job_id = day.post(recipe_files("delayed-nesterov"), rounds=1, slow=SLOW)
    plain = day.post(nonce=2, rounds=1)
    reason = "this solver already holds its 1 shard(s)"
    assert day.run(lambda: ann.why(job_id) == reason), ann.why(job_id)
    day.solver("bob", slow=True)
    day.verifiers()
    assert day.run(lambda: day.closed(job_id)() and day.closed(plain)()), day.events[-3:]
    took = {(e["job"], e["address"]): e["shard"] for e in day.named("took")}
    assert [took[job_id.hex(), day.address(name)] for name in ("ann", "bob")] == [0, 1]


def test_a_cheat_in_a_slow_shard_is_convicted(day: MarketDay) -> None:
    """One weight at the third of the slow shard's four steps: its segments are one step each, so the
    fault is in its third; in a fast shard it would be in the second."""
    job_id = day.post(recipe_files("delayed-nesterov"), rounds=2, slow=SLOW)
    plan = WeightPlan(round=0, step=2, slot=0, element=3)
    finding, view = convicted(day, job_id, partial(FaultySolver, plan=plan))
    assert isinstance(finding, WrongSegment)
    assert view.claim.shard == 1 and finding.segment == 2


class LoafingSpec(CheatSpec):
    """Every shard is run at the slow ones' speed."""

    def make_work(self, files: LoadedJob, engine: Engine, desk: NodeCalls) -> Work:
        slow = tuple(replace(loop, slow_from=0) for loop in self.terms.loops)
        desk.books.told("fault-planted", {"plan": "half of a fast shard's steps"})
        return Work(replace(self.terms, loops=slow), files, engine=engine)


class Loafer(CheatingSolver):
    kind = LoafingSpec


@pytest.mark.long
def test_a_fast_shard_that_takes_a_slow_ones_steps_is_convicted(day: MarketDay) -> None:
    job_id = day.post(recipe_files("delayed-nesterov", 1), rounds=2, shards=1, slow=SLOW)
    finding, view = convicted(day, job_id, Loafer)
    assert (view.claim.kind, view.claim.shard) == (Kind.TASK, 0)
    assert isinstance(finding, WrongSegment) and finding.segment == 0
