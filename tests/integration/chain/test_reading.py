"""Reading a deployed market in batches: the same answers as view by view, also from nodes that refuse much at
once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.chain.contracts import lens
from assay.chain.contracts.artifacts import Artifacts
from assay.chain.contracts.deploy import Deployment
from assay.chain.contracts.market import ChainMarket
from assay.chain.contracts.records import unpack
from assay.chain.contracts.view import ChainView
from assay.chain.eth.rpc import HttpRpc, Rpc, RpcFailed, identity
from assay.protocol.types import ClaimStatus, Holder, JobView, Progress, Role, StakeView, Vote, Wei
from tests.integration.chain.test_market_cycle import commit, markets_on, pass_time, posted

ESCROW = 3


class Gate(Rpc):
    """A node's endpoint that counts requests and refuses calls with more data than `most_bytes`."""

    def __init__(self, rpc: HttpRpc, most_bytes: int) -> None:
        self._rpc, self._most_bytes = rpc, most_bytes
        self.calls = self.refused = 0

    def request(self, method: str, params: list[Any]) -> Any:
        if method == "eth_call":
            self.calls += 1
            if len(params[0]["data"]) // 2 > self._most_bytes:
                self.refused += 1
                raise RpcFailed(method, -32000, "request entity too large", "")
        return self._rpc.request(method, params)


@pytest.fixture
def markets(rpc: HttpRpc, artifacts: Artifacts, tmp_path: Path) -> list[ChainMarket]:
    return markets_on(rpc, artifacts, tmp_path)


def alone(market: ChainView, contract: str, view: str, *arguments: Any) -> Any:
    """A view's answer in its own request, at the latest block."""
    return market.contracts[contract].read(view, *arguments)


@pytest.mark.long
@pytest.mark.parametrize(("most_bytes", "calls", "refused"), [(10**6, 3, 0), (1_000, 8, 1), (400, 26, 5)])
def test_a_restarted_node_reads_in_batches_what_it_would_view_by_view(
    rpc: HttpRpc,
    markets: list[ChainMarket],
    artifacts: Artifacts,
    tmp_path: Path,
    most_bytes: int,
    calls: int,
    refused: int,
) -> None:
    client, solver, verifier = markets
    verifier.stake_up("stake", Role.VERIFIER, Wei(solver.stake(solver.me, Role.SOLVER).active + 1_000))
    job_id = posted(client, solver, shards=3)
    verifier.subscribe("agree", client.job(job_id).terms.class_id)
    first, _ = (commit(solver, job_id, shard) for shard in range(2))
    pass_time(rpc, 1, blocks=3)
    solver.record_seed("seed", first)

    gate = Gate(rpc, most_bytes)
    addresses = {name: contract.address for name, contract in solver.contracts.items()}
    deployment = Deployment(identity(rpc), 0, artifacts.source_hash, addresses, {})
    market = ChainView(gate, deployment, artifacts, solver.me, tmp_path / "again.db", max_age_s=1e9)
    with market.snapshot():
        (job,) = market.jobs()
        holders = [market.holder(job_id, shard) for shard in range(3)]
        prices = [market.price(job_id, shard) for shard in range(3)]
        claims = market.claims(job_id)
        stake = market.stake(solver.me, Role.SOLVER)
    assert (gate.calls, gate.refused) == (calls, refused)

    progress = unpack(Progress, alone(market, "Jobs", "progress", job_id))
    escrow = alone(market, "Vault", "balance", ESCROW, job_id)
    assert job == JobView(job_id, client.job(job_id).terms, progress, escrow)
    assert holders == [unpack(Holder, alone(market, "Tasks", "holder", job_id, k)) for k in range(3)]
    assert prices == [alone(market, "Tasks", "price", job_id, k) for k in range(3)]
    assert [h.solver for h in holders[:2]] == [solver.me] * 2 != [holders[2].solver] * 2
    names = ("active", "locked", "unbonding")
    assert stake == StakeView(*(alone(market, "Stakes", name, solver.me, 0) for name in names))
    assert stake.locked == 2 * (job.terms.solver_stake + job.terms.miss_penalty)
    assert len(claims) == 2 and [len(view.votes) for view in claims] == [1, 0]
    for view in claims:
        assert view.status == unpack(ClaimStatus, alone(market, "Tasks", "status", view.claim_id))
        assert view.votes == tuple(unpack(Vote, v) for v in alone(market, "Tasks", "votes", view.claim_id))
        assert not view.stale


@pytest.mark.long
def test_a_batch_that_runs_out_of_a_real_nodes_gas_is_halved(
    rpc: HttpRpc, markets: list[ChainMarket], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = markets[0]
    monkeypatch.setattr(lens, "MOST_VIEWS", 16_000)
    gate = Gate(rpc, 10**9)
    batches = lens.Lens(client.contracts["Lens"])
    batches._contract._rpc = gate
    accounts = [f"0x{number:040x}" for number in range(16_000)]
    views: list[lens.View] = [
        (client.contracts["Vault"], "free", (who,)) for who in [*accounts[1:], client.me]
    ]
    answers = list(batches.answers(views, client.block))
    assert [place for place, _ in answers] == list(range(16_000))
    assert [answer for _, answer in answers] == [0] * 15_999 + [client.free(client.me)] != [0] * 16_000
    assert batches.size < 16_000, "the node has refused what came first"
    assert gate.calls > 2
