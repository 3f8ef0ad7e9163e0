"""Ten minutes of a storm over eight nodes: sixteen kinds of fault, and the bits of an undisturbed run."""

from __future__ import annotations

from pathlib import Path

import pytest

from drills.chaos import FAULTS, left_out, storm_of
from drills.market_run import settings

pytestmark = pytest.mark.slow
ROUNDS, STEPS, EVERY_S, SEED = 12, 32, 6.0, 40


def test_a_market_comes_through_a_storm_of_every_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in settings():
        monkeypatch.delenv(name)
    said: list[str] = []
    storm = storm_of(tmp_path / "devnet", SEED, ROUNDS, STEPS, EVERY_S, say=said.append)
    model, faults = storm.play()
    assert faults == [], said
    assert model == list(storm.expected) and len(model) == ROUNDS
    assert set(storm.struck) == {*FAULTS, "cheat"} - set(left_out()), storm.struck
