"""Attack 37: a node whose move was refused, because another transaction came first, plays on and wins."""

from __future__ import annotations

import pytest

from assay.program.fault import NodeFault
from assay.protocol.errors import Reverted
from assay.protocol.types import Phase, TxResult
from drills.orders import Plan
from spec import events
from tests.fakes.conspiracy import conspiracy
from tests.fakes.jobs import inner_program
from tests.fakes.market_day import FUNDS, MarketDay
from tests.fakes.port import FakeMarket

FAULT = NodeFault(step=3, node=len(inner_program().nodes) - 1, element=0)


class OvertakenMarket(FakeMarket):
    """Before the first call of each kind in `overtake` arrives, the same call of another process is mined."""

    overtake: set[str]
    refused: list[str]

    def _send(self, intent: str, effect: str, event: events.Event) -> TxResult:
        if effect in self.overtake:
            self.overtake.discard(effect)
            self.market_state.act(event, self._me)
            with pytest.raises(Reverted) as refusal:
                super()._send(intent, effect, event)
            self.refused.append(effect)
            raise refusal.value
        return super()._send(intent, effect, event)


def overtaken(day: MarketDay, name: str, moves: set[str], **stakes: int) -> OvertakenMarket:
    """The account `name`, whose next `moves` come too late."""
    market = day.join(name, **stakes)
    market.__class__ = OvertakenMarket
    assert isinstance(market, OvertakenMarket)
    market.overtake, market.refused = set(moves), []
    return market


@pytest.mark.parametrize("moves", [{"PickStep"}, {"Pick"}, {"Prove"}, {"PickStep", "Pick", "Prove"}])
def test_attack_37_a_whistleblower_goes_on_after_its_move_came_too_late(
    day: MarketDay, moves: set[str]
) -> None:
    job_id = day.post(rounds=1)
    conspiracy(day, Plan(0, 1, FAULT))
    market = overtaken(day, "wendy", moves)
    day.whistleblower("wendy")
    assert day.run(lambda: Phase.CONVICTED in day.phases(job_id)), [s.status for s in day.services.values()]
    assert set(market.refused) == moves, "no move came too late"
    game = next(p.view for p in day.market_state.games.values() if p.view.decided)
    assert game.challenger_won and game.reason == "arithmetic"
    refusals = day.named("refused")
    assert len(refusals) == len(moves) and all(r["benign"] for r in refusals), refusals
    assert market.free(market.me) > FUNDS, "bond and reward have come in"
