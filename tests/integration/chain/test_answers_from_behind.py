"""Two nodes behind one address, one of them some blocks behind: a real chain, and its readers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.chain.contracts.artifacts import Artifacts
from assay.chain.contracts.view import ChainView
from assay.chain.eth.endpoints import PROBES, RetryPolicy, http_endpoints
from assay.chain.eth.head_tracker import EndpointLagging
from assay.chain.eth.rpc import HttpRpc
from assay.protocol.types import ZERO_ADDRESS
from tests.adversaries.chain_day import ChainDay
from tests.fakes.anvil import Anvil
from tests.fakes.balanced_rpc import Balancer


def view_of(day: Any, artifacts: Artifacts, url: str, folder: Path) -> ChainView:
    endpoints = http_endpoints([url], RetryPolicy(probes=PROBES))
    return ChainView(endpoints, day.deployment, artifacts, ZERO_ADDRESS, folder / "events.db", max_age_s=0.0)


@pytest.mark.long
@pytest.mark.parametrize("blocks", [3, 8, 20])
def test_attack_T47_every_second_answer_from_behind_hides_no_job(
    anvil: Anvil, rpc: HttpRpc, artifacts: Artifacts, tmp_path: Path, blocks: int
) -> None:
    day = ChainDay(rpc, artifacts, tmp_path / "day")
    with Balancer(anvil.url, blocks) as balancer:
        url = balancer.url
        node = view_of(day, artifacts, url, tmp_path / "node")
        assert not node.job_ids()
        rpc.request("anvil_mine", ["0x5"])
        job_id = day.post()
        rpc.request("anvil_mine", ["0x1"])
        # One command, in a home that knows nothing; and a node that looks now and then.
        assert list(view_of(day, artifacts, url, tmp_path / "new").job_ids()) == [job_id]
        whole = view_of(day, artifacts, anvil.url, tmp_path / "whole")
        node.refresh()
        assert list(node.job_ids()) == [job_id] and node.block == whole.block
        assert node.events() == whole.events() and balancer.behind > 10
        balancer.every = 1  # only the one that is behind is left: what was read is not forgotten
        with pytest.raises(EndpointLagging, match=f"is behind by {blocks} blocks"):
            view_of(day, artifacts, url, tmp_path / "node").job_ids()
