"""Events of nodes in words."""

from __future__ import annotations

import pytest

from drills.narrator import Narrator

TRAINED = {"event": "trained", "shard": 1, "step": 8}


@pytest.mark.parametrize(
    ("told", "said"),
    [({}, "step 8"), ({"loss": 1.25}, "step 8: loss 1.250"), ({"loss": "nan"}, "step 8: loss nan")],
)
def test_a_segment_is_told_with_its_loss_where_the_job_has_one(told: dict[str, object], said: str) -> None:
    line = Narrator().line("solver-1", {**TRAINED, **told})
    assert line is not None and line.endswith(f"trained shard 1 to {said}")


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("the other side's clock has run out", "takes the win: the other side's clock has run out"),
        (
            "the claim has fallen: the bond comes back",
            "ends the game: the claim has fallen: the bond comes back",
        ),
    ],
)
def test_whoever_ends_a_game_about_a_fallen_claim_is_not_said_to_win(reason: str, said: str) -> None:
    event = {"event": "moved", "game": 3, "side": "challenger", "move": "Timeout", "reason": reason}
    line = Narrator().line("verifier-1", event)
    assert line is not None and line.endswith(f"game 3, challenger: {said}")
