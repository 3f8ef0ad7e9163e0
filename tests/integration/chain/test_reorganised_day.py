"""Attack 46: reorganisations of every depth in every phase of a job, with services on or off, on a real
chain."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from assay.chain.contracts.artifacts import Artifacts
from assay.chain.eth.rpc import HttpRpc
from tests.adversaries.chain_day import BITS, NAMES, ChainDay


@pytest.mark.long
def test_an_undisturbed_day_comes_to_its_end(rpc: HttpRpc, artifacts: Artifacts, tmp_path: Path) -> None:
    day = ChainDay(rpc, artifacts, tmp_path)
    job_id = day.post()
    assert day.run(day.closed(job_id))
    assert day.unsound(job_id) == [] and day.model(job_id) == BITS


def reorganised(
    day: ChainDay, seed: int, depths: tuple[int, int], times: int, every: int, after: str = ""
) -> list[str]:
    """A day on which the chain loses blocks so many times, some of the services being off, once there was an
    event named `after`; what is unsound."""
    r = random.Random(seed)
    job_id = day.post()
    done = turns = 0
    while not (day.closed(job_id)() and done >= times) and turns < 60 + 20 * times:
        turns += 1
        begun = not after or any(event["event"] == after for event in day.events)
        if begun and done < times and turns % every == 0:
            off = tuple(name for name in NAMES[1:] if r.random() < 0.3)
            day.lose(r.randint(*depths), grow=r.choice([0, 0, 3, 80]))
            done += 1
            for _ in range(r.randint(0, 3)):
                day.turn(off)
            for name in off:
                if r.random() < 0.5:
                    day.start(name)
        day.turn()
    assert day.lost >= times, "blocks were taken away"
    found = day.unsound(job_id)
    if not day.closed(job_id)():
        found.append(f"the job is not closed: {day.markets['client'].job(job_id).progress}")
    elif day.model(job_id) != BITS:
        found.append(f"the model has other bits: {day.model(job_id)}")
    return found


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(0, marks=pytest.mark.long),
        *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2)),
    ],
)
def test_attack_46_reorganisations_change_nothing_of_a_job(
    rpc: HttpRpc, artifacts: Artifacts, tmp_path: Path, seed: int
) -> None:
    day = ChainDay(rpc, artifacts, tmp_path)
    found = reorganised(day, seed, (1, 12), times=6, every=5)
    assert found == [], day.events[-10:]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_attack_46_two_jobs_and_nine_reorganisations_of_6_to_20_blocks(
    rpc: HttpRpc, artifacts: Artifacts, tmp_path: Path, seed: int
) -> None:
    """Once stopped at round 3 with `WrongRound` and `EarlierUnsettled`, although progress read 3."""
    r = random.Random(300 + seed)
    day = ChainDay(rpc, artifacts, tmp_path)
    for name in ("ann", "bob"):
        day.two_at_once(name)
    jobs = [day.post(rounds=5)]
    turns = done = 0
    while turns < 400 and (done < 9 or not all(day.closed(job_id)() for job_id in jobs)):
        turns += 1
        if turns == 12:
            jobs.append(day.post(rounds=5, nonce=2))
        if turns > 12 and done < 9 and turns % 5 == 0:
            off = tuple(name for name in NAMES[1:] if r.random() < 0.3)
            day.lose(r.randint(6, 20), grow=r.choice([0, 0, 3]))
            done += 1
            for _ in range(r.randint(0, 2)):
                day.turn(off)
        day.turn()
    assert len(set(jobs)) == 2 and day.lost >= 9 * 6, "blocks were taken away"
    for job_id in jobs:
        assert day.closed(job_id)(), (day.markets["client"].job(job_id).progress, day.events[-20:])
        assert day.unsound(job_id) == [], day.events[-10:]
    first, second = (day.model(job_id) for job_id in jobs)
    assert len(first) == 5 and first[:2] == BITS and second == first
