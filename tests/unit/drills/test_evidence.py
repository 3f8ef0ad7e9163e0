"""The client of a scenario has what its claims started from, whatever nodes delete later."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from assay.node.checkpoints import read_checkpoints
from assay.protocol.types import Kind, Phase
from drills.evidence import Evidence
from drills.orders import omit_last_shard
from drills.solvers import WrongInputSolver
from tests.fakes.blocks import FakeBlocks, Network
from tests.fakes.market_day import MarketDay


class ReadBlocks(FakeBlocks):
    """Writes down which files are read."""

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        self.read: list[str] = []

    def read_file(self, cid: str, max_bytes: int) -> bytes:
        self.read.append(cid)
        return super().read_file(cid, max_bytes)


class Kept:
    """A client's blocks, and how often it looked for peers."""

    def __init__(self, network: Network) -> None:
        self.blocks, self.followed = ReadBlocks(network), 0

    def follow(self, _: Any) -> None:
        self.followed += 1


def test_what_each_claim_starts_from_is_fetched_once(day: MarketDay) -> None:
    job_id = day.post()
    day.verifiers()
    day.solver("ann", partial(WrongInputSolver, patch=omit_last_shard))
    day.solver("bob")
    assert day.run(lambda: Phase.ACCEPTED in day.phases(job_id, Kind.OUTER))
    market, kept = day.markets["client"], Kept(day.network)
    with Evidence(kept, job_id) as evidence:
        for _ in range(3):
            evidence.look(market)
        evidence._beside.submit(int).result()
    claims = market.claims(job_id)
    first = [read_checkpoints(kept.blocks, v.claim.manifest, v.roots)[0].cid for v in claims]
    assert sorted(kept.blocks.read) == sorted(first) and len(first) == 3
    assert kept.followed == 1


def test_a_claim_that_shows_nothing_is_no_error(day: MarketDay) -> None:
    job_id = day.post()
    day.solver("ann")
    assert day.run(lambda: bool(day.phases(job_id)))
    market, kept = day.markets["client"], Kept(day.network)
    (view,) = market.claims(job_id)
    hidden = replace(view, claim=replace(view.claim, manifest=bytes(32)))
    with Evidence(kept, job_id) as evidence:
        evidence._fetch(hidden)
    assert kept.blocks.read == []
