"""A parameter without a gradient, a diverging one and a rising loss are reported while the job runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from assay.app.job_progress import progress_table
from assay.client.following import Following, follow
from assay.client.job_events import JobEventKind, events_between
from assay.client.losses import losses_of
from assay.client.warnings import DEAD_STEPS, Movement, dead, is_still, warnings_of
from assay.node.artifacts import load_job
from assay.training.optimisers import OPTIMISERS, Optimiser
from assay.training.outer import DiLoCo, outer_genesis, outer_program
from tests.fakes.jobs import RESOURCE_LIMITS, TinyFiles, tiny_files, traced_step
from tests.fakes.market_day import MarketDay

torch.set_num_threads(1)


def followed(folder: Path, tiny: TinyFiles, rounds: int, steps: int) -> list[Following]:
    """The job after each round, of which nothing is settled when it is looked at."""
    day = MarketDay(folder)
    job_id = day.post(tiny, shards=2, rounds=rounds, steps_per_round=steps, segment_steps=steps // 4)
    for name in ("ann", "bob"):
        day.solver(name)
    for i in range(2):
        day.verifier(f"v{i}")
    market = day.markets["client"]
    files = load_job(day.blocks(), market.job(job_id).terms, RESOURCE_LIMITS)
    losses = losses_of(market, day.blocks(), job_id, files)
    seen: list[Following] = []

    def all_known() -> bool:
        now = follow(market, job_id, losses)
        if now.loss_by_round()[len(seen)] is not None:
            seen.append(now)
        return len(seen) == rounds

    assert day.run(all_known, turns=600), [s.status for s in day.services.values()]
    return seen


def half_dead_files() -> TinyFiles:
    """Of three parameters one has no gradient and decays, one is a number without a gradient."""

    def step(state: list[torch.Tensor], batch: torch.Tensor) -> list[torch.Tensor]:
        w, v, u, _ = state
        grad = w - batch.float().mean(0) / 255
        return [w - 0.1 * grad, v * (1 - 1e-3), u - 0.1 * (u - u), (grad * grad).sum()]

    state = [
        torch.linspace(-1, 1, 8),
        torch.linspace(1, 2, 8),
        torch.tensor([3.0]),
        torch.tensor(float("nan")),
    ]
    return replace(
        tiny_files(2),
        inner=traced_step(step, state, 3),
        outer=outer_program([tuple(x.shape) for x in state[:3]], 2, DiLoCo()),
        genesis=state,
        outer_genesis=outer_genesis(state[:3], 2),
        slot_names=["w", "v", "u", "metric.loss"],
    )


def test_a_parameter_without_a_gradient_for_a_hundred_steps_is_told_in_the_round_after(
    tmp_path: Path,
) -> None:
    first, second = followed(tmp_path, half_dead_files(), rounds=3, steps=52)[:2]
    assert first.warnings == (), "52 steps are too few"
    (told,) = second.warnings
    assert told.startswith("2 of 3 parameters learnt nothing in the last 100 steps or more (u, v)")
    assert not second.done
    caption = str(progress_table(second).caption)
    assert told in caption and "`assay job halt`" in caption
    assert [e.text for e in events_between(first, second) if e.kind == JobEventKind.WARNING] == [told]
    assert not [e for e in events_between(second, second) if e.kind == JobEventKind.WARNING]


def test_a_parameter_that_runs_away_and_the_loss_are_told_before_they_cease_to_be_finite(
    tmp_path: Path,
) -> None:
    first, second = followed(tmp_path, tiny_files(2, 4.0), rounds=2, steps=8)
    assert len(first.warnings) == 1 and first.divergence is second.divergence is None
    assert first.warnings[0].startswith("the largest number of w went from 1 to ")
    assert second.warnings[-1].startswith("the loss rose from ") and "in round 1" in second.warnings[-1]


def test_of_a_job_that_learns_nothing_is_told(tmp_path: Path) -> None:
    assert [now.warnings for now in followed(tmp_path, tiny_files(2, 0.1), rounds=2, steps=52)] == [(), ()]


def trained(rule: Optimiser, live: float) -> tuple[torch.Tensor, torch.Tensor]:
    """A matrix before and after 128 steps, in which one element alone has a gradient."""
    start = torch.linspace(-1, 1, 24).reshape(4, 6)
    params, grad = {"w": start}, torch.zeros(4, 6)
    grad[2, 3] = live
    state = rule.genesis(params)
    for _ in range(128):
        params, state = rule.update(params, {"w": grad}, state)
    return start, params["w"]


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("name", [name for name in OPTIMISERS if name != "muon"])
def test_every_optimiser_leaves_a_dead_parameter_still(name: str, decay: float) -> None:
    """Muon makes every element of a step out of all gradients."""
    made: Callable[..., Optimiser] = OPTIMISERS[name]
    rule = made(lr=1e-3, weight_decay=decay)
    start, end = trained(rule, 0.0)
    assert torch.equal(start, end) == (not decay) and is_still(start, end, 128)
    assert not is_still(*trained(rule, 1e-3), 128)


@pytest.mark.parametrize(
    "start, end",
    [
        ([1.0], [0.5]),
        ([1.0, 2.0], [1.0, float("nan")]),
        ([0.0, 0.0], [0.0, 1e-9]),
        ([1.0, 2.0], [2.0, 4.0]),
        ([1.0, 2.0], [-0.5, -1.0]),
        ([1.0] * 5000 + [2.0], [0.9] * 5000 + [1.9]),
    ],
)
def test_what_moved_is_not_still(start: list[float], end: list[float]) -> None:
    assert not is_still(torch.tensor(start), torch.tensor(end), 1000)


def moved(round_: int, shard: int, steps: int, *still: str) -> Movement:
    return Movement(round_, shard, steps, 3, frozenset(still), {})


def test_a_parameter_is_dead_only_where_it_was_still_in_every_task_of_the_last_rounds() -> None:
    still = [moved(r, s, 50, "a", "b") for r in (0, 1) for s in (0, 1)]
    assert dead(still) == ["a", "b"] and dead(still[:2]) == dead([]) == []
    assert dead([*still[:3], moved(1, 1, 50, "b")]) == ["b"]
    assert dead([*still, moved(2, 0, DEAD_STEPS)]) == [], "it learns again"


@pytest.mark.parametrize(
    "losses, rises",
    [
        ([4.0, 1.0, 4.5], True),
        ([4.0, 1.0, 3.5], False),
        ([4.0, None, 4.5], False),
        ([0.1, None, 0.3], True),
        ([-0.1, 0.3], False),
        ([None, None], False),
    ],
)
def test_a_loss_rises_above_the_first_and_twice_the_least(losses: list[float | None], rises: bool) -> None:
    assert bool(warnings_of([], losses)) == rises
