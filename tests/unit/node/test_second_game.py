"""Two games on one fault: the challenger that can no longer win loses nothing, and gets no alarm."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from assay.cli.node.alarms import Watch
from assay.node.deadlines import LATE
from assay.protocol.types import Phase, Role
from tests.fakes.market_day import FUNDS, MarketDay
from tests.unit.solver.test_convictions import WrongMachine


def owned(day: MarketDay, name: str) -> int:
    """All that an account has, wherever it is."""
    market, me = day.markets[name], day.address(name)
    return market.free(me) + market.wallet(me) + sum(market.stake(me, role).active for role in Role)


def test_w22_the_second_challenger_of_a_fault_loses_no_bond_and_hears_no_alarm(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Neither waits for the other's game.
    monkeypatch.setattr("assay.verifier.policy.others_suffice", lambda *_: False)
    job_id = day.post(rounds=1, shards=1, samples=4, task_time=100_000)
    day.solver("ann", WrongMachine)
    finders = ("v0", "v1")
    for name in finders:
        day.verifier(name)
    events: list[dict[str, Any]] = []
    watches = [
        Watch(day.markets[n], lambda: day.market_state.time, n, "verifier", events.append) for n in finders
    ]

    slow, turns = day.services["v1"], itertools.count()

    def over() -> bool:
        if len(day.market_state.games) > 1:  # v1 sleeps, and v0 wins in the midst of its game
            day.services.pop("v1", None)
            if next(turns) > 60:
                slow.tick()
        for watch in watches:
            watch()
        games = [played.view for played in day.market_state.games.values()]
        return len(games) > 1 and all(view.decided for view in games)

    assert day.run(over), day.phases(job_id)
    games = [played.view for played in day.market_state.games.values()]
    assert len({view.game.claim_id for view in games}) == 1 and len({v.game.challenger for v in games}) == 2
    assert any(not view.challenger_won or view.reason == "timeout" for view in games), [
        v.reason for v in games
    ]
    assert day.run(lambda: all(owned(day, name) >= FUNDS for name in finders), turns=60)
    assert Phase.CONVICTED in day.phases(job_id)
    assert not [event for event in events if event.get("share", 0) >= LATE], "nobody is woken for nothing"
    assert not any(watch.lost for watch in watches)
