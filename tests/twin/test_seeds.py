"""Seeds from the block-hash history: of young blocks, old ones, and gone ones (rule 4.5, attack 30)."""

from __future__ import annotations

import random

import pytest

from protocol import events as e
from protocol.types import ZERO_DIGEST, Kind, Phase
from tests.twin.conftest import Stage
from tests.twin.deployed import ACCOUNTS
from tests.twin.player import Player

HISTORY = "0x0000F90827F1C53a10cb7A02335B175320002935"  # EIP-2935


@pytest.mark.parametrize("blocks, without_history", [(3, False), (258, False), (250, True), (258, True)])
def test_a_seed_is_the_hash_of_its_block_while_the_chain_knows_it(
    stage: Stage, blocks: int, without_history: bool
) -> None:
    """Mining 8,191 blocks would take minutes: the history contract is removed instead."""
    twin = stage.enter()
    if without_history:
        twin.deployed.node.ask("anvil_setCode", HISTORY, "0x")
        twin.history_blocks = 256
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
    gone = blocks + 1 - job.terms.seed_delay > twin.history_blocks
    assert status.phase == (Phase.COMMITTED if gone else Phase.SEEDED)
    assert status.draws == 1 and (status.seed == ZERO_DIGEST) == gone
