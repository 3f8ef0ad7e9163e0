"""GRPO through the market: the bits of the same programs in one process, and lies about play and learning."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.node.findings import WrongSegment
from assay.program.execute import Executor, StepContext
from assay.program.state import state_root
from assay.protocol.errors import Stop
from assay.protocol.types import JobId, Kind
from assay.training.actors import KNOWN, REWARD, ROLLOUT, Play, check_play, grpo_job
from assay.training.grpo import Shape
from assay.training.job import JobArtifacts
from assay.training.optimisers import AdamW
from assay.training.policy import Policy
from assay.training.verifiable import Addition, Brackets, Sorting, Verifiable
from drills.orders import AggregatePlan, WeightPlan
from drills.solvers import FaultySolver
from tests.fakes.market_day import MarketDay
from tests.fakes.staged import convicted, staffed

TASK, SHARDS, ROUNDS = Addition(1), 2, 2
PLAY = Play(TASK, Shape(1, 1, 8, TASK.length), 8, 4, 2, AdamW(lr=0.05, weight_decay=0.0, clip_norm=1.0))


@cache
def policy() -> Policy:
    return Policy(TASK, PLAY.shape, seed=2)


@cache
def theta() -> list[Tensor]:
    """Untrained: right once in 144 times, and with this seed in the last round."""
    return list(policy().params.values())


@cache
def files() -> JobArtifacts:
    return grpo_job(policy(), PLAY, theta(), shards=SHARDS, seed=18)


class Alone:
    """The rounds in one process, without loops, links or a market; `without`: (round, shard) that is away."""

    def __init__(self, without: frozenset[tuple[int, int]] = frozenset()) -> None:
        made = files()
        actor, learner = Executor(made.tasks[0]), Executor(made.outers[0])
        count, wire = len(policy().names) + 1, (made.slot_names.index(ROLLOUT), made.slot_names.index(KNOWN))
        self.roots: dict[tuple[Kind, int, int], bytes] = {}
        self.rollouts: list[list[Tensor]] = []
        state = list(made.outer_genesis)
        for round_ in range(ROUNDS):
            sent: list[Tensor] = []
            for shard in range(SHARDS):
                played = [*state[:count], *made.genesis[count:]]
                if (round_, shard) in without:
                    sent += [made.genesis[i] for i in wire]
                    continue
                for step in range(PLAY.steps):
                    context = StepContext(None, bytes(32), shard, round_ * PLAY.steps + step)
                    played = list(actor.step(played, context))
                self.roots[Kind.TASK, round_, shard] = state_root(played)
                sent += [played[i] for i in wire]
            self.rollouts.append(sent)
            there = [torch.tensor((round_, shard) not in without) for shard in range(SHARDS)]
            state = [*state[: len(state) - 3 * SHARDS], *sent, *there]
            for _ in range(PLAY.epochs):
                state = list(learner.step(state, StepContext(None, bytes(32), 0, round_)))
            self.roots[Kind.OUTER, round_, 0] = state_root(state)
        self.state = state


def day_of(folder: Path) -> tuple[MarketDay, JobId]:
    day = MarketDay(folder / "day")
    return day, day.post(files(), steps_per_round=PLAY.steps, segment_steps=1, rounds=ROUNDS)


@pytest.mark.long
def test_the_market_gives_the_bits_of_one_process(tmp_path: Path) -> None:
    day, job_id = day_of(tmp_path)
    staffed(day)
    assert day.run(day.closed(job_id)), day.events[-3:]
    alone, claims = Alone(), [e.claim for e in day.market_state.claims.values()]
    assert {(c.kind, c.round, c.shard): c.output_root for c in claims} == alone.roots
    found = day.fetch(job_id, tmp_path / "result")
    names = policy().names
    assert list(found) == [*names, REWARD]
    assert all(torch.equal(found[name], x) for name, x in zip(names, alone.state, strict=False))
    rewards = TASK.rewards(torch.cat(alone.rollouts[-1][::2]).float())
    assert found[REWARD].item() == rewards.mean().item()
    assert 0 < found[REWARD].item() < 1
    assert not any(torch.equal(found[name], x) for name, x in zip(names, theta(), strict=True))


@pytest.mark.long
def test_no_two_rollouts_are_alike() -> None:
    sent = [tokens for rollouts in Alone().rollouts for tokens in rollouts[::2]]
    assert len({x.numpy().tobytes() for x in sent}) == len(sent) == SHARDS * ROUNDS
    assert all((x[:, 1] == 10).all() and (x[:, 3] == 11).all() for x in sent), "one digit plus another"


@pytest.mark.long
def test_who_is_away_counts_neither_as_right_nor_as_wrong() -> None:
    """A learner's step without one actor is that of a learner with the other's rollouts twice."""
    made = files()
    learner = Executor(made.outers[0])
    sent = [TASK.drawn(PLAY.rows).to(torch.int32), torch.full((PLAY.rows, TASK.answer), -1.0)]
    sent[0][::2, -1] = (sent[0][::2, -1] + 1) % 10  # every second answer is wrong
    away = [torch.zeros_like(x) for x in sent]
    held = list(made.outer_genesis[: len(made.outer_genesis) - 3 * SHARDS])

    def after(wires: list[Tensor], there: tuple[bool, bool]) -> list[Tensor]:
        state = [*held, *wires, *(torch.tensor(x) for x in there)]
        return list(learner.step(state, StepContext(None, bytes(32), 0, 0)))

    one, both = after([*sent, *away], (True, False)), after([*sent, *sent], (True, True))
    reward = len(policy().names)
    assert one[reward].item() == both[reward].item() == 0.5
    for x, y in zip(one[:reward], both[:reward], strict=True):
        assert torch.allclose(x, y, rtol=0.0, atol=1e-6)  # seed 0: 1.5e-8; AdamW divides by small gradients
    assert any(not torch.equal(x, before) for x, before in zip(one[:reward], held, strict=False))


@cache
def files_of(task: Verifiable) -> JobArtifacts:
    """As `files`, of another task."""
    play = replace(PLAY, task=task, shape=Shape(1, 1, 8, task.length))
    untrained = Policy(task, play.shape, seed=2)
    return grpo_job(untrained, play, list(untrained.params.values()), shards=SHARDS, seed=18)


CHEATS = {
    "a token that the policy did not draw": (3, ROLLOUT, 4),
    "a log-probability that it has not": (4, KNOWN, 1),
    "a reward that nobody had": (0, REWARD, 0),
}
"""Step, slot and element."""


@pytest.mark.parametrize(
    "name", [name if "token" in name else pytest.param(name, marks=pytest.mark.slow) for name in CHEATS]
)
def test_a_lie_is_convicted(tmp_path: Path, name: str) -> None:
    segment, slot, element = CHEATS[name]
    at, kind = files().slot_names.index(slot), Kind.OUTER if slot == REWARD else Kind.TASK
    plan = AggregatePlan(at, element) if slot == REWARD else WeightPlan(0, segment, at, element)
    day, job_id = day_of(tmp_path)
    finding, view = convicted(day, job_id, partial(FaultySolver, plan=plan))
    assert isinstance(finding, WrongSegment) and finding.segment == segment
    assert view.claim.kind == kind


@pytest.mark.long
@pytest.mark.parametrize("task", [Sorting(2), Brackets(2, 2)], ids=str)
def test_a_token_that_was_not_drawn_is_convicted_for_every_task(tmp_path: Path, task: Verifiable) -> None:
    made, last = files_of(task), task.length - 2
    plan = WeightPlan(0, last, made.slot_names.index(ROLLOUT), task.prompt)
    day = MarketDay(tmp_path / "day")
    job_id = day.post(made, steps_per_round=task.length - 1, segment_steps=1, rounds=ROUNDS)
    finding, view = convicted(day, job_id, partial(FaultySolver, plan=plan))
    assert isinstance(finding, WrongSegment) and finding.segment == last
    assert view.claim.kind == Kind.TASK


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"rows": 9}, "no whole groups"),
        ({"group": 1}, "group of one"),
        ({"epochs": 9}, "more than 8 loops"),
        ({"shape": Shape(1, 3, 8, 6)}, "divide into the heads"),
        ({"task": Addition(4)}, "more than three digits"),
        ({"task": Sorting(1)}, "in order as it is"),
        ({"task": Brackets(3, 1)}, "all have the same answer"),
        ({"low": 1.5}, "clipped between"),
    ],
)
def test_what_cannot_be_played_is_refused(changes: dict[str, Any], why: str) -> None:
    check_play(PLAY, PLAY.steps)
    with pytest.raises(Stop, match=why):
        check_play(replace(PLAY, **changes), PLAY.steps)
    with pytest.raises(Stop, match="takes 5 steps"):
        check_play(PLAY, 6)
