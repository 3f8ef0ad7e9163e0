"""Recipes of several loops on a real chain with the real contracts: their bits, also in slices under a lie.

Lies about loops and links fall in ``tests/unit/training``, on the market that ``tests/twin`` holds to these
contracts.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.chain.contracts.artifacts import Artifacts
from assay.chain.eth.rpc import HttpRpc
from assay.client.fetching import fetch
from assay.client.verifying import verify
from assay.protocol.types import Address, Chain, JobId, Kind, Phase, Terms, Wei
from assay.training.catalogue import CATALOGUE, WHOLE, algorithm_of
from drills.orders import AggregatePlan
from drills.solvers import FaultySolver
from tests.adversaries.chain_day import ChainDay
from tests.fakes.alone import (
    SEGMENT,
    STEPS,
    Alone,
    eager_alone,
    paths_alone,
    recipe_alone,
    stream_alone,
    whole_alone,
)
from tests.fakes.blocks import FakeBlocks
from tests.fakes.jobs import RESOURCE_LIMITS, RULES, DiLoCo, one_tensor_files, recipe_files
from tests.unit.training.test_streaming import streaming

torch.set_num_threads(1)
SIZES = dict.fromkeys((name for name, entry in CATALOGUE.items() if entry.one_step), (1, 1))
"""Steps of a round and of a segment, where they are not the tiny job's."""
SHARDS = {"diloco-trimmed": 3}
"""Of which one is left when the least and the greatest are cut off."""
ROUNDS = {"streaming": 4, "eager": 4, "diloco-late": 3, "delayed-nesterov": 4}
"""Of which the last ones begin from what came of the first ones."""
SPEEDS = {"delayed-nesterov": (1, 2)}
"""From which shard on by how much fewer steps are taken."""


def fallen(day: ChainDay, job_id: Any) -> list[tuple[Kind, int]]:
    claims = [view for view in day.claims(job_id) if view.status.phase == Phase.CONVICTED]
    assert {view.claim.claimant for view in claims} <= {day.markets["ann"].me}
    return [(view.claim.kind, view.claim.round) for view in claims]


def alone(name: str, terms: Terms) -> Alone:
    rule, size = RULES.get(name, DiLoCo()), SIZES.get(name, (STEPS, SEGMENT))
    if name == WHOLE:
        return whole_alone(rule, terms.seed, terms.rounds)
    if name == "streaming":
        return stream_alone(streaming(rule), terms.seed, terms.rounds)
    if name == "dipaco":
        return paths_alone(rule, terms.seed, terms.rounds)
    if name == "eager":
        return eager_alone(algorithm_of("eager", rule.lr, rule.momentum), terms.seed, terms.rounds)
    return recipe_alone(
        algorithm_of(name, rule.lr, rule.momentum, rule.every),
        terms.seed,
        terms.rounds,
        shards=terms.shards,
        size=size,
        slow=SPEEDS.get(name, (0, 1)),
        tiny=one_tensor_files(name, terms.shards),
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", CATALOGUE)
def test_every_settled_state_has_its_bits_on_a_real_chain(
    rpc: HttpRpc, artifacts: Artifacts, tmp_path: Path, name: str
) -> None:
    """Every root of every settled claim, at every segment's end, is that of the loop in one process."""
    day = ChainDay(rpc, artifacts, tmp_path)
    steps, segment = SIZES.get(name, (STEPS, SEGMENT))
    shards = SHARDS.get(name, 2)
    if shards > 2:
        day.two_at_once("ann")
    shape: dict[str, Any] = {
        "steps_per_round": steps,
        "segment_steps": segment,
        "shards": shards,
        "min_shards": shards,
    }
    shape |= {"solver_stake": 100 * (shards - 1), "rounds": ROUNDS.get(name, 2)}
    shape["slow"] = SPEEDS.get(name, (0, 1))
    job_id = day.post(recipe_files(name, shards), **shape)
    assert day.run(day.closed(job_id)), day.events[-10:]
    assert day.unsound(job_id) == []
    market = day.markets["client"]
    terms = market.job(job_id).terms
    expected = alone(name, terms)
    assert {v.status.phase for v in day.claims(job_id)} == {Phase.SETTLED}
    seen = {(v.claim.kind, v.claim.round, v.claim.shard): list(v.roots) for v in day.claims(job_id)}
    assert seen == expected.roots and len(seen) == terms.rounds * (terms.shards + 1)
    chain = Chain(31_337, {"Jobs": Address(market.contracts["Jobs"].address)})
    blocks = FakeBlocks(day.network)
    found = fetch(market, blocks, job_id, tmp_path / "model", RESOURCE_LIMITS, chain, day.height())
    assert all(torch.equal(x, y) for x, y in zip(found.values(), expected.theta, strict=True))
    files = recipe_files(name, shards)
    assert ({(12, 4), (8, 4)} <= {x.shape for x in files.inner.state}) == (name == "powersgd"), "low rank"
    genesis = files.genesis
    assert not all(torch.equal(x, y) for x, y in zip(found.values(), genesis, strict=False)), "it learnt"


def some_fell(day: ChainDay, job_id: JobId) -> bool:
    return bool(fallen(day, job_id))


@pytest.mark.slow
def test_slices_have_the_bits_of_one_outer_step_on_a_real_chain(
    rpc: HttpRpc, artifacts: Artifacts, tmp_path: Path
) -> None:
    """One liar among who makes the slices changes nothing of the model either: what it made falls, and what
    the other made stands."""
    models = []
    for slices in (1, 2):
        cheat: dict[str, Any] = {"ann": partial(FaultySolver, plan=AggregatePlan(0, 1))} if slices > 1 else {}
        day = ChainDay(rpc, artifacts, tmp_path / str(slices), solvers=cheat)
        job_id = day.post(recipe_files("diloco", slices=slices), outer_fee=Wei(1))
        if cheat:
            assert day.run(partial(some_fell, day, job_id)), day.events[-10:]
            (view,) = [view for view in day.claims(job_id) if view.status.phase == Phase.CONVICTED]
            assert view.claim.kind == Kind.OUTER, "a slice"
        assert day.run(day.closed(job_id)), day.events[-10:]
        assert day.unsound(job_id) == []
        settled = [v.claim for v in day.claims(job_id) if v.status.phase == Phase.SETTLED]
        outer = sorted((claim.round, claim.shard) for claim in settled if claim.kind == Kind.OUTER)
        assert outer == [(round_, number) for round_ in range(2) for number in range(slices)]
        market = day.markets["client"]
        chain = Chain(31_337, {"Jobs": Address(market.contracts["Jobs"].address)})
        folder = tmp_path / f"model-{slices}"
        blocks = FakeBlocks(day.network)
        models.append(fetch(market, blocks, job_id, folder, RESOURCE_LIMITS, chain, day.height()))
        verify(folder)
    whole, sliced = models
    assert list(whole) == list(sliced) and all(torch.equal(whole[name], sliced[name]) for name in whole)
