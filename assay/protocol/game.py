"""Computes the sizes of a dispute game: the levels that a move opens of a tree, and the length of a leaf.

The rules of the moves are in ``spec.game`` and the Court.
"""

from __future__ import annotations

from assay.protocol import trees
from assay.protocol.game_state import Game

MOVE_LEVELS = 6
"""Maximum number of levels that one move opens: 64 children."""


def opened_levels(level: int) -> int:
    """Number of levels that one move opens of a tree with `level` levels left.

    It takes as few moves as MOVE_LEVELS allows, of even height.
    """
    moves = -(-level // MOVE_LEVELS)
    return -(-level // moves) if moves else 0


def leaf_bytes(game: Game) -> int:
    """Length in bytes of the disputed leaf: all but the last leaf of a tensor are full."""
    return min(trees.LEAF_BYTES, game.size - game.index * trees.LEAF_BYTES)
