"""Drills act on the devnet of the home folder: any other chain is refused, and nothing is sent to it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.app.devnet_record import Devnet, write_devnet
from assay.app.invocation import App
from assay.app.output import Output
from assay.app.settings import Flags
from assay.chain.contracts.deploy import Deployment
from assay.chain.eth.rpc import HttpRpc, identity
from assay.protocol.errors import Ask
from drills.devnet_only import refuse_other_chain, require_devnet
from tests.fakes.anvil import Anvil, AnvilOptions


@pytest.fixture(scope="module")
def devnet_chain() -> Iterator[Anvil]:
    with Anvil(AnvilOptions(genesis_time_s=1_700_000_000)) as node:
        yield node


pytestmark = pytest.mark.usefixtures("user")


def app(home: Path, **flags: str) -> App:
    return App(Flags(home=str(home), **flags), Output(True, True), True, False, None)


def devnet_at(home: Path, chain: Anvil, deployed: str | None = None) -> Devnet:
    """The record and the deployment file that a devnet on this chain leaves; `deployed`: on another."""
    devnet = Devnet(chain.url, os.getpid(), (), genesis_s=1)
    write_devnet(home, devnet)
    on = deployed or identity(HttpRpc(chain.url))
    Deployment(on, 0, "", {}, {}).save(home / "deployment.json")
    return devnet


def refused(home: Path, says: str, **flags: str) -> None:
    with pytest.raises(Ask, match=says) as found:
        require_devnet(app(home, **flags))
    assert found.value.code == "no-devnet" and found.value.hint
    assert "nothing was sent" in found.value.message


def test_the_devnets_own_chain_is_taken(devnet_chain: Anvil, tmp_path: Path) -> None:
    assert require_devnet(app(tmp_path)) if devnet_at(tmp_path, devnet_chain) else None
    assert require_devnet(app(tmp_path, rpc_url=devnet_chain.url)).rpc_url == devnet_chain.url


def test_a_home_without_a_running_devnet_is_refused(devnet_chain: Anvil, tmp_path: Path) -> None:
    refused(tmp_path, "no devnet runs in", rpc_url=devnet_chain.url)
    write_devnet(tmp_path, devnet_at(tmp_path, devnet_chain).stopped())
    refused(tmp_path, "no devnet runs in", rpc_url=devnet_chain.url)


def test_a_record_of_a_chain_with_another_id_is_refused(tmp_path: Path) -> None:
    with Anvil(AnvilOptions(chain_id=11_155_111)) as public:
        devnet_at(tmp_path, public)
        refused(tmp_path, "names chain 11155111:0x[0-9a-f]+, and a devnet's is 31337")


@pytest.mark.parametrize("chain_id", [31_337, 1])
def test_another_chain_than_the_records_is_refused(
    chain_id: int, devnet_chain: Anvil, tmp_path: Path
) -> None:
    devnet_at(tmp_path, devnet_chain)
    with Anvil(AnvilOptions(chain_id=chain_id, genesis_time_s=1_600_000_000)) as other:
        refused(tmp_path, f"the node is on chain {chain_id}:", rpc_url=other.url)
        refused(tmp_path, f"the node is on chain {chain_id}:", rpc_url=f"{devnet_chain.url},{other.url}")


def test_contracts_of_another_chain_are_refused(devnet_chain: Anvil, tmp_path: Path) -> None:
    devnet_at(tmp_path, devnet_chain, deployed="1:0xabc")
    refused(tmp_path, "describes contracts on chain 1:0xabc")


def test_a_devnet_that_is_to_begin_has_no_chain_of_others(devnet_chain: Anvil, tmp_path: Path) -> None:
    refuse_other_chain(app(tmp_path))
    with pytest.raises(Ask, match="starts a chain of its own, and flag names another one"):
        refuse_other_chain(app(tmp_path, rpc_url=devnet_chain.url))
    devnet_at(tmp_path, devnet_chain)
    refuse_other_chain(app(tmp_path, rpc_url=devnet_chain.url))
