"""Attack 47: an RPC gateway before a real node that fails a fifth of its requests, in every way that gateways
do."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.chain.contracts.artifacts import Artifacts
from assay.chain.eth.anvil import dev_account
from assay.chain.eth.endpoints import http_endpoints
from assay.chain.eth.errors import Registry
from assay.chain.eth.journal import Call, Journal
from assay.chain.eth.rpc import HttpRpc
from assay.chain.eth.sender import FeePolicy, Sender
from assay.protocol.errors import RpcUnreachable
from drills.faulty_rpc import FAULTS, FaultyGateway
from tests.adversaries.chain_day import ChainDay
from tests.fakes.anvil import Anvil


@pytest.mark.long
def test_attack_47_a_fifth_fails_and_each_transaction_is_mined_once(
    anvil: Anvil, rpc: HttpRpc, tmp_path: Path
) -> None:
    with FaultyGateway(anvil.url, 0.2, seed=3) as gateway:
        sender = Sender(
            http_endpoints([gateway.url]),
            dev_account(1),
            Journal(tmp_path / "journal.db"),
            Registry(),
            FeePolicy(poll_s=0.01, confirm_timeout_s=60.0),
        )
        for number in range(12):
            assert sender.send(f"k{number}", Call(dev_account(2).address, b"", "pay", 1)).ok
        sender.resume()
        faults = sum(gateway.done[fault] for fault in FAULTS)
        assert faults > 10, gateway.done
    assert rpc.request("eth_getTransactionCount", [sender.address, "latest"]) == "0xc"
    assert sender.journal.open_intents(sender.address) == []


@pytest.mark.long
def test_a_single_endpoint_that_does_nothing_but_fail_is_said(anvil: Anvil) -> None:
    with FaultyGateway(anvil.url, 1.0, seed=1) as gateway, pytest.raises(RpcUnreachable):
        for _ in range(20):
            http_endpoints([gateway.url]).request("eth_getBalance", ["0x" + "11" * 20, "latest"])


@pytest.mark.slow
@pytest.mark.parametrize("endpoints", [1, 2])
def test_attack_47_a_solver_behind_a_faulty_gateway_earns_as_before(
    anvil: Anvil, rpc: HttpRpc, artifacts: Artifacts, tmp_path: Path, endpoints: int
) -> None:
    with FaultyGateway(anvil.url, 0.2, 5) as one, FaultyGateway(anvil.url, 0.2, 6) as two:
        urls = [one.url, two.url][:endpoints]
        day = ChainDay(rpc, artifacts, tmp_path, urls={"ann": urls})
        job_id = day.post()
        assert day.run(day.closed(job_id)), day.events[-5:]
        assert day.unsound(job_id) == []
        assert sum(one.done[fault] for fault in FAULTS) > 50, one.done
        assert day.wealth()["ann"] == day.wealth()["bob"]
