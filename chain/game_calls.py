"""How a move is sent: the Court's entry point for it, and that entry point's arguments.

Contract: pure. A move within a tree is sent with the game's front alone wherever the Court takes that; what
is sent is accepted and refused exactly as the move with the whole game would be.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from eth_utils.crypto import keccak

from protocol import trees
from protocol.dispute import (
    Move,
    OpenOutput,
    Pick,
    PickStep,
    Prove,
    ProveOutput,
    RevealLeaf,
    RevealSteps,
    RevealTrace,
    Split,
    Timeout,
)
from protocol.encoding import words
from protocol.game import SPLIT_LEVELS
from protocol.types import Front, Game, GamePhase

_WHOLE: dict[type, str] = {
    RevealSteps: "revealSteps",
    PickStep: "pickStep",
    RevealTrace: "revealTrace",
    Pick: "pick",
    OpenOutput: "openOutput",
    ProveOutput: "proveOutput",
    RevealLeaf: "revealLeaf",
    Prove: "prove",
    Timeout: "timeout",
}
_FRONT_BYTES = 32 * len(fields(Front))


def matter_of(game: Game) -> bytes:
    """Keccak-256 of what comes before the game's front."""
    return keccak(words(game)[:-_FRONT_BYTES])


def game_hash(game: Game) -> bytes:
    """What the Court keeps of a game."""
    return keccak(matter_of(game) + words(game.front))


def call_of(game_id: int, game: Game, move: Move) -> tuple[str, tuple[Any, ...]]:
    """The Court's function for a move of game `game_id`, which stands as `game`, and its arguments."""
    if isinstance(move, Split):
        return "splitWithin", (game_id, matter_of(game), game.front, move.children)
    if isinstance(move, Pick) and _stays_within(game, move):
        path = tuple(trees.build(move.children).proof(move.child))
        digest = move.children[move.child]
        return "pickWithin", (game_id, matter_of(game), game.front, move.child, digest, path)
    arguments = (getattr(move, field.name) for field in fields(move))
    return _WHOLE[type(move)], (game_id, game, *arguments)


def _stays_within(game: Game, pick: Pick) -> bool:
    """Whether the pick ends neither the game nor the tree, and is of the shape that the Court expects."""
    height = min(SPLIT_LEVELS, game.level)
    level = game.level - height
    if pick.node or pick.node_proof or len(pick.children) != 1 << height or not 0 <= pick.child < 1 << height:
        return False
    if game.phase == GamePhase.PICK_NODE and level == 0:
        return False
    return game.index + (pick.child << level) < game.leaves
