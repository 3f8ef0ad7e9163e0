"""What both sides of a dispute know of its game without playing it: how far a move opens a tree, and how long
a leaf is. The rules of the moves: ``spec.game`` and the Court.
"""

from __future__ import annotations

from assay.protocol import trees
from assay.protocol.game_state import Game

MOVE_LEVELS = 6
"""Most levels that one move opens: 64 children."""


def opened_levels(level: int) -> int:
    """How many levels a move opens of a tree with `level` left: as few moves as MOVE_LEVELS allows, of even
    height."""
    moves = -(-level // MOVE_LEVELS)
    return -(-level // moves) if moves else 0


def leaf_bytes(game: Game) -> int:
    """Length of the disputed leaf: all but the last are full."""
    return min(trees.LEAF_BYTES, game.size - game.index * trees.LEAF_BYTES)
