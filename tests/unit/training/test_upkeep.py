"""Which jobs nodes go on watching."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from protocol.types import Address
from training.upkeep import concerns

ME, OTHER, THIRD = (Address("0x" + digit * 40) for digit in "123")


def _job(closed: bool) -> Any:
    return SimpleNamespace(progress=SimpleNamespace(closed=closed))


def _game(challenger: Address, defender: Address, decided: bool) -> Any:
    return SimpleNamespace(decided=decided, game=SimpleNamespace(challenger=challenger, defender=defender))


def test_an_open_job_concerns_everybody() -> None:
    assert concerns(ME, _job(closed=False), [])


@pytest.mark.parametrize(
    ("game", "wanted"),
    [
        (_game(ME, OTHER, decided=False), True),
        (_game(OTHER, ME, decided=False), True),
        (_game(ME, OTHER, decided=True), False),
        (_game(OTHER, THIRD, decided=False), False),
    ],
)
def test_a_closed_job_is_watched_until_our_games_are_over(game: Any, wanted: bool) -> None:
    """A game on a fallen claim outlasts its job: its bond comes back only when somebody ends it."""
    assert concerns(ME, _job(closed=True), [game]) is wanted
