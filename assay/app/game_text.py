"""Describes a game's state: whose move it is, what kind, or how it ended."""

from __future__ import annotations

from assay.protocol.game_state import GamePhase, GameView

WHAT_IS_ASKED = {
    GamePhase.STEPS: "reveal the state root after each step of the segment",
    GamePhase.PICK_STEP: "point at the first wrong step",
    GamePhase.TRACE: "commit to the step's trace",
    GamePhase.PICK_NODE: "point at the first wrong part of the trace",
    GamePhase.SPLIT_NODE: "open that part of the trace",
    GamePhase.PICK_LEAF: "point at the first wrong part of the node's output",
    GamePhase.SPLIT_LEAF: "open that part of the output",
    GamePhase.REVEAL_LEAF: "reveal the disputed leaf",
    GamePhase.PROVE: "prove one element wrong",
    GamePhase.PICK_OUTPUT: "point at the first wrong slot of the claimed state",
    GamePhase.SPLIT_OUTPUT: "open the claimed state",
}


def side_to_move(view: GameView) -> str:
    """The player to move: `challenger` or `defender`."""
    return "challenger" if view.game.phase.challengers else "defender"


def state_of(view: GameView) -> str:
    """The next move, or the outcome."""
    if view.decided:
        return f"won by the {'challenger' if view.challenger_won else 'defender'} ({view.reason})"
    return f"{side_to_move(view)} to {WHAT_IS_ASKED[view.game.phase]}"
