"""Events of nodes in words."""

from __future__ import annotations

import pytest

from assay.scenario.narrator import Narrator

TRAINED = {"event": "trained", "shard": 1, "step": 8}


@pytest.mark.parametrize(
    ("told", "said"),
    [({}, "step 8"), ({"loss": 1.25}, "step 8: loss 1.250"), ({"loss": "nan"}, "step 8: loss nan")],
)
def test_a_segment_is_told_with_its_loss_where_the_job_has_one(told: dict[str, object], said: str) -> None:
    line = Narrator().line("solver-1", {**TRAINED, **told})
    assert line is not None and line.endswith(f"trained shard 1 to {said}")
