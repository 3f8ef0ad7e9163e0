"""Options of every command stand anywhere; examples, the first page, networks and the account of a home."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import assay as package
from assay.app.output import Exit
from assay.app.settings import Flags, Settings, chosen_account
from assay.chain.eth.keystore import DEVNET_SCRYPT_N, Keystore
from assay.cli.examples import EXAMPLES
from assay.cli.main import tree
from assay.protocol.errors import Ask
from tests.unit.cli.test_command_line import assay, commands, leaves

pytestmark = pytest.mark.usefixtures("user")


def command_of(path: tuple[str, ...]) -> Any:
    found = tree()
    for name in path:
        found = found.commands[name]
    return found


@pytest.mark.parametrize("path", leaves(), ids=" ".join)
def test_every_command_takes_every_option_of_the_root(path: tuple[str, ...]) -> None:
    taken = {flag for option in command_of(path).params for flag in (*option.opts, *option.secondary_opts)}
    wanted = {flag for option in tree().params if not option.is_eager for flag in option.opts}
    assert {"--json", "--account", "-r", "--yes", "-q", "--home"} <= wanted <= taken


def origins(*words: str) -> dict[str, Any]:
    status, out, err = assay(*words, "--json")
    assert status == Exit.OK, err
    return {name: setting["value"] for name, setting in json.loads(out)["data"].items()}


def test_an_option_counts_the_same_after_the_commands_name() -> None:
    before = origins("--account", "alice", "--home", "h", "--device", "cuda:1", "config", "show")
    assert before["account"] == "alice" and before["device"] == "cuda:1"
    assert origins("config", "show", "--account", "alice", "--home", "h", "--device", "cuda:1") == before
    assert origins("config", "--account", "alice", "show", "--home", "h", "--device", "cuda:1") == before


def test_the_later_one_counts_and_lists_are_whole() -> None:
    assert origins("--account", "alice", "config", "show", "--account", "bob")["account"] == "bob"
    found = origins("-r", "http://a", "config", "show", "-r", "http://b", "-r", "http://c")
    assert found["rpc_url"] == "http://b,http://c"


def test_a_wrong_value_is_refused_there_too() -> None:
    status, _, err = assay("account", "ls", "--executor", "fast", "--json")
    assert status == Exit.CONFIG and json.loads(err)["error"]["code"] == "bad-executor"


def test_yes_and_dry_run_are_heard_after_the_name() -> None:
    status, out, _ = assay("account", "new", "alice", "--home", "h", "--dry-run", "--json")
    assert status == Exit.OK and json.loads(out)["schema"] == "assay/dry-run/1"
    assert not Path("h").exists()


def test_the_version_is_told() -> None:
    status, out, _ = assay("--version")
    assert status == Exit.OK and out.startswith("assay") and len(out.splitlines()) == 1


def test_without_a_command_there_is_a_page_to_begin_with() -> None:
    status, out, _ = assay()
    assert status == Exit.OK
    for line in EXAMPLES["assay"]:
        assert line in out
    assert max(map(len, out.splitlines())) <= 90


def test_examples_are_of_commands_that_there_are() -> None:
    every = {" ".join(("assay", *path)) for path in commands()}
    assert EXAMPLES.keys() - every == set()


@pytest.mark.parametrize("path", [("job", "post"), ("account", "new"), ("solver",)], ids=" ".join)
def test_examples_stand_in_the_help(path: tuple[str, ...]) -> None:
    _, out, _ = assay(*path, "--help")
    assert EXAMPLES[" ".join(("assay", *path))][0] in " ".join(out.split())


def test_another_distributions_files_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(package, "FRONT_DOOR")
    status, _, err = assay("account", "ls", "--json")
    assert status == Exit.CONFIG and json.loads(err)["error"]["code"] == "written-over"


NETWORKS = """
account = "alice"
network = "near"

[networks.near]
rpc_url = "http://near"
deployment = "near.json"

[networks.far]
rpc_url = "http://far"
account = "bob"
"""


def settings(**flags: str) -> Settings:
    return Settings(Flags(**flags))


def test_a_network_is_several_settings() -> None:
    Path("assay.toml").write_text(NETWORKS)
    near, far = settings(), settings(network="far")
    assert (near.rpc_url, near.account, near.deployment) == ("http://near", "alice", Path("near.json"))
    assert (far.rpc_url, far.account) == ("http://far", "bob")
    assert "networks.far" in far.describe()["account"].origin


def test_a_network_ranks_below_what_chose_it(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("assay.toml").write_text(NETWORKS)
    monkeypatch.setenv("ETH_RPC_URL", "http://variable")
    assert settings().rpc_url == "http://variable", "the file chose it"
    assert settings(network="far").rpc_url == "http://far", "a flag did"
    assert settings(network="far", rpc_url="http://flag").rpc_url == "http://flag"
    monkeypatch.setenv("ASSAY_NETWORK", "far")
    assert settings().rpc_url == "http://variable" and settings().account == "bob"


@pytest.mark.parametrize(
    "text",
    ['networks = "near"', "[networks]\nnear = 1", "[networks.near]\nrpc = 'x'", "[networks.a]\nhost = 1"],
)
def test_a_file_that_is_wrong_is_refused(text: str) -> None:
    Path("assay.toml").write_text(text)
    with pytest.raises(Ask, match="not a valid configuration"):
        settings()


def test_a_network_that_there_is_not_is_refused() -> None:
    Path("assay.toml").write_text(NETWORKS)
    with pytest.raises(Ask, match="did you mean 'near'"):
        settings(network="nera")


def test_the_account_of_a_home_is_chosen_once() -> None:
    home = Path("h")
    Keystore(home / "keystore").create("alice", "word", scrypt_n=DEVNET_SCRYPT_N)
    status, _, err = assay("account", "use", "nobody", "--home", "h")
    assert status == Exit.CONFIG and "no account named nobody" in err
    with pytest.raises(Ask, match="no account is chosen"):
        _ = settings(home="h").account
    status, out, _ = assay("account", "use", "alice", "--home", "h")
    assert status == Exit.OK and "alice" in out and chosen_account(home) == "alice"
    found = settings(home="h")
    assert found.account == "alice" and found.describe()["account"].origin == "assay account use"
    assert settings(home="h", account="bob").account == "bob"
    assert json.loads(assay("account", "ls", "--home", "h", "--json")[1])["data"][0]["acts"] is True
