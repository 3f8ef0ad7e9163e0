"""Number of requests by which a node reads the market: after a restart, and at each poll."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from eth_utils.crypto import keccak

from assay.chain.contracts.market import ChainMarket
from assay.chain.eth.clock import ChainClock
from assay.protocol.encoding import as_tuple
from assay.protocol.errors import RpcUnreachable
from assay.protocol.types import Claim, ClaimId, ClaimStatus, JobId, Phase, Progress, Seconds, Vote, Wei
from assay.solver.observation import Limits, Observation
from assay.solver.service import SolverService
from tests.fakes.blocks import FakeBlocks, Network
from tests.fakes.jobs import RESOURCE_LIMITS
from tests.fakes.market_node import CLAIM, ME, TERMS, MarketNode, Open, digest, sample
from tests.marked import long

SHARDS = 4


class Busy:
    """A market of closed jobs whose claims are settled, and of open ones whose claims may still be voted on.

    Every answer is another one, so that none can stand in for another.
    """

    def __init__(self, node: MarketNode) -> None:
        self.node = node
        self.claims: dict[ClaimId, Claim] = {}
        self.places: dict[tuple[bytes, int, int, int], bytes] = {}
        self.closed: dict[JobId, bool] = {}
        node.answers = {
            "progress": lambda job_id: as_tuple(self.progress(job_id)),
            "balance": lambda bucket, job_id: job_id[0],
            "status": lambda claim_id: as_tuple(self.status(claim_id)),
            "votes": lambda claim_id: [as_tuple(self.vote(claim_id))] * 3,
            "current": lambda *place: self.current(*place),
            "overtaken": True,
            "holder": lambda job_id, shard: [ME, job_id[0], shard],
            "price": lambda job_id, shard: job_id[0] + shard,
            "active": lambda account, role: 500 + role,
            "locked": lambda account, role: 300 + role,
            "unbonding": lambda account, role: 100 + role,
            "room": lambda account, role, client: 200 + role,
            "free": 50,
        }

    def add(self, name: str, claims: int, *, closed: bool) -> bytes:
        """A job and its claims, one for each shard of a round."""
        job_id = digest(name)
        self.closed[job_id] = closed
        terms = replace(TERMS, shards=SHARDS, vote_time=Seconds(10**6))
        self.node.emit("Jobs", "JobPosted", jobId=job_id, client=ME, budget=5, terms=as_tuple(terms))
        logs = []
        for number in range(claims):
            claim = replace(CLAIM, job_id=job_id, round=number // SHARDS, shard=number % SHARDS)
            claim_id = digest(f"{name} {number}")
            self.claims[claim_id] = claim
            self.places[job_id, int(claim.kind), claim.round, claim.shard] = claim_id
            whose = {"claimId": claim_id, "jobId": job_id, "claimant": ME}
            values = {"claim": as_tuple(claim), "roots": [digest("in"), claim_id], "seedBlock": 1}
            logs.append(self.node.log("Tasks", "Committed", **whose, **values))
        if closed:
            logs.append(self.node.log("Jobs", "JobClosed", jobId=job_id, refunded=5))
        self.node.mine(logs)
        return job_id

    def progress(self, job_id: JobId) -> Progress:
        return replace(sample(Progress), round=job_id[0], closed=self.closed[job_id])

    def status(self, claim_id: ClaimId) -> ClaimStatus:
        over = self.closed[self.claims[claim_id].job_id]
        phase = Phase.SETTLED if over else Phase.SEEDED
        return replace(sample(ClaimStatus), phase=phase, valid=claim_id[0], since=Seconds(claim_id[1]))

    def vote(self, claim_id: bytes) -> Vote:
        return replace(sample(Vote), traces_root=keccak(claim_id))

    def current(self, job_id: bytes, kind: int, round_: int, shard: int) -> bytes:
        """The first half of a job's places have been overtaken."""
        return bytes(32) if shard < SHARDS // 2 else self.places[job_id, kind, round_, shard]


@pytest.fixture
def busy(node: MarketNode) -> Busy:
    return Busy(node)


Made = Callable[[ChainMarket], SolverService]


@pytest.fixture
def solver_of(node: MarketNode, tmp_path: Path) -> Made:
    limits = Limits(min_price=Wei(0), max_shards=1, patience=Seconds(60))

    def made(market: ChainMarket) -> SolverService:
        clock = ChainClock(node)
        return SolverService(market, FakeBlocks(Network()), clock, tmp_path, limits, RESOURCE_LIMITS)

    return made


def requests_of(node: MarketNode, work: Callable[[], Any]) -> int:
    """How many requests some work took."""
    before = len(node.requests)
    work()
    return len(node.requests) - before


def look(solver: SolverService) -> Observation:
    """One look of a node, as its tick takes it."""
    with solver.market.snapshot():
        return solver.see()


def build(busy: Busy, closed: int, opened: int) -> None:
    """As many closed jobs of four claims, and open ones of eight."""
    for number in range(closed):
        busy.add(f"closed {number}", 4, closed=True)
    for number in range(opened):
        busy.add(f"open {number}", 8, closed=False)


POLL = 2
"""Requests of the follower for the next block: the block, and its logs."""
LOOK = 4
"""Other calls of a poll, in one batch: stakes, jobs, shards, open claims, standing claims, overtaken ones,
clock."""


@pytest.mark.parametrize(
    ("closed", "opened", "more"), [(0, 1, 0), (50, 1, 0), long(50, 20, 0), (50, 30, 1), long(150, 10, 0)]
)
def test_a_restart_costs_one_request_for_250_claims_of_the_past(
    market_of: Open, solver_of: Made, node: MarketNode, busy: Busy, closed: int, opened: int, more: int
) -> None:
    build(busy, closed, opened)
    market_of(-1.0).disconnect()
    markets: list[ChainMarket] = []
    started = requests_of(node, lambda: markets.append(market_of(1e9)))
    assert started == 4, "which chain it is (2), the height, and whether the last block stands"
    solver = solver_of(markets[0])
    past, shards = -(-4 * closed // 250), 1
    assert requests_of(node, lambda: look(solver)) == LOOK + shards + past + more


def test_who_takes_no_shards_asks_for_none(market_of: Open, node: MarketNode, busy: Busy) -> None:
    """A verifier's look, or a command's."""
    build(busy, closed=3, opened=3)
    market = market_of(-1.0)
    for _ in range(2):
        with market.snapshot():
            assert len(market.jobs()) == 6
        node.mine()
    assert not {"holder", "price"} & set(node.views)


@pytest.mark.long
def test_a_look_costs_the_same_whatever_is_open_up_to_a_batch(
    market_of: Open, solver_of: Made, node: MarketNode, busy: Busy
) -> None:
    build(busy, closed=10, opened=0)
    solver = solver_of(market_of(-1.0))
    look(solver)
    for opened in (1, 3, 10, 20, 30):
        while (number := len(busy.closed) - 10) < opened:
            busy.add(f"open {number}", 8, closed=False)
        assert len(look(solver).open_jobs) == opened
        node.mine()
        assert requests_of(node, lambda: look(solver)) == POLL + LOOK - 2, "claims are known until an event"


def test_a_look_as_of_a_moment_asks_only_what_was_not_asked_since(
    market_of: Open, solver_of: Made, node: MarketNode, busy: Busy
) -> None:
    build(busy, closed=3, opened=3)
    market = market_of(60.0)
    solver = solver_of(market)
    solver.clock = ChainClock(node, 60.0)

    def look_since(moment: float) -> None:
        with market.snapshot(moment):
            assert len(solver.see().open_jobs) == 3

    look(solver)
    node.mine()
    begun = time.monotonic()
    assert requests_of(node, lambda: look_since(begun)) == POLL + LOOK - 3, "claims and the clock are known"
    node.mine()
    assert requests_of(node, lambda: look_since(begun)) == 0
    assert requests_of(node, lambda: look_since(time.monotonic())) == POLL + LOOK - 3


@pytest.mark.long
def test_a_large_market_costs_its_batches(
    market_of: Open, solver_of: Made, node: MarketNode, busy: Busy
) -> None:
    """100 jobs of a client and 800 claims: 8 views of our stakes and of the market's clock, 200 of jobs and
    800 of shards together, and once, by 250 claims, 1,600, 800 and 200: of the last 50 claims the places fit
    into the first batch."""
    build(busy, closed=0, opened=100)
    solver = solver_of(market_of(-1.0))
    before, clock = len(node.views), 1
    assert requests_of(node, lambda: look(solver)) == 1 + clock + 3 + 4 + 3 + 4, "the height first"
    assert len(node.views) - before == 8 + 200 + 800 + 1_600 + 800 + 200, "nothing twice, nothing in vain"
    node.mine()
    before = len(node.views)
    assert requests_of(node, lambda: look(solver)) == POLL + clock + 3
    assert len(node.views) - before == 8 + 200 + 800


def test_batches_say_what_each_view_says(
    market_of: Open, solver_of: Made, node: MarketNode, busy: Busy
) -> None:
    build(busy, closed=3, opened=3)
    market = market_of(-1.0)
    seen = look(solver_of(market))
    assert [job.view.job_id for job in seen.open_jobs] == [job for job in busy.closed if not busy.closed[job]]
    for job in seen.open_jobs:
        job_id = job.view.job_id
        assert (job.view.progress, job.view.escrow) == (busy.progress(job_id), job_id[0])
        assert [(h.price, h.since) for h in job.holders] == [(job_id[0], shard) for shard in range(SHARDS)]
        assert list(job.prices) == [job_id[0] + shard for shard in range(SHARDS)]
        assert len(job.claims) == 8
    assert seen.unlocked == 500 - 300
    with market.snapshot():
        for claim_id, claim in busy.claims.items():
            view = market.claim(claim_id)
            assert (view.claim_id, view.claim) == (claim_id, claim)
            assert (view.status, view.votes) == (busy.status(claim_id), (busy.vote(claim_id),) * 3)
            assert view.stale == (not busy.closed[claim.job_id] and claim.shard < SHARDS // 2)
            assert not view.left_out and view.roots[1] == claim_id


def test_a_look_is_of_one_block_though_blocks_come_with_every_request(
    market_of: Open, solver_of: Made, node: MarketNode, busy: Busy
) -> None:
    build(busy, closed=10, opened=10)
    solver = solver_of(market_of(-1.0))
    before = len(node.tags)

    def mine(method: str) -> None:
        if method != "eth_blockNumber":
            node.mine()

    node.before = mine
    look(solver)
    tags = node.tags[before:]
    assert len(tags) == 5 and len(set(tags)) == 1


@pytest.mark.long
def test_what_was_answered_before_the_node_failed_is_not_asked_again(
    market_of: Open, solver_of: Made, node: MarketNode, busy: Busy
) -> None:
    """So that a restart ends though no look of it does."""
    build(busy, closed=200, opened=0)
    solver = solver_of(market_of(-1.0))
    calls = 0

    def die(method: str) -> None:
        nonlocal calls
        calls += method == "eth_call"
        node.down = calls > 3

    node.before = die
    with pytest.raises(RpcUnreachable):
        look(solver)
    assert node.views.count("status") == 500, "stakes and jobs, and two batches of 250 claims"
    node.before, node.down = lambda method: None, False
    look(solver)
    assert node.views.count("status") == 800


def test_outside_a_look_nothing_is_asked_that_was_not_asked_for(
    market_of: Open, node: MarketNode, busy: Busy
) -> None:
    build(busy, closed=2, opened=2)
    market = market_of(1e9)
    job_id = next(job_id for job_id, closed in busy.closed.items() if not closed)
    claim_id = next(claim_id for claim_id, claim in busy.claims.items() if claim.job_id == job_id)
    market.claim(claim_id)
    assert node.views.count("status") == 1
    market.claims(job_id)
    assert node.views.count("status") == 8
    market.price(job_id, 0)
    assert node.views.count("price") == SHARDS


def test_attack_T35_junk_jobs_of_many_shards_cost_next_to_nothing(
    market_of: Open, solver_of: Made, node: MarketNode, busy: Busy
) -> None:
    """Their shards are asked for only as far as a batch has room, since nobody would take one."""
    solver = solver_of(market_of(-1.0))
    busy.add("honest", 8, closed=False)
    look(solver)
    node.mine()
    plain = requests_of(node, lambda: look(solver))
    junk = replace(TERMS, shards=1_024, price_floor=Wei(0), price_cap=Wei(0), move_time=Seconds(1))
    for number in range(40):
        job_id = digest(f"junk {number}")
        busy.closed[job_id] = False
        node.emit("Jobs", "JobPosted", jobId=job_id, client=ME, budget=0, terms=as_tuple(junk))
    look(solver)
    node.mine()
    assert requests_of(node, lambda: look(solver)) <= plain + 1
    assert len(look(solver).open_jobs) == 41
