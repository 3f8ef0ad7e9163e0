"""W4: nodes on a chain that makes no block for hours, and then continues."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from assay.node.upkeep import Play, Tick, plays
from assay.protocol.dispute import Timeout
from assay.protocol.errors import Reverted
from assay.protocol.game_state import GameView
from assay.protocol.types import Address, ClockView, JobId, Kind, Phase, Seconds
from spec.deadlines import Ticks
from tests.fakes.market_day import MarketDay
from tests.unit.whistleblower.test_rewards import cheated

LAG = 30
"""Blocks: everybody's turn, and every transaction of it."""


@pytest.fixture
def day(tmp_path: Path) -> MarketDay:
    day = MarketDay(tmp_path)
    day.market_state.rules = replace(day.market_state.rules, ticks=Ticks(LAG))
    return day


def test_W4_a_challenger_plays_on_after_each_halt_and_wins(day: MarketDay) -> None:
    job_id, view = cheated(day)
    day.whistleblower("wendy")
    assert day.run(lambda: bool(day.named("opened")))
    state, ann, refused = day.market_state, day.markets["ann"], 0
    while state.claims[view.claim_id].status.phase != Phase.CONVICTED:
        for service in list(day.services.values()):
            service.tick()
            refused += claimed_after_a_halt(day, job_id)
    assert refused >= 4, "it was the challenger's turn in some of them"
    assert all(game.challenger_won for game in ann.games(job_id))


def claimed_after_a_halt(day: MarketDay, job_id: JobId) -> int:
    """The chain halts. In the first block after that Ann claims every game in which it is not her move, and
    has the clock tick. How many she may not have."""
    state, ann, refused = day.market_state, day.markets["ann"], 0
    state.time = Seconds(state.time + 10_000)
    state.block += 1
    for game in ann.games(job_id):
        if not game.decided and game.game.mover != ann.me:
            with pytest.raises(Reverted, match="DeadlineNotPassed"):
                ann.move(f"at once/{state.block}", game.game_id, game.game, Timeout())
            refused += 1
    try:
        ann.tick(f"at once/{state.block}")
    except Reverted as error:
        assert error.error == "TickedLately"
    return refused


def test_W4_verifiers_vote_and_solvers_commit_after_a_halt(day: MarketDay) -> None:
    job_id = day.post(rounds=2)
    day.solvers()
    day.verifiers(3)
    for _ in range(400):
        if day.closed(job_id)():
            break
        day.market_state.time = Seconds(day.market_state.time + 10_000)
        day.market_state.block += 1
        for service in list(day.services.values()):
            service.tick()
    assert day.closed(job_id)() and day.market_state.burnt == 0
    assert set(day.phases(job_id, Kind.TASK)) == {Phase.SETTLED}


def seen(day: MarketDay) -> GameView:
    job_id, _ = cheated(day)
    wendy = day.whistleblower("wendy")
    assert day.run(lambda: bool(day.named("opened")))
    (view,) = wendy.market.games(job_id)
    return view


def test_a_tick_is_wanted_by_who_gains_once_the_deadline_is_over_and_only_then(day: MarketDay) -> None:
    view = seen(day)
    end, job_id = int(view.game.deadline), view.game.accused.job_id
    gains, loses = sorted((view.game.challenger, view.game.defender), key=lambda who: who == view.game.mover)

    def wanted(who: Address, now: int, clock: ClockView) -> list[type]:
        return [type(action) for action in plays(who, Seconds(now), clock, job_id, [], [view])]

    early = ClockView(Seconds(end - 9), Seconds(end - 9), 40, 50)
    assert wanted(gains, end, early) == [], "the last second is in time"
    assert wanted(gains, end + 1, early) == [Tick]
    assert wanted(loses, end + 1, early) == [Play], "which still may move"
    assert wanted(Address("a stranger"), end + 1, early) == []
    lately = replace(early, due_block=52)
    assert wanted(gains, end + 1, lately) == [] and wanted(gains, end + 1, replace(lately, block=51)) == [
        Tick
    ]
    ticked = replace(lately, ticked=Seconds(end + 1))
    assert wanted(gains, end + 60, ticked) == [] and wanted(loses, end + 60, ticked) == [Play]
    passed = replace(ticked, time=Seconds(end + 1), block=52)
    assert wanted(gains, end + 60, passed) == [Play] and wanted(loses, end + 60, passed) == []
