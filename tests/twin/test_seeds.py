"""Seeds from RANDAO values in headers of recent, old and forgotten blocks (rule 4.5, attacks 29 and 30)."""

from __future__ import annotations

import random

import pytest

from assay.protocol import sampling
from assay.protocol.types import ZERO_DIGEST, Claim, ClaimId, Kind, Phase, Wei
from spec import events as e
from spec.attestations import SEED_PATIENCE
from tests.twin.conftest import Stage
from tests.twin.deployed import ACCOUNTS, ITS_OWN
from tests.twin.player import Player
from tests.twin.twin import Twin

HISTORY = "0x0000F90827F1C53a10cb7A02335B175320002935"  # EIP-2935
ANYBODY = ACCOUNTS[7]


def committed(stage: Stage, without_history: bool) -> tuple[Twin, ClaimId, Claim]:
    """A task whose seed block is still to come; without EIP-2935, hashes are known for 256 blocks."""
    twin = stage.enter()
    if without_history:
        twin.deployed.node.ask("anvil_setCode", HISTORY, "0x")
        twin.history_blocks = 256
    player = Player(twin, random.Random(5))
    post, client = player.posting()
    while not twin.act(post, client):
        post, client = player.posting()
    ((job_id, _),) = twin.market_state.jobs.items()
    solver = next(a for a in ACCOUNTS[1:] if twin.act(e.TakeShard(job_id, 0, Wei(0)), a))
    ((commit, by),) = [
        d for d in player.useful() if isinstance(d[0], e.Commit) and d[0].claim.shard == 0 and d[1] == solver
    ]
    assert twin.act(commit, by)
    claim_id = twin.market_state.current((job_id, Kind.TASK, 0, 0), twin.time)
    assert claim_id is not None
    return twin, claim_id, twin.market_state.claims[claim_id].claim


def record(twin: Twin, claim: Claim, header: e.Header | None) -> str:
    """The refusal of this header by twin and chain, or nothing."""
    before = twin.refused.copy()
    if twin.act(e.RecordSeed(claim, ZERO_DIGEST, header), ANYBODY):
        return ""
    (new,) = (twin.refused - before).elements()
    return new.removeprefix("RecordSeed ")


@pytest.mark.parametrize("blocks, without_history", [(3, False), (258, False), (250, True), (258, True)])
def test_a_seed_is_the_randao_value_of_its_block_while_the_chain_knows_its_hash(
    stage: Stage, blocks: int, without_history: bool
) -> None:
    """Mining 8,191 blocks would take minutes: the history contract is removed instead."""
    twin, claim_id, claim = committed(stage, without_history)
    status = twin.market_state.claims[claim_id].status
    twin.wait(60, blocks)  # the chain's own clock advances while it mines
    gone = twin.block + 1 - status.seed_block > twin.history_blocks
    assert gone == (without_history and blocks == 258)
    header = twin.deployed.header(status.seed_block)
    assert record(twin, claim, ITS_OWN) == ""
    status = twin.market_state.claims[claim_id].status
    assert status.phase == (Phase.COMMITTED if gone else Phase.SEEDED)
    assert status.seed == (ZERO_DIGEST if gone else sampling.claim_seed(header.randao, claim_id))


@pytest.mark.parametrize("without_history", [False, True])
def test_attack_29_a_seed_without_a_header_is_the_hash_of_its_block_and_has_to_wait(
    stage: Stage, without_history: bool
) -> None:
    twin, claim_id, claim = committed(stage, without_history)
    seed_block = twin.market_state.claims[claim_id].status.seed_block
    assert record(twin, claim, None) == "SeedUnavailable"
    if twin.block < seed_block:
        twin.wait(1, seed_block - twin.block)
    assert record(twin, claim, None) == "HeaderAwaited"
    assert record(twin, claim, twin.deployed.header(seed_block - 1)) == "WrongHeader"
    assert record(twin, claim, e.Header(b"\x07" * 32, b"\x08" * 32)) == "WrongHeader"
    twin.wait(60, seed_block + SEED_PATIENCE - 1 - twin.block)
    assert record(twin, claim, None) == "HeaderAwaited"
    assert record(twin, claim, None) == ""
    seed = twin.market_state.claims[claim_id].status.seed
    assert seed == sampling.claim_seed(twin.deployed.block_hash(seed_block), claim_id)
