"""A client's forced error in twin and chain: planted, committed, revealed, convicted, deposit returned (rule
7.4)."""

from __future__ import annotations

import random

from assay.protocol.demands import StateLeaf
from assay.protocol.twin import events as e
from assay.protocol.types import Kind, Phase, Role
from tests.twin.conftest import Stage
from tests.twin.deployed import ACCOUNTS
from tests.twin.player import Player


def test_a_revealed_forced_error_pays_half_a_stake_and_its_deposit_comes_back(
    stage: Stage,
) -> None:
    twin = stage.enter()
    player = Player(twin, random.Random(5))
    post, client = player.posting()
    while not twin.act(post, client):
        post, client = player.posting()
    ((job_id, job),) = twin.market_state.jobs.items()
    solver = next(a for a in ACCOUNTS[1:] if a != client and twin.act(e.TakeShard(job_id, 0), a))
    salt = bytes(range(32))
    commitment = twin.market_state.forced_error_commitment(client, solver, job_id, 0, 0, salt)
    assert twin.act(e.ForcedError(commitment, job.terms.solver_stake), client)
    work = [d for d in player.useful() if isinstance(d[0], e.Commit) and d[0].claim.shard == 0]
    ((commit, by),) = work
    assert twin.act(commit, by)
    claim_id = twin.market_state.current(job_id, Kind.TASK, 0, 0)
    assert claim_id is not None
    claim = twin.market_state.claims[claim_id].claim
    assert not twin.act(e.RevealForcedError(claim, salt[::-1]), client)
    assert twin.act(e.RevealForcedError(claim, salt), client)
    assert twin.market_state.forcers[claim_id] == client

    before = twin.market_state.funds
    demander = next(a for a in ACCOUNTS[1:] if a not in (client, solver))
    tree = player.scene.segments[claim.segments_root]
    assert twin.act(e.Demand(claim, 0, tree.levels[0][0], tuple(tree.proof(0)), (StateLeaf(0, 0),)), demander)
    ((demand_id, asked),) = twin.market_state.demands.items()
    twin.wait(int(asked.deadline - twin.time) + 1)
    assert twin.act(e.ExpireDemand(demand_id, asked, claim), demander)
    assert twin.market_state.claims[claim_id].status.phase == Phase.CONVICTED
    lost = before.active(solver, Role.SOLVER) - twin.market_state.funds.active(solver, Role.SOLVER)
    assert lost == job.terms.solver_stake // 2 and twin.market_state.funds.ledger.burnt == before.ledger.burnt
    assert twin.act(e.FinishForcedError(client, commitment), demander)
    assert twin.accepted["RevealForcedError"] >= 1
