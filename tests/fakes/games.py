"""A game as its events describe it, move by move."""

from __future__ import annotations

from dataclasses import replace

from assay.protocol.dispute import Move, RevealLeaf, RevealSteps, RevealTrace, Split
from assay.protocol.game_state import Game, GameView, Opened


def fresh(game_id: int, game: Game) -> GameView:
    """The view of a game that was just opened."""
    return GameView(game_id, game, (), (), b"", 0, False, False, "")


def moved(view: GameView, move: Move, game: Game) -> GameView:
    """The view after a move that left the game as `game`."""
    digests: tuple[bytes, ...] = ()
    shown = view.opened
    if isinstance(move, RevealSteps):
        digests = move.roots
    elif isinstance(move, RevealTrace | Split):
        digests = move.children
        shown = (*shown, Opened(game.digest, digests))
    data = move.data if isinstance(move, RevealLeaf) else view.leaf_data
    return replace(view, game=game, digests=digests, opened=shown, leaf_data=data, moves=view.moves + 1)


def decided(view: GameView, challenger_won: bool, reason: str) -> GameView:
    """The view after the move that ended the game."""
    moves = view.moves + 1
    return replace(view, decided=True, challenger_won=challenger_won, reason=reason, moves=moves)
