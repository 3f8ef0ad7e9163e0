"""An evaluation, an inference and GRPO on a real chain with the real contracts: their bits."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.chain.contracts.artifacts import Artifacts
from assay.chain.eth.rpc import HttpRpc
from assay.client.fetching import fetch
from assay.protocol.types import Address, Chain, JobId, Phase
from assay.training import results
from tests.adversaries.chain_day import ChainDay
from tests.fakes.blocks import FakeBlocks
from tests.fakes.jobs import RESOURCE_LIMITS
from tests.unit.training import test_actors, test_evaluation, test_inference

pytestmark = pytest.mark.slow
JOBS: dict[str, tuple[Any, dict[str, int]]] = {
    "evaluation": (test_evaluation.files, {"steps_per_round": test_evaluation.STEPS, "segment_steps": 2}),
    "inference": (
        partial(test_inference.files, test_inference.WARM),
        {"steps_per_round": test_inference.STEPS, "segment_steps": 2},
    ),
    "grpo": (test_actors.files, {"steps_per_round": test_actors.PLAY.steps, "segment_steps": 1}),
}


def post(day: ChainDay, name: str) -> JobId:
    files, shape = JOBS[name]
    return day.post(files(), rounds=2, **shape)


def fetched(day: ChainDay, job_id: JobId, folder: Path) -> dict[str, torch.Tensor]:
    market = day.markets["client"]
    chain = Chain(31_337, {"Jobs": Address(market.contracts["Jobs"].address)})
    return fetch(market, FakeBlocks(day.network), job_id, folder, RESOURCE_LIMITS, chain, day.height())


@pytest.mark.parametrize("name", JOBS)
def test_the_result_is_that_of_one_process(
    rpc: HttpRpc, artifacts: Artifacts, tmp_path: Path, name: str
) -> None:
    day = ChainDay(rpc, artifacts, tmp_path)
    job_id = post(day, name)
    assert day.run(day.closed(job_id)), day.events[-10:]
    assert day.unsound(job_id) == []
    assert {view.status.phase for view in day.claims(job_id)} == {Phase.SETTLED}
    found = fetched(day, job_id, tmp_path / "result")
    if name == "evaluation":
        assert torch.allclose(found[results.LOSS], test_evaluation.losses().mean(), rtol=1e-3)
    elif name == "inference":
        assert torch.equal(found[results.TOKENS], test_inference.alone(test_inference.WARM))
    else:
        claims = [view.claim for view in day.claims(job_id)]
        roots = {(c.kind, c.round, c.shard): c.output_root for c in claims}
        assert roots == test_actors.Alone().roots
