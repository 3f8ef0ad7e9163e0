"""A market on a chain that is not Anvil: deployed, posted to, trained on, disputed, settled, fetched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.chain.eth.anvil import dev_account
from assay.chain.eth.keystore import DEVNET_SCRYPT_N, Keystore
from assay.chain.eth.rpc import HttpRpc
from tests.e2e.commands import assay, result, run
from tests.hardhat import second_chain
from tests.hardhat.node import Hardhat

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def hardhat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hardhat]:
    with Hardhat(tmp_path_factory.mktemp("hardhat") / "node.log", block_ms=200) as node:
        yield node


def deployer(home: Path) -> None:
    """The first development account, in its own home folder."""
    home.mkdir()
    (home / "password").touch(mode=0o600)
    (home / "password").write_text("only here\n")
    key = bytes(dev_account(0).key)
    Keystore(home / "keystore").import_key("deployer", key, "only here", scrypt_n=DEVNET_SCRYPT_N)


def words(home: Path, node: Hardhat, *arguments: str) -> list[str]:
    return assay(home, "--rpc-url", node.url, "--account", "deployer", *arguments)


def test_a_market_is_deployed_where_it_was_announced_and_one_beside_it_on_its_token(
    hardhat: Hardhat, tmp_path: Path
) -> None:
    home, rpc = tmp_path / "home", HttpRpc(hardhat.url)
    deployer(home)
    planned = result(words(home, hardhat, "--dry-run", "deploy", "--profile", "l1"))
    assert int(rpc.request("eth_getTransactionCount", [dev_account(0).address, "latest"]), 16) == 0
    made = result(words(home, hardhat, "deploy", "--profile", "l1"))
    contracts = planned["contracts"]
    assert made["addresses"] == {name: entry["address"] for name, entry in contracts.items()}
    assert made["gas"] == planned["gas"], "what was announced"
    assert Path(made["verification"], "standard-input.json").exists()
    again = result(words(home, hardhat, "deploy", "--profile", "l1"))
    assert again["addresses"] == made["addresses"], "given again, it deploys nothing"
    sent = int(rpc.request("eth_getTransactionCount", [dev_account(0).address, "latest"]), 16)
    assert sent == len(contracts)

    token, other = made["addresses"]["Token"], ("--deployment", str(tmp_path / "other.json"))
    beside = words(home, hardhat, *other, "deploy", "--profile", "l2", "--token", token, "--label", "beside")
    second = result(beside)
    assert second["addresses"]["Token"] == token
    assert second["addresses"]["Vault"] != made["addresses"]["Vault"]
    assert result(words(home, hardhat, *other, "token", "balance"))
    refused = run(words(home, hardhat, *other, "deploy", "--profile", "l2", "--label", "third"))
    assert refused.returncode != 0 and "another market" in refused.stderr


def passed(told: dict[str, Any]) -> None:
    assert told["missing"] == []
    assert told["development_methods"] == {}, "what only a development node has"
    assert [fallen["claimant"] for fallen in told["convicted"]] == ["solver-1"]


def test_a_job_with_a_cheat_goes_as_on_anvil(tmp_path: Path) -> None:
    told = second_chain.play("hardhat", "one-ulp", tmp_path)
    passed(told)
    assert any(game["won"] for game in told["games"])
