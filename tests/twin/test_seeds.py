"""Seeds from the block-hash history: of young blocks, old ones, and gone ones (rule 4.5, attack 30)."""

from __future__ import annotations

import random

import pytest

from protocol import events as e
from protocol.types import ZERO_DIGEST, Kind, Phase
from tests.twin.conftest import Stage
from tests.twin.deployed import ACCOUNTS
from tests.twin.player import Player


@pytest.mark.parametrize(
    "blocks", [3, 258, *(pytest.param(n, marks=pytest.mark.slow) for n in (8_190, 8_200))]
)
def test_a_seed_is_the_hash_of_its_block_while_the_history_holds_it(stage: Stage, blocks: int) -> None:
    twin = stage.enter()
    player = Player(twin, random.Random(5))
    post, client = player.posting()
    while not twin.act(post, client):
        post, client = player.posting()
    ((job_id, job),) = twin.world.jobs.items()
    solver = next(a for a in ACCOUNTS[1:] if twin.act(e.ClaimShard(job_id, 0), a))
    ((commit, by),) = [
        d for d in player.useful() if isinstance(d[0], e.Commit) and d[0].claim.shard == 0 and d[1] == solver
    ]
    assert twin.act(commit, by)
    claim_id = twin.world.current(job_id, Kind.TASK, 0, 0)
    assert claim_id is not None
    twin.wait(1, blocks)
    assert twin.act(e.RecordSeed(twin.world.claims[claim_id].claim, ZERO_DIGEST), client)
    status = twin.world.claims[claim_id].status
    gone = blocks + 1 - job.terms.seed_delay > 8_191
    assert status.phase == (Phase.COMMITTED if gone else Phase.SEEDED)
    assert status.draws == 1 and (status.seed == ZERO_DIGEST) == gone
