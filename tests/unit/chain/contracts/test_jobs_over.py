"""A job that is over is read from its events again, and says what it said while it was not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from assay.chain.contracts import claim_cache
from assay.chain.contracts.market import ChainMarket
from assay.protocol.encoding import as_tuple
from assay.protocol.errors import Unknown
from assay.protocol.types import Address, ClaimStatus, ClaimView, JobId, Phase, Vote
from tests.fakes.market_node import CLAIM, ME, TERMS, MarketNode, Open, digest, sample
from tests.unit.chain.contracts.test_market import asked

JOBS = [digest("first"), digest("second")]
CLAIMS = {job_id: [digest(f"{job_id.hex()} {n}") for n in range(3)] for job_id in JOBS}


@pytest.fixture
def settled(node: MarketNode) -> MarketNode:
    """Two jobs of three claims each, all of them settled; both are open."""
    node.answers = {
        "status": as_tuple(sample(ClaimStatus, phase=Phase.SETTLED)),
        "votes": lambda claim_id: [as_tuple(sample(Vote, traces_root=claim_id))],
        "current": bytes(32),
    }
    for job_id in JOBS:
        node.emit("Jobs", "JobPosted", jobId=job_id, client=ME, budget=5, terms=as_tuple(TERMS))
    for number in range(3):  # the jobs' events by turns
        for job_id in JOBS:
            claim_id = CLAIMS[job_id][number]
            claim = as_tuple(replace(CLAIM, job_id=job_id, round=number, manifest=digest(str(claim_id))))
            whose = {"claimId": claim_id, "jobId": job_id, "claimant": ME}
            node.emit("Tasks", "Committed", claim=claim, roots=[claim_id, job_id], seedBlock=1, **whose)
            shown = {"verifier": ME, "valid": True, "traces": [claim_id, digest("trace")]}
            node.emit("Tasks", "VoteShown", claimId=claim_id, **shown)
            node.emit("Tasks", "Settled", claimId=claim_id, claimant=ME, paid=1)
    return node


def close(node: MarketNode, job_id: bytes) -> None:
    node.emit("Jobs", "JobClosed", jobId=job_id, refunded=5)


def everything(market: ChainMarket) -> list[ClaimView]:
    return [view for job_id in JOBS for view in market.claims(job_id)]


def test_claims_of_a_job_that_is_over_are_what_they_were(settled: MarketNode, market: ChainMarket) -> None:
    before = everything(market)
    assert [view.claim.round for view in before] == [0, 1, 2] * 2
    assert before[1].roots[0] == before[1].traces[ME][0] == CLAIMS[JOBS[0]][1]
    assert not market.ended(JOBS[0])
    close(settled, JOBS[0])
    assert everything(market) == before, "whether they are remembered or read again"
    assert market.ended(JOBS[0]) and not market.ended(JOBS[1])
    assert market.claim(CLAIMS[JOBS[0]][2]) == before[2]
    assert market.claim_ids() == [CLAIMS[job_id][n] for n in range(3) for job_id in JOBS]
    with pytest.raises(Unknown):
        market.claim(digest("none"))


def test_a_node_that_starts_anew_reads_them_too(
    settled: MarketNode, market: ChainMarket, market_of: Open
) -> None:
    before = everything(market)
    for job_id in JOBS:
        close(settled, job_id)
    market.refresh()
    market.disconnect()
    again = market_of(-1.0)
    assert all(again.ended(job_id) for job_id in JOBS)
    assert everything(again) == before


def test_a_reorganisation_brings_a_job_back(settled: MarketNode, market: ChainMarket) -> None:
    before = everything(market)
    close(settled, JOBS[0])
    assert market.ended(JOBS[0]) and everything(market) == before
    settled.reorganise(1)
    settled.mine()
    assert not market.ended(JOBS[0]) and everything(market) == before
    close(settled, JOBS[0])
    assert market.ended(JOBS[0]) and everything(market) == before


def test_few_claims_of_jobs_that_are_over_are_kept(
    settled: MarketNode, market: ChainMarket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_cache, "MOST_OVER", 3)
    for job_id in JOBS:
        close(settled, job_id)

    def look(job_id: JobId) -> list[str]:
        return asked(settled, lambda: market.claims(job_id))

    assert sorted(look(JOBS[0])) == sorted(["status", "votes"] * 3), "they have been let go"
    assert look(JOBS[0]) == [], "and are known from then on"
    assert len(look(JOBS[1])) == 6
    assert look(JOBS[1]) == []
    assert len(look(JOBS[0])) == 6, "until as many others were asked for"
    kept: Any = market._claims._kept
    assert len(kept) <= 6


def test_an_event_of_a_job_that_is_over_counts(settled: MarketNode, market: ChainMarket) -> None:
    close(settled, JOBS[0])
    (claim_id, *_), other = CLAIMS[JOBS[0]], Address("0x" + "22" * 20)
    assert set(market.claim(claim_id).traces) == {ME}
    settled.emit("Tasks", "VoteShown", claimId=claim_id, verifier=other, valid=True, traces=[digest("late")])
    assert market.claim(claim_id).traces[other] == (digest("late"),)
