"""The market's clock on both sides (rule 7.4): a halt of the chain in each kind of clock, and attempts to
use the rule to win or to delay."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from assay.protocol.dispute import PickStep, RevealSteps, Timeout
from assay.protocol.types import Address, Kind, Phase, Role
from spec import events as e
from spec.refusal import Refused
from tests.fakes.story import ANN, BOB, VERA, WHISTLER
from tests.twin.conftest import Stage
from tests.twin.deployed import BOUNDS
from tests.twin.test_demands import shown_by
from tests.twin.told import Told, begin_on

HALT_S = 600
Doing = tuple[e.Event, Address]
Clocks = Callable[[Told], tuple[int, Doing, Doing]]
"""Starts a clock: how long it runs, what is owed until its end, and what is done about it after that."""


def a_game(told: Told) -> tuple[int, Doing, Doing]:
    """The defender owes its first move."""
    game_id = told.challenge(told.commit(Kind.TASK, 0, ANN))
    game = told.market_state.games[game_id].game
    return game.move_time, (told.answering(game_id), ANN), (e.Play(game_id, game, Timeout()), WHISTLER)


def an_answered_game(told: Told) -> tuple[int, Doing, Doing]:
    """The challenger owes its move: the end of W4."""
    game_id = told.challenge(told.commit(Kind.TASK, 0, ANN))
    shown = told.answer(game_id)
    assert isinstance(shown, RevealSteps)
    game = told.market_state.games[game_id].game
    pick = e.Play(game_id, game, PickStep(shown.roots, 0))
    return game.move_time, (pick, WHISTLER), (e.Play(game_id, game, Timeout()), ANN)


def a_vote(told: Told) -> tuple[int, Doing, Doing]:
    claim_id = told.commit(Kind.TASK, 0, ANN)
    told.seed(claim_id)
    vote = e.Vote(claim_id, told.market_state.claims[claim_id].status.seed, False, ())
    return told.terms.vote_time, (vote, VERA), (e.Tally(told.claim(claim_id)), ANN)


def an_abstention(told: Told) -> tuple[int, Doing, Doing]:
    seconds, (vote, _), tally = a_vote(told)
    assert isinstance(vote, e.Vote)
    return seconds, (e.Abstain(told.claim(vote.claim_id)), VERA), tally


def a_task(told: Told) -> tuple[int, Doing, Doing]:
    """Bob took his shard last, so that its clock runs from then."""
    return told.terms.task_time, (told.committing(Kind.TASK, 1), BOB), (e.Expire(told.job_id, 1), ANN)


def a_demand(told: Told) -> tuple[int, Doing, Doing]:
    told.tell(told.demand(told.commit(Kind.TASK, 0, ANN)), WHISTLER)
    ((demand_id, asked),) = told.market_state.demands.items()
    claim = told.claim(asked.claim_id)
    answer = e.Supply(demand_id, asked, claim, shown_by(told.scene, asked))
    return told.terms.move_time, (answer, ANN), (e.ExpireDemand(demand_id, asked, claim), WHISTLER)


CLOCKS: tuple[Clocks, ...] = (a_game, an_answered_game, a_vote, an_abstention, a_task, a_demand)
SOON = ("DeadlineNotPassed", "NotDue")
LATE = ("DeadlinePassed", "TooLate")


@pytest.fixture(params=CLOCKS, ids=lambda clock: clock.__name__)
def clock(request: pytest.FixtureRequest, stage: Stage) -> Iterator[tuple[Told, int, Doing, Doing]]:
    told = begin_on(stage.enter(), task_time=20_000)
    yield told, *request.param(told)


def said(told: Told, doing: Doing) -> str:
    """The market's refusal in the next block; empty if it succeeds."""
    try:
        told.tell(*doing)
    except Refused as refusal:
        return refusal.error
    return ""


def test_W4_whoever_was_due_in_a_halt_has_its_blocks_after_it(
    clock: tuple[Told, int, Doing, Doing],
) -> None:
    told, seconds, owed, against = clock
    told.halt(seconds + HALT_S)
    assert said(told, against) in SOON, "in the first block after the halt"
    told.tell(e.Tick(), against[1])
    for _ in range(BOUNDS.clock_lag - 2):
        assert said(told, against) in SOON
    assert said(told, owed) == "", "in the last block before the tick counts"


def test_W4_whoever_stays_silent_after_a_halt_loses(clock: tuple[Told, int, Doing, Doing]) -> None:
    told, seconds, owed, against = clock
    told.halt(seconds + HALT_S)
    told.tell(e.Tick(), against[1])
    told.rest(BOUNDS.clock_lag - 1)
    assert said(told, owed) in LATE
    before = told.burnt
    assert said(told, against) == ""
    assert told.burnt > before


def test_a_tick_before_the_halt_and_many_after_it_win_nothing(
    clock: tuple[Told, int, Doing, Doing],
) -> None:
    told, seconds, owed, against = clock
    told.tell(e.Tick(), against[1])
    told.halt(seconds + HALT_S)
    told.rest(BOUNDS.clock_lag)
    assert said(told, against) in SOON, "that tick was in time"
    told.tell(e.Tick(), against[1])
    assert said(told, (e.Tick(), against[1])) == "TickedLately"
    assert said(told, owed) == ""


def test_ticks_of_who_is_late_put_its_deadline_off_by_twice_the_lag_at_most(
    clock: tuple[Told, int, Doing, Doing],
) -> None:
    told, seconds, owed, against = clock
    told.tell(e.Tick(), owed[1], seconds)  # in the last second
    blocks = 0
    while (error := said(told, against)) in SOON:
        blocks += 1
        said(told, (e.Tick(), owed[1]))
        blocks += 1
    assert error == "" and blocks <= 2 * BOUNDS.clock_lag
    assert said(told, owed) != ""


def test_nothing_is_lost_on_a_chain_that_halts_again_and_again(stage: Stage) -> None:
    told = begin_on(stage.enter(), task_time=20_000)
    claim_id = told.commit(Kind.TASK, 0, ANN)
    for _ in range(3):
        told.halt(5_000)
    told.seed(claim_id)
    told.halt(told.terms.vote_time + HALT_S)
    told.vote(claim_id)
    told.tell(e.Tally(told.claim(claim_id)), ANN)
    assert told.phase(claim_id) == Phase.ACCEPTED and told.burnt == 0
    assert told.market_state.funds.active(VERA, Role.VERIFIER) == 5_000
