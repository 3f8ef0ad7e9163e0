"""Plays a game through the Market port, one idempotent step per call.

Contract: a step makes this account's move, or takes the win if the other side's time is over; otherwise it
does nothing. Repeating it, also after a crash, repeats no move: a move's intent includes the game's state,
since a reorganisation may give its number to another game. Not guaranteed: that it is called in time; the
caller watches the clock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol

from assay.protocol.dispute import Move, Timeout
from assay.protocol.game_state import Game, GameView, returns_bond
from assay.protocol.ports import Market
from assay.protocol.types import ClockView, Seconds, TxResult


@dataclass(frozen=True)
class Played:
    """Result of one step. `move`: name of the move made; empty if none was."""

    view: GameView
    move: str
    reason: str


def overdue(view: GameView, clock: ClockView) -> Timeout | None:
    """Timeout move, if the time of the player to move is over."""
    return Timeout() if not view.decided and clock.passed(view.game.deadline) else None


def without_move(market: Market, view: GameView) -> Played | None:
    """Takes one step that needs no replay; None if this account's move is due. Raises what the port
    raises."""
    if view.decided:
        winner = "challenger" if view.challenger_won else "defender"
        return Played(view, "", f"decided for the {winner}: {view.reason}")
    if (late := overdue(view, market.clock())) is not None:
        ours = view.game.mover == market.me
        if ours and not returns_bond(market.claim(view.game.claim_id), view.game):
            return Played(view, "", "our own clock has run out")
        send(market, view, late)
        why = "the bond comes back, however it ends" if ours else "the other side's clock has run out"
        return Played(view, type(late).__name__, why)
    return None if view.game.mover == market.me else Played(view, "", "the other side is to move")


def with_move(market: Market, view: GameView, move: Move | None) -> Played:
    """Makes this account's move; None: there is none. Raises what the port raises."""
    if move is None:
        return Played(view, "", f"there is nothing sound to say in {view.game.phase.name}")
    send(market, view, move)
    return Played(view, type(move).__name__, f"our move in {view.game.phase.name}")


def missed(market: Market, deadline: Seconds, now: Seconds) -> bool:
    """True if a deadline has passed; ticks the market's clock if only that is missing."""
    clock = market.clock()
    if clock.awaits_tick(deadline, now):
        market.tick(f"tick/{clock.due_block}")
    return clock.passed(deadline)


def play(market: Market, move_in: Callable[[GameView], Move | None], game_id: int, now: Seconds) -> Played:
    """Takes one step of a game at chain time `now`; `move_in` computes this account's move
    (``dispute.disputant``).

    Raises what the port and the replay raise.
    """
    view = market.game(game_id)
    others = not view.decided and view.game.mover != market.me
    if others and now > view.game.deadline and not missed(market, view.game.deadline, now):
        return Played(view, "", "the other side's time is over, and its deadline passes a few blocks after")
    return without_move(market, view) or with_move(market, view, move_in(view))


class Mover(Protocol):
    """What sends moves: the market, or a crew's court."""

    def move(self, intent: str, game_id: int, game: Game, move: Move) -> TxResult: ...


def send(market: Mover, view: GameView, move: Move) -> None:
    """Sends a move for the game's state in `view`."""
    stands = sha256(repr(view.game).encode()).hexdigest()[:16]
    intent = f"move/{view.game_id}/{view.moves}/{type(move).__name__}/{stands}"
    market.move(intent, view.game_id, view.game, move)
