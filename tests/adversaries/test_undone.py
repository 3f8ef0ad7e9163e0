"""Attack 46: blocks are lost at each moment of a job's and a game's life, with everybody on, off, or some."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.chain.contracts.artifacts import Artifacts
from assay.chain.eth.rpc import HttpRpc
from tests.adversaries.chain_day import ChainDay
from tests.adversaries.undone import DEPTHS, KINDS, covered, play

pytestmark = pytest.mark.slow
EVERY = {"ShardAssigned", "Committed TASK", "SeedRecorded", "VoteShown", "Accepted"}
OF_A_GAME = {"GameOpened", "GameDecided", "Convicted"}
OF_A_DEMAND = {"Demanded", "Withheld", "Convicted"}
MOMENTS = {"honest": EVERY, "one ulp": EVERY | OF_A_GAME, "hidden states": EVERY | OF_A_DEMAND}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_attack_46_whatever_is_undone_comes_to_the_same_end(
    rpc: HttpRpc, artifacts: Artifacts, tmp_path: Path, kind: str
) -> None:
    day = ChainDay(rpc, artifacts, tmp_path, **KINDS[kind])
    told = play(day, 0)
    assert told.faults == [], day.events[-10:]
    assert told.looks > len(told.losses), "what nodes keep was compared"
    met = {moment for loss in told.losses for moment in loss.moments}
    assert met >= MOMENTS[kind], "each moment was met"
    assert sum(loss.undone for loss in told.losses) >= len(told.losses) // 2, list(covered([told]))
    assert {loss.depth for loss in told.losses} <= set(range(DEPTHS[-1] + 1))
    if kind != "honest":
        assert [event for event in day.events if event["event"] == "fault-planted"]
