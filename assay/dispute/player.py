"""Playing a game through the Market port: one idempotent step a call.

Contract: a step makes the move that is this account's to make, or takes the win when the other side's clock
has run out, and does nothing otherwise. Taking it again, also after a crash, repeats no move: a move's intent
is the game as it stands, since after a reorganisation its number may be another game's. Not guaranteed: that
it is taken in time; the caller watches the clock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256

from assay.protocol.dispute import Move, Timeout
from assay.protocol.game_state import GameView, returns_bond
from assay.protocol.ports import Market
from assay.protocol.types import ClockView, Seconds


@dataclass(frozen=True)
class Played:
    """What one step came to. `move`: name of the move made; empty if none was."""

    view: GameView
    move: str
    reason: str


def overdue(view: GameView, clock: ClockView) -> Timeout | None:
    """The move of anyone once the clock of whoever had to move has run out."""
    return Timeout() if not view.decided and clock.passed(view.game.deadline) else None


def without_move(market: Market, view: GameView) -> Played | None:
    """One step of a game in which we have nothing to work out; None where our move is
    due. Raises what the port raises."""
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
    """Make a move that is ours; None: there is none. Raises what the port raises."""
    if move is None:
        return Played(view, "", f"there is nothing sound to say in {view.game.phase.name}")
    send(market, view, move)
    return Played(view, type(move).__name__, f"our move in {view.game.phase.name}")


def missed(market: Market, deadline: Seconds, now: Seconds) -> bool:
    """Whether a deadline has passed; has the market's clock ticked where it waits for that alone."""
    clock = market.clock()
    if clock.awaits_tick(deadline, now):
        market.tick(f"tick/{clock.due_block}")
    return clock.passed(deadline)


def play(market: Market, move_in: Callable[[GameView], Move | None], game_id: int, now: Seconds) -> Played:
    """One step of a game at chain time `now`; `move_in` works our move out (``dispute.disputant``). Raises
    what the port and the replay raise."""
    view = market.game(game_id)
    others = not view.decided and view.game.mover != market.me
    if others and now > view.game.deadline and not missed(market, view.game.deadline, now):
        return Played(view, "", "the other side's time is over, and its deadline passes a few blocks after")
    return without_move(market, view) or with_move(market, view, move_in(view))


def send(market: Market, view: GameView, move: Move) -> None:
    """Send a move of a game as it stands in `view`."""
    stands = sha256(repr(view.game).encode()).hexdigest()[:16]
    intent = f"move/{view.game_id}/{view.moves}/{type(move).__name__}/{stands}"
    market.move(intent, view.game_id, view.game, move)
