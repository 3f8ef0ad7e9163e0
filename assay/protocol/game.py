"""What both sides of a dispute know of its game without playing it: how far a move opens a tree, what a leaf
may hold, and what has to be known of a program. The rules of the moves: ``spec.game`` and the Court.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from assay.protocol import trees
from assay.protocol.game_state import Game, Opening
from assay.protocol.refusal import Refused

MOVE_LEVELS = 6
"""Most levels that one move opens: 64 children."""


def opened_levels(level: int) -> int:
    """How many levels a move opens of a tree with `level` left: as few moves as MOVE_LEVELS allows, of even
    height."""
    moves = -(-level // MOVE_LEVELS)
    return -(-level // moves) if moves else 0


class IllegalMove(Refused):
    """The Court would revert; `error` is its custom error."""


@dataclass(frozen=True)
class NodeFacts:
    """What a node's encoding says about its output."""

    bytes: int
    element_bytes: int
    is_f32: bool
    is_bool: bool


Element = Callable[[Game, bytes, int, Sequence[Opening]], int]
"""The arbiter: bits of an element of the node's output from verified openings. Raises IllegalMove for
unsound openings."""
Facts = Callable[[bytes], NodeFacts]
"""Decodes a node. Raises IllegalMove(MalformedNode)."""


@dataclass(frozen=True)
class Arithmetic:
    """What the game must know about programs, given by ``dispute.evidence`` (or by a test)."""

    facts: Facts
    element: Element


def leaf_bytes(game: Game) -> int:
    """Length of the disputed leaf: all but the last are full."""
    return min(trees.LEAF_BYTES, game.size - game.index * trees.LEAF_BYTES)


def is_canonical(bits: int, facts: NodeFacts) -> bool:
    """Whether a tensor may hold these bits: a bool is 0 or 1, the only NaN is 0x7fc00000."""
    if facts.is_bool:
        return bits <= 1
    return not facts.is_f32 or (bits & 0x7FFFFFFF) <= 0x7F800000 or bits == 0x7FC00000
