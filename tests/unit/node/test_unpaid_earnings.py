"""Earned but unpaid amounts on the fake market, compared with the later payments."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.node.unpaid_earnings import Pending, pending
from assay.protocol.types import ClaimId, Phase, Role
from tests.fakes.dashboard import DaySource
from tests.fakes.market_day import FUNDS, MarketDay


@pytest.mark.long
def test_what_was_to_come_is_what_came_and_not_before_it_was_due(day: MarketDay) -> None:
    job_id = day.post()
    day.solvers()
    day.verifiers()
    market, told, paid = day.markets["client"], {}, dict[ClaimId, int]()
    accounts = {"ann": "solver", "bob": "solver", "v0": "verifier", "v1": "verifier"}
    over = day.closed(job_id)
    while not over():
        for name, role in accounts.items():
            for one in pending(market, day.address(name), role):
                told[name, one.claim_id] = one
        for service in list(day.services.values()):
            service.tick()
        for view in market.claims(job_id):
            if view.status.phase == Phase.SETTLED:
                paid.setdefault(view.claim_id, day.market_state.time)
        day.market_state.advance(1)
    amounts = {name: sum(one.amount for (who, _), one in told.items() if who == name) for name in accounts}
    for name in ("v0", "v1"):
        stake = day.market_state.active[day.address(name), Role.VERIFIER]
        assert market.free(day.address(name)) + stake - FUNDS == amounts[name] > 0
    for (_, claim_id), one in told.items():
        assert one.due is not None and paid[claim_id] > one.due, "the last that was told of it is its window"


def test_a_claim_in_a_game_waits_for_the_game(tmp_path: Path) -> None:
    source = DaySource(tmp_path)
    seen: list[Pending] = []
    for _ in range(60):
        source.turn(seconds=1)
        for view in source.market.games():
            if not view.decided and view.game.ballot == 0:
                seen += [
                    one
                    for one in pending(source.market, view.game.defender, "solver")
                    if one.claim_id == view.game.claim_id
                ]
    assert seen and all(one.due is None and "game" in one.why for one in seen)


def test_a_whistleblower_is_promised_nothing(tmp_path: Path) -> None:
    source = DaySource(tmp_path)
    for _ in range(8):
        source.turn()
    assert pending(source.market, source.wendy.market.me, "whistleblower") == []
