"""The same end on a second implementation of the EVM, whatever its chain loses."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from assay.chain.contracts.artifacts import Artifacts
from assay.chain.eth.rpc import HttpRpc
from tests.adversaries.undone import KINDS, HardhatDay, play
from tests.hardhat.node import Hardhat

torch.set_num_threads(1)
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_attack_46_blocks_lost_on_hardhats_node_change_nothing(
    artifacts: Artifacts, tmp_path: Path, kind: str
) -> None:
    with Hardhat(tmp_path / "node.log", block_ms=0) as node:
        day = HardhatDay(HttpRpc(node.url), artifacts, tmp_path, **KINDS[kind])
        told = play(day, 0)
        assert told.faults == [], day.events[-10:]
        assert told.looks > len(told.losses), "what nodes keep was compared"
        assert sum(loss.undone for loss in told.losses) > 5 and day.lost > 50, "blocks were lost"
