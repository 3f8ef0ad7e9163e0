"""How long a solver trains without a look: looks take a small part of the time, and come before any clock."""

from __future__ import annotations

from dataclasses import replace

from assay.protocol.types import Seconds
from assay.solver.looks import LONGEST_S, OF_A_CLOCK, PART, stretch_s
from tests.unit.solver.test_solver_policy import terms


def test_a_look_takes_a_small_part_and_comes_in_time() -> None:
    slow = replace(terms(), task_time=Seconds(3_600), outer_time=Seconds(600), move_time=Seconds(1_800))
    assert stretch_s(0.0, slow) == 0.0
    assert stretch_s(0.25, slow) == PART * 0.25
    assert stretch_s(9.0, slow) == LONGEST_S
    for name in ("task_time", "outer_time", "move_time"):
        assert stretch_s(9.0, replace(slow, **{name: Seconds(60)})) == 60 / OF_A_CLOCK, name
