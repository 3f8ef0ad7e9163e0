"""A verifier whose disk loses or changes its ballots: no vote is lost, and none is staked on unchecked."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from assay.disk import record
from assay.protocol.types import JobId, Phase, Seconds
from assay.verifier.service import VerifierService
from tests.fakes.market_day import MarketDay

torch.set_num_threads(1)
KIND = "assay/ballot/1"


@pytest.fixture
def day(tmp_path: Path) -> MarketDay:
    return MarketDay(tmp_path)


def drawn(day: MarketDay, event: str, verifiers: int = 1, age: int = 0) -> tuple[JobId, Path]:
    """v0 is drawn for the only task and has come to `event`; the file of its ballot."""
    job_id = day.post(rounds=1, shards=1, verifiers=verifiers)
    day.solver("ann")
    day.verifier("v0", seed_age=Seconds(age))
    for i in range(1, verifiers):
        day.verifier(f"v{i}", seed_age=Seconds(20))
    v0 = day.address("v0")
    assert day.run(lambda: any(e["address"] == v0 for e in day.named(event)))
    (file,) = (day.folder / "v0" / "ballots").iterdir()
    return job_id, file


def replays(day: MarketDay) -> int:
    return sum(e["address"] == day.address("v0") for e in day.named("replayed"))


@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
def test_a_committed_vote_whose_ballot_is_lost_is_replayed_and_revealed(day: MarketDay, damage: str) -> None:
    job_id, file = drawn(day, "voted", verifiers=2)
    data = file.read_bytes()
    at = len(data) // 2
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(data[:at] if damage == "cut" else data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    day.verifier("v0")
    assert not day.named("revealed") and replays(day) == 1
    assert day.run(day.closed(job_id)), day.services["v0"].status
    assert day.phases(job_id) == [Phase.SETTLED] * 2 and day.market_state.burnt == 0
    assert replays(day) == 2 and len(day.named("revealed")) == 2
    assert file.with_name(file.name + ".damaged").exists() == (damage != "gone")


def test_a_vote_that_an_earlier_process_has_left_is_replayed_before_it_is_committed(day: MarketDay) -> None:
    job_id, _ = drawn(day, "replayed", age=20)
    assert not day.named("voted")
    day.verifier("v0")
    assert day.run(day.closed(job_id)) and replays(day) == 2 and day.market_state.burnt == 0


def test_a_vote_that_comes_out_otherwise_the_second_time_is_not_committed(day: MarketDay) -> None:
    _, file = drawn(day, "replayed", age=20)
    body = record.decode(KIND, file.read_bytes())
    record.write(file, KIND, {**body, "traces": ["11" * 32]})
    v0 = day.verifier("v0")
    assert day.run(lambda: bool(v0.status.questions), turns=20)
    assert "replayed twice, with different results" in str(v0.status.questions)
    assert not day.named("voted") and not v0.status.abandoned


def test_a_secret_that_was_exchanged_is_said_before_anything_is_revealed(day: MarketDay) -> None:
    drawn(day, "voted", verifiers=2)
    v0 = day.services["v0"]
    assert isinstance(v0, VerifierService)
    v0._ballots._secret = bytes(32)
    assert day.run(lambda: bool(v0.status.questions), turns=60)
    assert "not the one that was committed" in str(v0.status.questions)
    assert not v0.status.abandoned
    assert all(e["address"] != day.address("v0") for e in day.named("revealed"))


def test_a_ballot_of_the_form_without_a_checksum_is_read(day: MarketDay) -> None:
    import json

    job_id, file = drawn(day, "voted", verifiers=2)
    file.write_text(json.dumps(record.decode(KIND, file.read_bytes())))
    day.verifier("v0")
    assert day.run(day.closed(job_id)) and replays(day) == 1
