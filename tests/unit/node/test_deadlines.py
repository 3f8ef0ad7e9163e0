"""Deadlines that run against an account, on the fake market, and when they raise an alarm."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.node.deadlines import HALF, LATE, Alarms, Deadline, deadlines_of
from assay.protocol.demands import DemandView
from assay.protocol.types import ClaimId, Seconds
from tests.fakes.dashboard import DaySource
from tests.fakes.jobs import account
from tests.fakes.market_day import MarketDay


def owed(day: MarketDay, name: str) -> list[str]:
    found = deadlines_of(day.markets[name], day.address(name))
    assert all(deadline.begins <= day.market_state.time for deadline in found)
    return [deadline.what.split(" on ")[0].split(" of job")[0] for deadline in found]


def test_a_solver_owes_its_task_until_it_has_committed(day: MarketDay) -> None:
    job_id = day.post()
    day.solvers()
    terms = day.market_state.jobs[job_id].view.terms
    seen = set()
    for _ in range(40):
        day.run(lambda: True)
        day.market_state.advance(1)
        for deadline in deadlines_of(day.markets["ann"], day.address("ann")):
            if deadline.what.startswith("task"):
                assert deadline.ends - deadline.begins == terms.task_time
                seen.add(deadline.what.split(" of job")[0])
    assert any(what.startswith("task 0/") for what in seen)
    claims = day.markets["ann"].claims(job_id)
    assert claims and not any(what.startswith("task 0/") for what in owed(day, "ann"))


def test_a_drawn_verifier_owes_a_vote_until_it_has_voted(day: MarketDay) -> None:
    day.post()
    day.solvers()
    day.verifiers()
    told: list[str] = []
    for _ in range(60):
        for service in list(day.services.values()):
            service.tick()
            told += [what for name in ("v0", "v1") for what in owed(day, name)]
        day.market_state.advance(1)
    assert set(told) == {"a vote"} and not owed(day, "v0") + owed(day, "v1")
    assert owed(day, "client") == []


def test_whose_move_it_is_has_the_clock(tmp_path: Path) -> None:
    source = DaySource(tmp_path)
    movers = []
    services = source.day.services
    for turn in range(600):
        list(services.values())[turn % len(services)].tick()
        if turn % len(services) == 0:
            source.day.market_state.advance(1)
        for view in [view for view in source.market.games() if not view.decided]:
            mover = view.game.mover
            other = {view.game.challenger, view.game.defender} - {mover}
            mine = [
                c for c in deadlines_of(source.market, mover) if c.what == f"a move in game {view.game_id}"
            ]
            assert [c.ends - c.begins for c in mine] == [view.game.move_time]
            assert not [
                c for a in other for c in deadlines_of(source.market, a) if c.what.startswith("a move")
            ]
            movers.append(mover)
    assert len(set(movers)) == 2 and account("nobody") not in movers


def test_each_clock_is_told_twice_at_most() -> None:
    alarms, deadline = Alarms(), Deadline("a vote", "a penalty", 100, 200)
    told = {now: alarms.look([deadline], now) for now in range(100, 230, 10)}
    assert [now for now, due in told.items() if due] == [150, 190]
    assert [told[150][0].share, told[190][0].share] == [HALF, LATE]
    assert "50 s left, or a penalty" in str(told[150][0])


def test_a_clock_first_seen_late_is_told_once_and_a_new_one_of_the_same_name_again() -> None:
    alarms = Alarms()
    late = alarms.look([Deadline("a vote", "a penalty", 0, 100)], 150)
    assert [alarm.share for alarm in late] == [LATE] and "over for 50 s" in str(late[0])
    assert alarms.look([Deadline("a vote", "a penalty", 0, 100)], 160) == []
    again = alarms.look([Deadline("a vote", "a penalty", 120, 220)], 180)
    assert [alarm.share for alarm in again] == [HALF]


@pytest.mark.parametrize("now", [0, 99])
def test_a_demand_is_told_as_soon_as_it_is_seen(now: int) -> None:
    alarms, demand = Alarms(), Deadline("an answer to demand 1", "the claim falls", 100, 100)
    assert [alarm.share for alarm in alarms.look([demand], now)] == [HALF]
    assert alarms.look([demand], now) == []
    assert [alarm.share for alarm in alarms.look([demand], 100)] == [LATE]


def test_a_demand_on_a_claim_that_is_gone_hides_no_other_clock(day: MarketDay) -> None:
    day.post()
    day.solver("ann")
    day.run(lambda: bool(owed(day, "ann")), turns=5)
    due = owed(day, "ann")
    lost = DemandView(1, ClaimId(b"l" * 32), day.address("client"), 0, b"s" * 32, Seconds(10**9), (), "")
    day.market_state.demands[1] = lost
    assert due and owed(day, "ann") == due
