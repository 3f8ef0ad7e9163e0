"""An evaluation, an inference and GRPO on a real chain with the real contracts: their bits, and lies."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.chain.contracts.artifacts import Artifacts
from assay.chain.eth.rpc import HttpRpc
from assay.client.fetching import fetch
from assay.protocol.types import Address, Chain, JobId, Kind, Phase
from assay.training import results
from assay.training.actors import ROLLOUT
from assay.training.evaluation import SUM
from assay.training.inference import TOKENS
from drills.solvers import AggregatePlan, FaultySolver, WeightPlan
from tests.adversaries.chain_day import ChainDay
from tests.fakes.blocks import FakeBlocks
from tests.fakes.jobs import RESOURCE_LIMITS
from tests.unit.training import test_actors, test_evaluation, test_inference

pytestmark = pytest.mark.slow
torch.set_num_threads(1)
JOBS: dict[str, tuple[Any, dict[str, int]]] = {
    "evaluation": (test_evaluation.files, {"steps_per_round": test_evaluation.STEPS, "segment_steps": 2}),
    "inference": (
        partial(test_inference.files, test_inference.WARM),
        {"steps_per_round": test_inference.STEPS, "segment_steps": 2},
    ),
    "grpo": (test_actors.files, {"steps_per_round": test_actors.PLAY.steps, "segment_steps": 1}),
}
LIES = {
    "evaluation": (3, SUM, 0),
    "inference": (4, TOKENS, 5),
    "grpo": (3, ROLLOUT, 4),
    "grpo-learner": (0, results.REWARD, 0),
}
"""Step, slot, element: one sum of losses, one byte, one token, one reward off by the lowest bit."""


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


@pytest.mark.parametrize("name", LIES)
def test_a_lie_falls_by_a_game(rpc: HttpRpc, artifacts: Artifacts, tmp_path: Path, name: str) -> None:
    step, slot, element = LIES[name]
    job = name.removesuffix("-learner")
    at, outer = JOBS[job][0]().slot_names.index(slot), name != job
    plan = AggregatePlan(at, element) if outer else WeightPlan(0, step, at, element)
    day = ChainDay(rpc, artifacts, tmp_path, solvers={"ann": partial(FaultySolver, plan=plan)})
    job_id = post(day, job)
    assert day.run(day.closed(job_id)), day.events[-10:]
    fallen = [view.claim for view in day.claims(job_id) if view.status.phase == Phase.CONVICTED]
    assert {claim.claimant for claim in fallen} == {day.markets["ann"].me}
    assert fallen[0].kind == (Kind.OUTER if outer else Kind.TASK)
    assert outer or fallen[0].round == 0, "who closes a round is a matter of turns"
    won = [game for game in day.markets["client"].games(job_id) if game.decided and game.challenger_won]
    assert {game.reason for game in won} == {"arithmetic"}
    assert day.unsound(job_id) == []
    assert any(event["event"] == "fault-planted" for event in day.events)
