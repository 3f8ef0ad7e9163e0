"""A junk challenge, played to its last move, and what it costs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from assay.protocol.types import Address, Phase, Wei
from assay.whistleblower.policy import Limits, Mode
from drills.whistleblowers import (
    LAST_S,
    JunkChallenger,
    SilentChallenger,
    SlowChallenger,
    VoteChallenger,
)
from tests.fakes.clock import FakeClock
from tests.fakes.jobs import RESOURCE_LIMITS, account
from tests.fakes.market_day import MarketDay, secret


def accused(folder: Path, kind: Any, whom: int | Address = 0) -> MarketDay:
    """A job of one honest task, which jack accuses, run to its end."""
    day = MarketDay(folder)
    job_id = day.post(rounds=1, shards=1)
    day.solver("ann")
    day.verifiers()
    parts = (day.join("jack"), day.blocks(), FakeClock(day.market_state), folder / "jack", secret("jack"))
    make = partial(kind, round=0, accused=whom)
    day.services["jack"] = make(*parts, Limits(Mode.PLAY, Wei(100)), RESOURCE_LIMITS, emit=day.events.append)
    assert day.run(day.closed(job_id), turns=600), [s.status for s in day.services.values()]
    assert day.named("fault-planted") and Phase.CONVICTED not in day.phases(job_id)
    assert not any(entry.view.challenger_won for entry in day.market_state.games.values())
    assert day.markets["jack"].free(account("jack")) < 10_000
    return day


def test_attack_23_a_junk_challenge_played_out_pays_the_defender_half_its_bond(
    day: MarketDay, tmp_path: Path
) -> None:
    job_id = day.post(rounds=1, shards=1)
    ann = day.solver("ann")
    day.verifiers()
    market = day.join("jack")
    parts = (market, day.blocks(), FakeClock(day.market_state), tmp_path / "jack", secret("jack"))
    make = partial(JunkChallenger, round=0, accused=0)
    day.services["jack"] = make(*parts, Limits(Mode.PLAY, Wei(100)), RESOURCE_LIMITS, emit=day.events.append)
    before = day.market_state.free[ann.market.me]
    assert day.run(day.closed(job_id), turns=600), [s.status for s in day.services.values()]
    (entry,) = day.market_state.games.values()
    assert entry.view.decided and not entry.view.challenger_won and entry.view.reason == "timeout"
    assert [e["move"] for e in day.named("moved")].count("RevealLeaf") == 1, "it came to the last element"
    assert market.free(account("jack")) == 10_000 - 40
    paid = day.market_state.free[ann.market.me] - before
    price = next(e.claim.price for e in day.market_state.claims.values() if e.claim.shard == 0)
    assert paid >= price + 20
    assert Phase.CONVICTED not in day.phases(job_id)


def test_attack_24_a_challenger_that_makes_no_move_loses_by_the_clock(tmp_path: Path) -> None:
    day = accused(tmp_path, SilentChallenger, account("ann"))
    (entry,) = day.market_state.games.values()
    assert entry.view.decided and entry.view.reason == "timeout"
    assert {e["side"] for e in day.named("moved")} == {"defender"}


def test_attack_25_who_moves_in_the_last_seconds_delays_and_loses(tmp_path: Path) -> None:
    day, quick = accused(tmp_path / "slow", SlowChallenger), accused(tmp_path / "quick", JunkChallenger)
    (entry,) = day.market_state.games.values()
    moves = [e["move"] for e in day.named("moved")]
    assert entry.view.decided and moves.count("RevealLeaf") == 1, "it came to the last element"
    (job,) = day.market_state.jobs.values()
    move_time = job.view.terms.move_time
    (other,) = quick.market_state.games.values()
    assert entry.view.game.deadline > other.view.game.deadline + move_time - LAST_S > other.view.game.deadline


def test_attack_14_who_challenges_true_votes_pays_their_verifiers(tmp_path: Path) -> None:
    day = accused(tmp_path, VoteChallenger)
    defenders = {entry.view.game.defender for entry in day.market_state.games.values()}
    assert defenders and defenders <= {account("v0"), account("v1")}, "only votes were challenged"
    assert all(entry.view.decided for entry in day.market_state.games.values())
