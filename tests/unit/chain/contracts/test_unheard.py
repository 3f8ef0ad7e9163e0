"""A chain node whose logs lag behind its state: what the contracts count of our claims outranks them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from assay.chain.contracts.market import ChainMarket
from assay.protocol.encoding import as_tuple
from assay.protocol.types import Address, ClaimId, ClaimStatus, Kind, Phase, Progress, Vote
from tests.fakes.market_node import CLAIM, GAME, ME, TERMS, D, MarketNode, Open, digest, sample

OTHER = Address("0x" + "22" * 20)


@pytest.fixture
def counts(node: MarketNode) -> dict[ClaimId, int]:
    """A claim of ours and one of somebody else, with how many games the contracts count about each."""
    claims = [ClaimId(digest("ours")), ClaimId(digest("theirs"))]
    counts = dict.fromkeys(claims, 0)
    node.answers = {
        "progress": as_tuple(sample(Progress, closed=False)),
        "balance": 5,
        "status": lambda claim_id: as_tuple(
            sample(ClaimStatus, phase=Phase.SEEDED, open_games=counts[claim_id])
        ),
        "votes": [as_tuple(sample(Vote, verifier=OTHER))],
        "current": lambda job, kind, round_, shard: claims[shard],
        "overtaken": False,
    }
    node.emit("Jobs", "JobPosted", jobId=D, client=ME, budget=5, terms=as_tuple(TERMS))
    for shard, (claim_id, by) in enumerate(zip(claims, (ME, OTHER), strict=True)):
        claim = replace(CLAIM, job_id=D, kind=Kind.TASK, shard=shard, claimant=by)
        common = {"claimId": claim_id, "jobId": D, "claimant": by}
        node.emit("Tasks", "Committed", claim=as_tuple(claim), roots=[D, D], seedBlock=1, **common)
    return counts


def test_w23_a_game_that_the_contract_counts_and_no_log_tells_is_found_and_read_again(
    market: ChainMarket, node: MarketNode, counts: dict[ClaimId, int]
) -> None:
    ours, theirs = counts
    assert market.unheard() == [] and len(market.claims(D)) == 2
    accused = replace(GAME.accused, job_id=D)
    game = replace(GAME, accused=accused, claim_id=ours, defender=ME, challenger=OTHER)
    opened = node.log("Court", "GameOpened", gameId=7, claimId=ours, game=as_tuple(game))
    node.mine([opened])
    hidden = node.blocks[-1].logs.pop()  # the index of the node's logs lags
    counts[ours] = 1
    node.mine()
    assert market.games(D) == [], "nobody sees the clock"
    assert market.unheard() == [ours]
    node.blocks[-2].logs.append(hidden)
    assert market.unheard() == [ours], "found once more, and then the logs are there"
    assert [view.game_id for view in market.games(D)] == [7] and market.unheard() == []
    counts[theirs] = 1
    assert market.unheard() == [], "that is its claimant's to heed"


def test_a_contradiction_outlasts_a_restart(
    market: ChainMarket, market_of: Open, counts: dict[ClaimId, int]
) -> None:
    ours, _ = counts
    counts[ours] = 1
    market.disconnect()
    assert market_of(-1.0).unheard() == [ours]
