"""Games on a claim that a rewind overtakes: both sides play on, and what they play from is their own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.protocol import trees
from assay.protocol.dispute import Timeout
from assay.protocol.game_state import GamePhase
from assay.protocol.types import ZERO_ADDRESS, ClaimView, JobId, Kind, Phase, Role, Wei
from assay.solver.service import SolverService
from assay.whistleblower.policy import Limits, Mode
from drills.solvers import FaultySolver, WeightPlan, WrongInputSolver, invent
from drills.whistleblowers import JunkChallenger, VoteChallenger
from tests.fakes.clock import FakeClock
from tests.fakes.jobs import RESOURCE_LIMITS, account
from tests.fakes.market import Played
from tests.fakes.market_day import MarketDay, secret

torch.set_num_threads(1)

GUESS, SALT = b"g" * 32, bytes(32)
BOND = 40
TIMES = {"move_time": 2_000, "challenge_window": 2_000}


@pytest.fixture
def day(tmp_path: Path) -> MarketDay:
    return MarketDay(tmp_path)


def task_of(day: MarketDay, job_id: JobId, name: str, round_: int) -> ClaimView | None:
    views = day.markets["client"].claims(job_id)
    of_task = (v for v in views if v.claim.kind == Kind.TASK and v.claim.round == round_)
    return next((view for view in of_task if view.claim.claimant == account(name)), None)


def begun(
    day: MarketDay, ann: Callable[..., SolverService] = SolverService, verifier: str = "", **terms: int
) -> JobId:
    """A job whose first round is closed, and bob's task in it, which is right, accused by nobody honest; bob
    is gone, and ann shows nobody her blocks."""
    job_id = day.post(rounds=2, **TIMES, **terms)
    if verifier:
        day.verifier(verifier)
    day.solver("ann", ann, blocks=day.blocks(withholds=True))
    day.solver("bob")
    assert day.run(lambda: day.market_state.jobs[job_id].view.progress.round == 1), day.events[-5:]
    del day.services["bob"]
    view, troll = task_of(day, job_id, "bob", 0), day.join("troll")
    assert view is not None
    tree = trees.build(view.roots)
    troll.announce("a", view.claim_id, 0, ZERO_ADDRESS, GUESS, SALT)
    proofs = tree.proof(0), tree.proof(1)
    troll.open_game("o", view.claim, 0, view.roots[0], proofs[0], view.roots[1], proofs[1], GUESS, SALT)
    return job_id


def accused(day: MarketDay, job_id: JobId) -> Played:
    """The game on ann's task of the second round, which begins now."""

    def opened() -> list[Played]:
        view = task_of(day, job_id, "ann", 1)
        games = day.market_state.games.values()
        return [p for p in games if view is not None and p.view.game.claim_id == view.claim_id]

    assert day.run(lambda: bool(opened())), day.events[-5:]
    (game,) = opened()
    return game


def rewound(day: MarketDay, job_id: JobId) -> ClaimView:
    """Bob's task falls by the clock; ann's task, which builds on it, is overtaken."""
    state, troll = day.market_state, day.markets["troll"]
    first = state.games[1].view.game
    state.advance(first.deadline - state.time + 1)
    troll.move("t", 1, first, Timeout())
    view = task_of(day, job_id, "ann", 1)
    assert view is not None and view.overtaken and view.status.open_games == 1
    assert troll.current(job_id, Kind.OUTER, 0, 0) is None, "what her task builds on is gone"
    return view


def test_a_challenger_wins_though_the_claims_sources_are_gone(
    day: MarketDay,
) -> None:
    job_id = begun(day, partial(FaultySolver, plan=WeightPlan(1, 0, 0, 5)))
    day.whistleblower("wendy")
    game = accused(day, job_id)
    rewound(day, job_id)
    day.whistleblower("wendy")  # what is in memory is gone as well
    assert day.run(lambda: game.view.decided), [s.status for s in day.services.values()]
    assert game.view.challenger_won and game.view.reason == "arithmetic"
    assert day.market_state.active[account("ann"), Role.SOLVER] == 1_900


def test_a_claimant_defends_its_overtaken_task_from_its_own_states(day: MarketDay) -> None:
    job_id = begun(day)
    blocks = day.services["ann"].blocks  # type: ignore[attr-defined]
    parts = (day.join("jack"), day.blocks(), FakeClock(day.market_state), day.folder / "jack", secret("jack"))
    limits = Limits(Mode.PLAY, Wei(BOND))
    whose = account("ann")
    jack = JunkChallenger(*parts, limits, RESOURCE_LIMITS, emit=day.events.append, round=1, accused=whose)
    day.services["jack"] = jack
    game = accused(day, job_id)
    assert day.named("fault-planted")
    view = rewound(day, job_id)
    day.solver("ann", blocks=blocks)
    assert day.run(lambda: game.view.decided, seconds=40, turns=400), day.events[-5:]
    assert not game.view.challenger_won and game.view.reason == "timeout"
    moves = [e["move"] for e in day.named("moved") if e["side"] == "defender"]
    assert moves.count("RevealLeaf") == 1, "it came to the last element"
    assert day.market_state.active[account("ann"), Role.SOLVER] == 2_000
    assert day.run(lambda: day.market_state.claims[view.claim_id].status.phase == Phase.VOID)


def test_a_verifier_defends_its_vote_from_states_that_nobody_publishes(day: MarketDay) -> None:
    job_id = begun(day, verifier="vera", verifiers=1)
    parts = (day.join("jack"), day.blocks(), FakeClock(day.market_state), day.folder / "jack", secret("jack"))
    options: dict[str, Any] = {"emit": day.events.append, "round": 1, "accused": account("ann")}
    jack = VoteChallenger(*parts, Limits(Mode.PLAY, Wei(BOND)), RESOURCE_LIMITS, **options)
    day.services["jack"] = jack
    game = accused(day, job_id)
    assert day.named("fault-planted") and game.view.game.defender == account("vera")
    rewound(day, job_id)
    day.verifier("vera")  # what is in memory is gone
    assert day.run(lambda: game.view.decided, seconds=40, turns=400), day.events[-5:]
    assert not game.view.challenger_won and game.view.reason == "timeout"
    assert "RevealLeaf" in [e["move"] for e in day.named("moved") if e["role"] == "verifier"]
    assert day.market_state.active[account("vera"), Role.VERIFIER] == 1_000


def test_who_asks_for_an_overtaken_input_has_its_bond_back(
    day: MarketDay,
) -> None:
    """What the input must have been nobody can say any more."""
    job_id = begun(day, partial(WrongInputSolver, patch=invent))
    wendy = day.whistleblower("wendy")
    game = accused(day, job_id)
    assert game.view.game.steps == 0, "its input is hidden"
    before = day.market_state.free[account("wendy")]
    rewound(day, job_id)
    assert day.run(lambda: game.view.game.phase == GamePhase.PICK_OUTPUT), "ann opens it"
    del day.services["ann"]
    assert day.run(lambda: game.view.decided, seconds=40), wendy.status
    assert not game.view.challenger_won and game.view.reason == "timeout"
    assert (game.bond, day.market_state.free[account("wendy")]) == (0, before + BOND)
