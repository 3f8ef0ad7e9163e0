"""What the benchmark of the market computes from what it saw, and the job that it leads."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from scripts.bench.market import SIZES, compared, job_of, ratio_of_rounds, reckoned, shares, told, told_over
from scripts.bench.market_alone import Alone
from scripts.bench.market_devnet import Cores, Led, cores, processor_seconds
from scripts.bench.market_links import GRID, Line, hosts


def test_the_job_is_the_templates_but_for_its_model_and_what_its_shards_send() -> None:
    body = job_of(SIZES["gpt-512"], 5, 1)
    assert (body.training.steps_per_round, body.training.segment_steps, body.training.shards) == (64, 4, 1)
    assert (body.verification.verifiers, body.verification.samples) == (2, 1)
    assert body.outer.algorithm == "diloco-4bit" and body.training.rounds == 5
    assert job_of(SIZES["gpt-512"], 5, 1, 256).training.steps_per_round == 256


def test_a_further_round_leaves_the_first_out() -> None:
    assert ratio_of_rounds([20.0, 32.0, 44.0], [10.0, 20.0, 30.0]) == pytest.approx(1.2)
    assert ratio_of_rounds([15.0], [10.0]) == pytest.approx(1.5)


def led(roots: list[str]) -> Led:
    spent = {"solver-1": {"computing": 30.0, "waiting": 8.0, "deciding": 2.0}}
    return Led(roots, [12.0, 22.0], [10.0, 20.0], spent, {"solver-1": 33.0, "verifier-1": 9.0})


def test_a_job_is_compared_with_the_same_rounds_alone() -> None:
    alone = Alone(100, 400, ["aa", "bb"], [10.0, 20.0], [10.0, 20.0])
    found = compared(alone, led(["aa", "bb"]), 2)
    assert found["same_bits_as_in_process"] and found["wall_ratio"] == pytest.approx(1.1)
    assert found["computing_share"] == 0.75 and found["processor_ratio"] == pytest.approx(1.65)
    assert "| 1.100 | 1.000" in told(found) and "computing 75.0 %" in told(found)
    assert not compared(alone, led(["aa", "bc"]), 2)["same_bits_as_in_process"]
    assert not compared(alone, led(["aa"]), 2)["same_bits_as_in_process"], "a round is not settled"
    assert not compared(alone, led([]), 2)["same_bits_as_in_process"], "nothing was settled"
    assert shares({}) == {}


def test_a_long_job_is_compared_with_as_many_rounds_as_were_run_alone() -> None:
    assert reckoned([10.0, 19.0], 4) == pytest.approx(37.0) and reckoned([10.0, 19.0], 2) == 19.0
    assert reckoned([10.0], 1) == 10.0
    alone = Alone(100, 400, ["aa", "bb"], [10.0, 19.0], [10.0, 19.0])
    found = compared(
        alone,
        replace(led(["aa", "bb", "cc", "dd"]), ends=[12.0, 22.0, 32.0, 42.0], tasks=[10.0, 20.0, 30.0, 40.0]),
        4,
    )
    assert found["same_bits_as_in_process"] and found["wall_ratio"] == pytest.approx(42 / 37)
    assert found["round_ratio"] == pytest.approx(10 / 9) and "In process 2 rounds were run" in told(found)
    for roots in (["aa", "bb", "cc"], ["aa", "bc", "cc", "dd"]):
        assert not compared(alone, led(roots), 4)["same_bits_as_in_process"]


def test_links_are_read_and_a_round_trip_is_half_each_way() -> None:
    line = Line.parse("100:300:1")
    assert line in GRID and line == Line(100, 300, 1.0)
    here, solver, *verifiers = hosts(line, 1, 2)
    assert (solver.bits_per_s, solver.delay_s, solver.loss) == (100_000_000, 0.15, 0.01)
    assert [(other.bits_per_s, other.delay_s, other.loss) for other in (here, *verifiers)] == [
        (0, 0.0, 0.0)
    ] * 3
    with pytest.raises(ValueError):
        Line.parse("fast")
    shown = told_over(
        [
            {
                "steps_per_round": 64,
                "mbit_per_s": 1000,
                "round_trip_ms": 10,
                "loss_percent": 0.0,
                "a_round_s": 4.0,
                "computing_share": 0.953,
                "bytes": {"out_proof": 8_000_000},
                "rounds": 2,
            }
        ]
    )
    assert "| 95.3 " in shown and "| 4.0 " in shown


def test_solvers_have_cores_of_their_own_and_all_others_the_last() -> None:
    chosen = Cores((0, 1), 3)
    names = [
        ("solver-1", "solver"),
        ("solver-2", "solver"),
        ("solver-3", "solver"),
        ("verifier-1", "verifier"),
    ]
    assert [chosen.of(*name) for name in names] == [0, 1, 0, 3]
    there = cores(1)
    assert there.rest == max(os.sched_getaffinity(0)) and len(there.solvers) == 1
    assert processor_seconds(os.getpid()) > 0
