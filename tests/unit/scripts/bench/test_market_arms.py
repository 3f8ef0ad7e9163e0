"""Jobs that the benchmarks lead through a market, and what they say that was compared."""

from __future__ import annotations

import pytest

from assay.training.catalogue import CATALOGUE
from scripts.bench.market_arms import DUE, KILLED, LONG_ROUNDS, ROUNDS, SHARDS, job_of, long_job
from scripts.bench.rl_market import MILLION, job_file


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_algorithm_has_a_job_of_several_shards(name: str) -> None:
    body = job_of(name)
    assert body.outer.algorithm == name
    assert body.training.min_shards == body.training.shards >= SHARDS
    assert body.training.rounds == (1 if CATALOGUE[name].one_round else ROUNDS)


def test_a_job_with_deaths_closes_rounds_without_who_died() -> None:
    plain, deadly = long_job(False), long_job(True)
    assert plain.training.min_shards == SHARDS > deadly.training.min_shards
    assert f"{deadly.times.task}s" == DUE["task"] and deadly.times.task < plain.times.task
    assert plain.training.rounds == LONG_ROUNDS > max(KILLED)


@pytest.mark.parametrize(("task", "length"), [("addition", 5), ("sorting", 6), ("brackets", 6)])
def test_every_task_of_grpo_has_a_job(task: str, length: int) -> None:
    body = job_file(3, dict(MILLION), "", task)
    assert body.grpo is not None
    assert body.grpo.task == task
    assert (body.training.rounds, body.training.steps_per_round) == (3, length)
