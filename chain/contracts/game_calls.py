"""Encodes a game's moves as calls of the Court.

Contract: pure. A call has only the parts of the game that its entry point takes; a picked child comes with
its siblings, an element with its 32-byte word. The Court accepts and refuses calls exactly as
``protocol.game`` says of the moves.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from eth_utils.crypto import keccak

from assay.protocol import trees
from assay.protocol.dispute import (
    Move,
    OpenOutput,
    Pick,
    PickStep,
    Prove,
    ProveChildren,
    ProveOutput,
    RevealLeaf,
    RevealSteps,
    RevealTrace,
    Split,
    Timeout,
)
from assay.protocol.encoding import words
from assay.protocol.game import leaf_bytes, opened_levels
from assay.protocol.game_state import Game, GamePhase
from assay.protocol.types import ZERO_DIGEST

_WHOLE: dict[type, str] = {
    ProveChildren: "proveChildren",
    OpenOutput: "openOutput",
    ProveOutput: "proveOutput",
    Timeout: "timeout",
}
_WITH_CONTEXT: dict[type, str] = {
    RevealSteps: "revealSteps",
    PickStep: "pickStep",
    RevealTrace: "revealTrace",
    RevealLeaf: "revealLeaf",
}
_LEAF_WORDS = trees.LEAF_BYTES // 32
_WIDTHS = (4, 4, 2, 1, 1)
"""Bytes per element, by the dtype in a node's second byte."""


def params_hash_of(game: Game) -> bytes:
    """Keccak-256 of a game's params."""
    return keccak(words(game.params))


def context_hash_of(game: Game) -> bytes:
    """Keccak-256 of the params' hash and the context, which moves within a tree bring beside the cursor."""
    return keccak(params_hash_of(game) + words(game.context))


def call_of(game_id: int, game: Game, move: Move) -> tuple[str, tuple[Any, ...]]:
    """The Court's function and arguments for a move in game `game_id` with state `game`."""
    match move:
        case Split(children):
            return "split", (game_id, context_hash_of(game), game.cursor, children)
        case Pick(_, child, node, node_proof):
            digest, siblings = _path(game, move)
            if _stays_within(game, move):
                return "pickWithin", (game_id, context_hash_of(game), game.cursor, child, digest, siblings)
            return "pick", (game_id, game, child, digest, siblings, node, node_proof)
        case Prove(data, node, element, openings):
            word, proof = _word(game, data, node, element)
            return "prove", (game_id, game, word, proof, node, element, openings)
    arguments = tuple(getattr(move, field.name) for field in fields(move))
    if type(move) in _WITH_CONTEXT:
        return _WITH_CONTEXT[type(move)], (
            game_id,
            params_hash_of(game),
            game.context,
            game.cursor,
            *arguments,
        )
    return _WHOLE[type(move)], (game_id, game, *arguments)


def _path(game: Game, pick: Pick) -> tuple[bytes, tuple[bytes, ...]]:
    """Digest and siblings of the picked child; values the Court refuses if the number of children is
    wrong."""
    count = 1 << opened_levels(game.level)
    if len(pick.children) != count or not 0 <= pick.child < count:
        return ZERO_DIGEST, ()
    return pick.children[pick.child], tuple(trees.build(pick.children).proof(pick.child))


def _stays_within(game: Game, pick: Pick) -> bool:
    """True if the pick ends neither the game nor the tree and has the shape that the Court expects."""
    height = opened_levels(game.level)
    level = game.level - height
    if pick.node or pick.node_proof or len(pick.children) != 1 << height or not 0 <= pick.child < 1 << height:
        return False
    if game.phase == GamePhase.PICK_NODE and level == 0:
        return False
    return game.index + (pick.child << level) < game.leaves


def _word(game: Game, data: bytes, node: bytes, element: int) -> tuple[bytes, tuple[bytes, ...]]:
    """The 32-byte word with the element, and its siblings in the Court's Keccak tree over the leaf's 64
    words.

    Values that the Court refuses if the leaf is not whole.
    """
    width = _WIDTHS[node[1]] if len(node) > 1 and node[1] < len(_WIDTHS) else 1
    place = (element * width - game.index * trees.LEAF_BYTES) // 32
    if len(data) != leaf_bytes(game) or not 0 <= place < _LEAF_WORDS:
        return ZERO_DIGEST, ()
    padded = data.ljust(trees.LEAF_BYTES, b"\0")
    row = [padded[i : i + 32] for i in range(0, trees.LEAF_BYTES, 32)]
    word, proof = row[place], []
    while len(row) > 1:
        proof.append(row[place ^ 1])
        row = [keccak(row[i] + row[i + 1]) for i in range(0, len(row), 2)]
        place //= 2
    return word, tuple(proof)
