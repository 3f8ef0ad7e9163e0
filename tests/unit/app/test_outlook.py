"""The description of a job's progress, at every moment of a job that the fake market plays."""

from __future__ import annotations

from pathlib import Path

from assay.app.outlook import Doing, outlook_of
from assay.protocol.types import Address, JobId, Phase, Seconds
from tests.fakes.market_day import MarketDay


def look(day: MarketDay, job_id: JobId) -> list[Doing]:
    market = day.markets["client"]
    names = {one.me: name for name, one in day.markets.items()}
    job = market.job(job_id)
    return outlook_of(market, job, Seconds(int(day.market_state.time)), lambda who: names[Address(who)])


def test_a_job_without_solvers_says_so_and_what_comes(tmp_path: Path) -> None:
    day = MarketDay(tmp_path)
    (only,) = look(day, day.post())
    assert only.now == "shards 0 and 1 of round 0: no solver yet" and only.until is None
    assert "price rises" in only.next


def test_every_moment_of_an_honest_job_has_what_goes_on_and_by_when(tmp_path: Path) -> None:
    day = MarketDay(tmp_path)
    job_id = day.post()
    for name in ("ann", "bob"):
        day.solver(name)
    for i in range(2):
        day.verifier(f"v{i}")
    seen: list[tuple[Seconds, Doing]] = []

    def done() -> bool:
        found = look(day, job_id)
        assert found
        seen.extend((Seconds(int(day.market_state.time)), one) for one in found)
        return bool(day.closed(job_id)())

    assert day.run(done)
    market, texts = day.markets["client"], [one.now for _, one in seen]
    terms = market.job(job_id).terms
    for words in (" train", "can be challenged", "is unchecked", "verifiers drawn for it have voted"):
        assert any(words in text for text in texts), words
    assert texts[-1] == f"closed: {terms.rounds} of {terms.rounds} rounds are settled"
    training = [(now, one) for now, one in seen if "train" in one.now]
    assert all(one.until and now <= one.until <= now + terms.task_time for now, one in training)
    settled = [view for view in market.claims(job_id) if view.status.phase == Phase.SETTLED]
    windows = {one.until for _, one in seen if "can be challenged" in one.now}
    assert len(settled) and len(windows) >= terms.rounds, "each round's window is told"
    assert {one.now.split()[0] for _, one in training} <= {"ann", "bob"}, "by name"
