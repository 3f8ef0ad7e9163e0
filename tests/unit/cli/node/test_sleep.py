"""A node's messages about sleep: how long is allowed, what was lost and why; and about a chain it cannot
read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.cli.node import alarms
from assay.cli.node.alarms import Watch
from assay.node.deadlines import ANY_TIME, offline_allowance
from assay.node.report import Status
from assay.protocol.errors import RpcUnreachable
from assay.protocol.types import JobId
from tests.fakes.market_day import MarketDay

Events = list[dict[str, Any]]


def holding(folder: Path) -> tuple[MarketDay, JobId]:
    """A market in which Ann and Bob have just taken a shard each."""
    day = MarketDay(folder)
    job_id = day.post()
    day.solvers()
    solvers = {day.address(name) for name in ("ann", "bob")}
    while {holder.solver for holder in day.market_state.jobs[job_id].holders} != solvers:
        for service in day.services.values():
            service.tick()
        day.market_state.advance(1)
    return day, job_id


def watch_of(day: MarketDay, events: Events, kept: Path, **options: Any) -> Watch:
    return Watch(
        day.markets["ann"],
        lambda: day.market_state.time,
        "ann",
        "solver",
        events.append,
        kept=kept / alarms.CLOCKS_FILE.format("solver"),
        **options,
    )


def test_w5_what_was_lost_in_a_sleep_is_told_first_with_the_reason(tmp_path: Path) -> None:
    day, job_id = holding(tmp_path)
    events: Events = []
    watch = watch_of(day, events, tmp_path)
    watch()
    assert not watch.lost and "task 0/" in watch.sleep
    del day.services["ann"]  # stopped across its deadline; Bob expires its shard
    assert day.run(
        lambda: day.address("ann") not in [h.solver for h in day.market_state.jobs[job_id].holders]
    )
    watch()
    first = next(event for event in events if event["event"] == "alarm")
    assert "task 0/" in first["text"] and "the shard and a penalty are lost" in first["text"]
    assert "it was stopped or asleep" in first["text"] and watch.lost == (
        first["text"].removeprefix("ann: "),
    )
    watch()
    assert len(watch.lost) == 1, "once"


def test_w5_a_node_that_was_killed_and_started_again_tells_it_too(tmp_path: Path) -> None:
    day, job_id = holding(tmp_path)
    watch_of(day, [], tmp_path)()
    del day.services["ann"]
    assert day.run(
        lambda: day.address("ann") not in [h.solver for h in day.market_state.jobs[job_id].holders]
    )
    events: Events = []
    again = watch_of(day, events, tmp_path)
    again()
    assert "this node was not running" in events[0]["text"] and again.counters()["losses"] == 1


def test_w5_a_clock_that_ran_out_with_the_node_awake_names_the_error(tmp_path: Path) -> None:
    day, job_id = holding(tmp_path)
    watch = watch_of(day, [], tmp_path, status=lambda: Status("solver", error="CommitTask: gas costs 9 gwei"))
    watch()
    del day.services["ann"]

    def looked() -> bool:
        watch()
        return day.address("ann") not in [h.solver for h in day.market_state.jobs[job_id].holders]

    assert day.run(looked)
    watch()
    assert len(watch.lost) == 1 and watch.lost[0].endswith("CommitTask: gas costs 9 gwei")


def test_what_was_done_in_time_is_not_mourned(tmp_path: Path) -> None:
    day, job_id = holding(tmp_path)
    watch = watch_of(day, [], tmp_path)
    day.verifiers()

    def looked() -> bool:
        watch()
        return day.closed(job_id)()

    assert day.run(looked)
    assert watch.lost == () and watch.sleep == ANY_TIME


def test_how_long_a_node_may_sleep_follows_from_what_it_has_at_stake(tmp_path: Path) -> None:
    day, job_id = holding(tmp_path)
    market, terms = day.markets["ann"], day.market_state.jobs[job_id].view.terms

    def bound() -> Any:
        return offline_allowance(market, market.me, day.market_state.time)

    first = bound()
    assert "task 0/" in first.what and first.seconds <= terms.task_time
    day.market_state.advance(7)
    assert bound().seconds == first.seconds - 7
    claims = lambda: [v for v in market.claims(job_id) if v.claim.claimant == market.me]  # noqa: E731
    assert day.run(lambda: bool(claims()))
    seen = bound()
    assert seen.seconds <= terms.move_time and "at any time" in seen.what
    assert offline_allowance(day.markets["client"], day.address("client"), day.market_state.time) is None


def test_a_chain_that_cannot_be_read_wakes_somebody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    day, _ = holding(tmp_path)
    events, now = Events(), [0.0]
    monkeypatch.setattr("assay.cli.node.alarms.time.monotonic", lambda: now[0])
    down: list[bool] = []

    def chain_now() -> int:
        if down:
            raise RpcUnreachable("the node at http://x did not answer", hint="check it")
        return int(day.market_state.time)

    watch = Watch(day.markets["ann"], chain_now, "ann", "solver", events.append)
    watch()
    down.append(True)
    for now[0] in (1.0, 20.0, 32.0, 40.0):
        with pytest.raises(RpcUnreachable):
            watch()
    alarm = [event for event in events if event["event"] == "alarm"]
    assert len(alarm) == 1 and "task 0/" in alarm[0]["text"] and "did not answer" in alarm[0]["text"]
    assert "chain" in watch.standing
    down.clear()
    now[0] = 200.0
    watch()
    assert "chain" not in watch.standing
