"""One game on the deployed Court, move by move, between two players who only see what the chain logs.

Contract: `play` opens the game as the Challenges contract would, plays it to its end and returns the Court's
decision in the form of the pure referee (`tests.fakes.arena`). A player without a legal move loses by the
clock, which really runs out. In place of Challenges, which refuses the verdict of a game that it does not
know, code stands that takes any.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from assay.chain.contracts.game_calls import call_of
from assay.dispute.disputant import Disputant
from assay.dispute.replay import Replay
from assay.protocol.dispute import Move, Timeout
from assay.protocol.game_state import Game, GameView
from assay.protocol.types import Address, Seconds
from tests.fakes.games import decided, fresh, moved
from tests.twin.deployed import ACCOUNTS, BOUNDS, DeployedMarket, Outcome, game_of

CHALLENGER, DEFENDER = ACCOUNTS[1], ACCOUNTS[2]
MOVE_TIME = Seconds(100_000)


class CourtTable:
    """A deployed Court at which anybody's game can be opened."""

    def __init__(self, deployed: DeployedMarket) -> None:
        self._deployed = deployed
        self._challenges = Address(deployed.contracts["Challenges"].address)
        deployed.node.ask("anvil_impersonateAccount", self._challenges)
        deployed.node.ask("anvil_setBalance", self._challenges, hex(10**24))
        deployed.node.ask("anvil_setCode", self._challenges, "0x00")  # STOP

    def play(self, game: Game, defender: Replay, challenger: Replay) -> GameView:
        """The view after the verdict. Raises AssertionError if the Court does not open or end the game."""
        seated = replace(game, challenger=CHALLENGER, defender=DEFENDER, move_time=MOVE_TIME)
        outcome = self._send("open", (seated,), self._challenges)
        assert not outcome.error, outcome.error
        begun = game_of(outcome, None)
        assert begun is not None
        game_id = next(values["gameId"] for name, values in outcome.logs if name == "Court.GameOpened")
        view = fresh(game_id, begun)
        players = {
            DEFENDER: Disputant(DEFENDER, lambda _: defender),
            CHALLENGER: Disputant(CHALLENGER, lambda _: challenger),
        }
        while not view.decided:
            mover = view.game.mover
            move = players[mover].move(view)
            refusal = ""
            if move is not None:
                outcome = self._move(view, move, mover)
                refusal = outcome.error
                if not refusal:
                    view = _after(view, move, outcome)
                    continue
            view = self._timed_out(view, refusal)
        return view

    def _timed_out(self, view: GameView, refusal: str) -> GameView:
        self._deployed.mine(BOUNDS.clock_lag, int(MOVE_TIME) + 1)
        ticked = self._deployed.send("Clock", "tick", (), ACCOUNTS[3])
        assert not ticked.error, ticked.error
        self._deployed.mine(BOUNDS.clock_lag, BOUNDS.clock_lag)
        outcome = self._move(view, Timeout(), ACCOUNTS[3])
        assert not outcome.error, outcome.error
        ended = _after(view, Timeout(), outcome)
        return replace(ended, reason=f"timeout after {refusal}" if refusal else "timeout")

    def _move(self, view: GameView, move: Move, by: Address) -> Outcome:
        return self._send(*call_of(view.game_id, view.game, move), by)

    def _send(self, function: str, arguments: tuple[Any, ...], by: Address) -> Outcome:
        return self._deployed.send("Court", function, arguments, by)


def _after(view: GameView, move: Move, outcome: Outcome) -> GameView:
    for name, values in outcome.logs:
        if name == "Court.GameDecided":
            return decided(view, values["challengerWon"], values["reason"])
    game = game_of(outcome, view.game)
    assert game is not None, "a move that was taken is logged"
    return moved(view, move, game)
