"""Games in plain English, from the first move to the last, and what the sentences promise is what happens."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from assay.app.game_explanation import ENDS, WHY_NOW, Explained, explain
from assay.app.game_text import WHAT_IS_ASKED
from assay.program.fault import Fault, NodeFault
from assay.protocol.game_state import INPUT_SEGMENT, GamePhase
from assay.protocol.types import ZERO_DIGEST, Address, JobId, Phase, Role
from drills.orders import Plan
from tests.fakes.conspiracy import conspiracy
from tests.fakes.jobs import account, inner_program
from tests.fakes.market_day import MarketDay

PROGRAM = inner_program()
LAST = len(PROGRAM.nodes) - 1
NAMES: dict[Address, str] = {account(name): name for name in ("ann", "bob", "wendy", "v0", "v1")}


def told(day: MarketDay, game_id: int) -> Explained:
    market = day.markets["wendy"]
    view = market.game(game_id)
    claim = market.claim(view.game.claim_id)
    job = market.job(claim.claim.job_id)
    node = PROGRAM.nodes[view.game.node] if view.game.node_hash != ZERO_DIGEST else None
    said = explain(view, claim, job.terms, day.market_state.time, NAMES, node)
    for _, text in said.labelled():
        assert not re.search(r"\bb'|0x|\bNone\b|[A-Z][a-z]+\(|[A-Z]+_[A-Z]+", text), text
    return said


def followed(day: MarketDay, over: Callable[[], bool]) -> dict[GamePhase, Explained]:
    """The explanation of the first game in each of its phases."""
    seen: dict[GamePhase, Explained] = {}

    for _ in range(300):
        for service in list(day.services.values()):
            service.tick()
            for game_id, played in day.market_state.games.items():
                said = told(day, game_id)
                if not played.view.decided:
                    seen.setdefault(played.view.game.phase, said)
        if over():
            break
        day.market_state.advance(4)
    assert over(), day.events[-5:]
    return seen


def cheated(day: MarketDay, fault: Fault) -> JobId:
    job_id = day.post(rounds=1)
    conspiracy(day, Plan(0, 1, fault))
    day.whistleblower("wendy")
    return job_id


def test_every_phase_and_every_end_has_its_words() -> None:
    assert set(WHY_NOW) == set(WHAT_IS_ASKED) == set(GamePhase)
    assert set(ENDS) == {"timeout", "children", "output", "padding", "leaf", "arithmetic"}


def test_a_game_is_told_from_its_segment_to_its_element(day: MarketDay) -> None:
    job_id = cheated(day, NodeFault(step=3, node=LAST, element=0))
    seen = followed(day, lambda: Phase.CONVICTED in day.phases(job_id))
    (cheat,) = {game.view.game.defender for game in day.market_state.games.values()}
    name = NAMES[cheat]
    first, last = seen[GamePhase.STEPS], seen[GamePhase.PROVE]
    assert f"{name} says that segment 1 of task 0/1" in first.claim and "steps 2 to 3" in first.claim
    assert first.dispute == "wendy has replayed it and says that it ends in another state"
    assert "they differ somewhere in 2 steps" in first.narrowed
    assert f"{name}, the defender, has to reveal the state root" in first.next
    assert f"{name}'s runs out at" in first.clock and "then wendy wins" in first.clock
    assert f"operations 0 to {LAST} are in dispute, of its {LAST + 1}" in seen[GamePhase.PICK_NODE].narrowed
    operation = PROGRAM.nodes[LAST]
    assert f"operation {LAST} ({operation.op.word} of shape" in last.narrowed
    assert f"bytes 0 to {operation.bytes - 1} of its output, elements 0 to {operation.elements - 1}" in (
        last.narrowed
    )
    assert "wendy, the challenger, has to prove one element wrong" in last.next
    assert f"at most {18}" in last.next


def test_what_is_said_to_be_lost_is_lost(day: MarketDay) -> None:
    job_id = cheated(day, NodeFault(step=3, node=LAST, element=0))
    seen = followed(day, lambda: Phase.CONVICTED in day.phases(job_id))
    said = seen[GamePhase.PROVE].stakes
    terms = day.markets["wendy"].job(job_id).terms
    assert terms.solver_stake == 100 and "loses 0.0000000000000001 tok" in said
    (game_id,) = day.market_state.games
    cheat = day.market_state.games[game_id].view.game.defender
    assert day.market_state.active[cheat, Role.SOLVER] == 2_000 - terms.solver_stake
    ended = told(day, game_id)
    assert ended.clock == "" and ended.next.startswith("nothing: wendy has won after")
    assert "the contract computed the disputed element itself" in ended.next
    assert ended.stakes.startswith("the claim falls") and " if " not in ended.stakes


def test_nothing_is_at_stake_once_the_claim_is_over(day: MarketDay) -> None:
    job_id = cheated(day, NodeFault(step=3, node=LAST, element=0))
    assert day.run(lambda: bool(day.market_state.games))
    market = day.markets["wendy"]
    view, now = market.game(1), day.market_state.time
    claim = market.claim(view.game.claim_id)
    asked = replace(view, game=replace(view.game, segment=INPUT_SEGMENT))
    back = explain(asked, replace(claim, stale=True), market.job(job_id).terms, now, NAMES, None).stakes
    assert "if ann wins, wendy has its bond back" in back or "if bob wins, wendy has its bond back" in back
    over = replace(claim, status=replace(claim.status, phase=Phase.CONVICTED))
    said = explain(view, over, market.job(job_id).terms, now, {}, None)
    assert said.stakes.startswith("nothing any more") and "0x" in said.stakes, "an account without a name"
    late = explain(view, claim, market.job(job_id).terms, int(view.game.deadline) + 1, NAMES, None)
    assert "has run out" in late.clock and "anyone may end the game now" in late.clock
