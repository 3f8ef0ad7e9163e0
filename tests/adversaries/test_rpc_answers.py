"""Attack 47: no answer of an RPC node ends a node, sends anything twice, or is remembered when it was
false."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.chain.contracts.artifacts import Artifacts
from tests.adversaries.rpc_answers import Life
from tests.marked import long


@pytest.mark.parametrize("witness", [False, True])
@pytest.mark.parametrize("share", [long(0.02), 0.2, 0.9])
def test_attack_47_no_answer_of_an_rpc_node_ends_anything(
    artifacts: Artifacts, tmp_path: Path, share: float, witness: bool
) -> None:
    life = Life(artifacts, tmp_path, seed=int(100 * share), witness=witness)
    truth = [part for part in life.look() if hasattr(part, "job_id")]
    life.rpc.share = share
    life.live(rounds=8 if share > 0.1 else 48)
    assert life.rpc.damaged > 10, "the faults were planted"
    assert not life.escaped, life.escaped
    assert life.recovers()
    assert life.sent_once()
    if witness:
        assert life.believes(truth), "no lie was kept that a second endpoint has contradicted"
