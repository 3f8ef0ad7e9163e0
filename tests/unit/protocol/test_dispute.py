"""Moves as values: each is made by one side, in phases that are that side's."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import get_args

import pytest

from assay.protocol import dispute
from assay.protocol.dispute import Move, PickStep, RevealSteps, Timeout
from assay.protocol.game_state import GamePhase
from spec import game

MOVES = [kind for kind in get_args(Move) if kind is not Timeout]


def test_every_class_of_the_module_is_a_move() -> None:
    defined = {c for c in vars(dispute).values() if isinstance(c, type) and c.__module__ == dispute.__name__}
    assert defined == set(get_args(Move)) and len(MOVES) == 10


@pytest.mark.parametrize("kind", MOVES, ids=lambda kind: kind.__name__)
def test_a_move_belongs_to_the_side_that_its_docstring_names(kind: type) -> None:
    sides = {phase.challengers for phase in game._PHASES[kind]}
    assert sides == {(kind.__doc__ or "").startswith("Challenger")}
    assert (kind.__doc__ or "").startswith(("Challenger: ", "Defender: "))


def test_in_every_phase_there_is_a_move() -> None:
    assert {phase for phases in game._PHASES.values() for phase in phases} == set(GamePhase)


def test_moves_are_compared_by_value_and_do_not_change() -> None:
    roots = (b"a" * 32,)
    other: object = PickStep(roots, 0)
    assert RevealSteps(roots) == RevealSteps(roots) != other
    with pytest.raises(FrozenInstanceError):
        RevealSteps(roots).roots = ()  # type: ignore[misc]
