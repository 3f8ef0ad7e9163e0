"""Nodes that cheat, as commands: what they refuse before they send anything."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.app.devnet_record import Devnet, write_devnet
from assay.app.invocation import App
from assay.app.output import Exit, Output
from assay.app.settings import Flags
from assay.app.units import parse_amount
from assay.chain.eth.rpc import HttpRpc
from assay.devnet.chain import deploy_market
from assay.devnet.market import fund_account
from drills.main import root
from tests.fakes.anvil import Anvil, AnvilOptions
from tests.fakes.command import run
from tests.marked import long

CHEATS = (
    ("solver", "--cheat", "wrong-data"),
    ("verifier", "--lazy"),
    ("whistle", "--accuse", "0:0"),
)


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, HttpRpc, str]]:
    """A whole market on a chain with another id than a devnet's, though recorded as a devnet's: its home, its
    node, and the address of an account with tokens and gas."""
    home = tmp_path_factory.mktemp("public")
    with Anvil(AnvilOptions(chain_id=11_155_111)) as chain:
        write_devnet(home, Devnet(chain.url, os.getpid(), (), genesis_s=1))
        app = App(Flags(home=str(home)), Output(True, True), True, False, None)
        deploy_market(app.settings)
        yield home, HttpRpc(chain.url), fund_account(app, "cheat", parse_amount("5000tok"))


@pytest.mark.parametrize("words", [CHEATS[0], *map(long, CHEATS[1:])], ids=lambda words: words[0])
def test_a_cheat_on_a_chain_of_another_id_is_refused_before_it_sends(
    words: tuple[str, ...], public: tuple[Path, HttpRpc, str]
) -> None:
    home, rpc, address = public
    command = [sys.executable, "-m", "drills", "--json", "--yes", "--home", str(home), "--account", "cheat"]
    role, *cheat = words
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ASSAY_", "ETH_"))}
    ended = subprocess.run(
        [*command, role, "run", *cheat],
        cwd=Path(__file__).parents[3],
        env=kept,
        capture_output=True,
        text=True,
        timeout=120,
    )
    error = json.loads(ended.stderr.splitlines()[-1])["error"]
    assert error["code"] == "no-devnet" and "11155111" in error["message"]
    assert "nothing was sent" in error["message"]
    assert rpc.request("eth_getTransactionCount", [address, "pending"]) == "0x0"


@pytest.fixture
def drill(home: Path) -> Any:
    """A command of drills on the devnet."""
    common = ("--home", str(home), "--json", "--account", "client", "--yes")
    return lambda *words: run(*common, *words, commands=root)


@pytest.mark.parametrize("fault", ["", "1:2:3", "a:b:c:d", "1:2:3:4:5", "1:9:4:-"])
def test_a_fault_that_cannot_be_read_starts_no_node(drill: Any, fault: str) -> None:
    refused = drill("solver", "run", "--fault", fault)
    assert refused.status == Exit.USAGE and refused.error["code"] == "bad-fault"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("verifier", "run", "--collude-with", "nobody"), "no-account"),
        (("whistle", "run", "--accuse", "nobody"), "bad-fault"),
        (("up", "one-ulp"), "devnet-running"),
        (("-r", "http://127.0.0.1:1", "run", "one-ulp"), "no-devnet"),
    ],
    ids=lambda value: " ".join(value[:3]) if isinstance(value, tuple) else value,
)
def test_what_cannot_be_is_refused_before_anything_starts(
    drill: Any, words: tuple[str, ...], code: str
) -> None:
    refused = drill(*words)
    assert refused.status != 0 and refused.error["code"] == code


@pytest.mark.parametrize("words", [("run", "nothing"), ("up", "nothing"), ("up", "one-ulp@x")])
def test_an_unknown_scenario_or_round_is_refused(words: tuple[str, ...], tmp_path: Path) -> None:
    refused = run("--home", str(tmp_path / "home"), "--json", *words, commands=root)
    assert refused.error["code"] in ("not-found", "bad-fault")
    assert not (tmp_path / "home" / "devnet.json").exists()
