"""``assay deploy``: what it announces is what it does, and what it refuses costs nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.chain.eth.anvil import dev_account
from assay.chain.eth.keystore import DEVNET_SCRYPT_N, Keystore
from assay.chain.eth.rpc import HttpRpc
from tests.fakes.anvil import Anvil
from tests.fakes.command import Ran, run

Deploy = Callable[..., Ran]


@pytest.fixture
def chain() -> Iterator[Anvil]:
    with Anvil() as anvil:
        yield anvil


@pytest.fixture
def deploy(chain: Anvil, tmp_path: Path) -> Deploy:
    """The command on a bare chain; `account` is a development account's name."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "password").touch(mode=0o600)
    (home / "password").write_text("only here\n")
    keystore = Keystore(home / "keystore")
    keystore.import_key("rich", bytes(dev_account(0).key), "only here", scrypt_n=DEVNET_SCRYPT_N)
    keystore.create("poor", "only here", scrypt_n=DEVNET_SCRYPT_N)

    def on_chain(*arguments: str, account: str = "rich", file: str = "a.json", dry: bool = False) -> Ran:
        common = ["--home", str(home), "--json", "--yes", "--rpc-url", chain.url, "--account", account]
        common += ["--deployment", str(tmp_path / file), *(["--dry-run"] if dry else [])]
        return run(*common, "deploy", *arguments)

    return on_chain


def sent(chain: Anvil) -> int:
    count = HttpRpc(chain.url).request("eth_getTransactionCount", [dev_account(0).address, "latest"])
    return int(count, 16)


@pytest.mark.long
def test_a_market_is_as_announced_and_given_again_nothing_changes(
    chain: Anvil, deploy: Deploy, tmp_path: Path
) -> None:
    planned: dict[str, Any] = deploy("--profile", "l2", dry=True).data
    assert sent(chain) == 0 and not (tmp_path / "a.json").exists()
    made = deploy("--profile", "l2").data
    assert made["addresses"] == {name: told["address"] for name, told in planned["contracts"].items()}
    assert made["gas"] == planned["gas"] and sent(chain) == len(made["addresses"])
    assert {path.name for path in Path(made["verification"]).iterdir()} == {
        "standard-input.json",
        "contracts.json",
    }
    assert deploy("--profile", "l2").data["addresses"] == made["addresses"]
    assert sent(chain) == len(made["addresses"])

    other = deploy("--profile", "l1")
    assert other.error["code"] == "deployment-failed" and "other terms" in other.error["message"]
    beside = deploy("--profile", "l1", "--token", made["addresses"]["Token"], "--label", "beside")
    assert beside.error["code"] == "deployment-exists", "no addresses file is written over"
    planned = deploy(
        "--profile", "l1", "--token", made["addresses"]["Token"], "--label", "b", file="b.json", dry=True
    ).data
    assert planned["contracts"]["Token"] == {"address": made["addresses"]["Token"], "bytes": 0, "gas": 0}
    no_token = deploy("--profile", "l1", "--token", made["addresses"]["Keys"], "--label", "c", file="c.json")
    assert no_token.error["code"] == "bad-token"
    assert sent(chain) == len(made["addresses"]), "no refusal has sent anything"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((), "bad-profile"),
        (("--profile", "mainnet"), "bad-profile"),
        (("--profile", "l2", "--unbond", "60d"), "bad-delays"),
        (("--profile", "l2", "--weight-epoch", "0"), "bad-delays"),
        (("--profile", "l2", "--token", "0x" + "11" * 20), "bad-token"),
        (("--profile", "l2", "--supply", "much"), "bad-amount"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_sent(
    chain: Anvil, deploy: Deploy, arguments: tuple[str, ...], code: str
) -> None:
    assert deploy(*arguments).error["code"] == code and sent(chain) == 0


def test_an_account_that_cannot_pay_is_told_what_it_lacks(deploy: Deploy) -> None:
    refused = deploy("--profile", "devnet", account="poor")
    assert refused.status == 5 and "ether" in refused.error["hint"]
