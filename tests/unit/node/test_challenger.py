"""After a game lost by the clock, a finding is disputed again in a new game."""

from __future__ import annotations

from functools import partial

from assay.node.audit import audit_claim
from assay.node.challenger import Challenger, salt_of
from assay.node.findings import WrongSegment
from assay.node.states import open_state_provider
from assay.protocol.dispute import Timeout
from assay.protocol.types import Phase
from drills.orders import WeightPlan
from drills.solvers import FaultySolver
from tests.fakes.jobs import RESOURCE_LIMITS
from tests.fakes.market_day import MarketDay, secret


def test_a_finding_whose_game_was_lost_by_the_clock_is_opened_anew(day: MarketDay) -> None:
    job_id = day.post(rounds=1, shards=1)
    day.solver("ann", partial(FaultySolver, plan=WeightPlan(0, 0, 0, 5)))
    assert day.run(lambda: bool(day.market_state.claims))
    market, state = day.join("hand"), day.market_state
    (view,) = market.claims(job_id)
    provider = open_state_provider(market, day.blocks(), market.job(job_id), RESOURCE_LIMITS)
    finding = audit_claim(provider, view)
    assert isinstance(finding, WrongSegment), "the fault was planted"
    challenger = Challenger(market, secret("hand"))

    def opened() -> int:
        for _ in range(4):
            pursuit = challenger.pursue(finding, state.block)
            if pursuit.stage == "opened":
                assert pursuit.game_id is not None
                return pursuit.game_id
            assert pursuit.stage == "announced"
            state.advance(1)
        raise AssertionError("it was never opened")

    first = opened()
    assert challenger.pursue(finding, state.block).stage == "playing"
    assert day.run(lambda: market.game(first).game.mover == market.me)
    lost = market.game(first)
    state.run_out(lost.game.deadline)
    day.markets["ann"].move("late", first, lost.game, Timeout())
    assert market.game(first).decided and not market.game(first).challenger_won
    assert market.claim(view.claim_id).status.phase in (Phase.COMMITTED, Phase.SEEDED)
    again = opened()
    assert again != first and not market.game(again).decided
    assert market.game(again).game.challenger == market.me


def test_every_attempt_has_a_salt_of_its_own_and_the_first_is_as_ever() -> None:
    finding = WrongSegment(b"\1" * 32, 2, (), b"\2" * 32)  # type: ignore[arg-type]
    salts = {salt_of(secret("x"), finding, attempt) for attempt in range(4)}
    assert len(salts) == 4 and salt_of(secret("x"), finding) == salt_of(secret("x"), finding, 0)
