"""A verifier whose disk loses or changes its ballots: no vote is lost, and none is staked on unchecked."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.disk import record
from assay.protocol.types import JobId, Phase, Seconds
from tests.fakes.market_day import MarketDay

KIND = "assay/ballot/1"


def drawn(day: MarketDay, event: str, verifiers: int = 1, age: int = 0) -> tuple[JobId, Path]:
    """A day on which v0, drawn for the only task, has reached `event`; and the file of its ballot."""
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
def test_a_vote_that_was_sent_and_whose_ballot_is_lost_stands(day: MarketDay, damage: str) -> None:
    job_id, file = drawn(day, "voted", verifiers=2)
    data = file.read_bytes()
    at = len(data) // 2
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(data[:at] if damage == "cut" else data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    day.verifier("v0")
    assert day.run(day.closed(job_id)), day.services["v0"].status
    assert day.phases(job_id) == [Phase.SETTLED] * 2 and day.market_state.burnt == 0
    assert replays(day) == 1 and len(day.named("voted")) == 2 and not day.services["v0"].status.questions
    assert file.with_name(file.name + ".damaged").exists() == (damage != "gone")


def test_a_vote_that_an_earlier_process_has_left_is_replayed_before_it_is_sent(day: MarketDay) -> None:
    job_id, _ = drawn(day, "replayed", age=20)
    assert not day.named("voted")
    day.verifier("v0")
    assert day.run(day.closed(job_id)) and replays(day) == 2 and day.market_state.burnt == 0


def test_a_vote_that_comes_out_otherwise_the_second_time_is_not_sent(day: MarketDay) -> None:
    _, file = drawn(day, "replayed", age=20)
    body = record.decode(KIND, file.read_bytes())
    record.write(file, KIND, {**body, "traces": ["11" * 32]})
    v0 = day.verifier("v0")
    assert day.run(lambda: bool(v0.status.questions), turns=20)
    assert "two replays of the sample" in str(v0.status.questions)
    assert not day.named("voted") and not v0.status.abandoned


def test_a_vote_that_another_home_of_the_account_has_sent_is_left_as_it_is(day: MarketDay) -> None:
    job_id, file = drawn(day, "voted", verifiers=2)
    file.unlink()
    v0 = day.verifier("v0")
    before = len(v0.market.sent)  # type: ignore[attr-defined]
    assert day.run(day.closed(job_id)) and not v0.status.questions and not v0.status.abandoned
    assert replays(day) == 1
    assert not [key for key in v0.market.sent[before:] if key.startswith("vote/")]  # type: ignore[attr-defined]


def test_a_ballot_of_the_form_without_a_checksum_is_read(day: MarketDay) -> None:
    import json

    job_id, file = drawn(day, "voted", verifiers=2)
    file.write_text(json.dumps(record.decode(KIND, file.read_bytes())))
    day.verifier("v0")
    assert day.run(day.closed(job_id)) and replays(day) == 1
