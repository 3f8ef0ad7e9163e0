"""What one task costs one reader is what two jobs differ by; and each arm is a job that can be."""

from __future__ import annotations

import pytest

from scripts.bench.fetched import ARMS, ROUNDS, SHARDS, STEPS, Fetched, a_wire, job_of


def test_a_wire_is_the_difference_by_rounds_solvers_and_others() -> None:
    files, wire, manifest = 5_000, 300, 7
    short, long = (
        {f"solver-{i}": files + rounds * 2 * (wire + manifest) for i in (1, 2, 3)} for rounds in (2, 6)
    )
    assert a_wire(short, long, (2, 6)) == wire + manifest
    with pytest.raises(ValueError, match="other solvers"):
        a_wire(short, {"solver-1": 1})


def test_a_ratio_is_of_what_was_fetched() -> None:
    assert Fetched(files=90, fetched=100.0, parallel=50_000).ratio == 500


@pytest.mark.parametrize("arm", ARMS)
def test_every_arm_is_a_job_of_its_algorithm(arm: str) -> None:
    job = job_of(arm, ROUNDS[1])
    name, block = ARMS[arm]
    assert job.outer.algorithm == name and (block is None or job.outer.block_size == block)
    training = job.training
    assert (training.shards, training.rounds, training.steps_per_round) == (SHARDS, ROUNDS[1], STEPS)
