"""Which folder a devnet is in, and what of it may be removed."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assay.app.devnet_record import Devnet, NodeRecord, recorded, write_devnet
from assay.app.invocation import App
from assay.app.output import Output
from assay.app.settings import Flags, Settings
from assay.chain.eth.keystore import DEVNET_SCRYPT_N, STRONG_SCRYPT_N
from assay.cli.commands import devnet as commands
from assay.cli.main import main
from assay.devnet import chain
from assay.devnet.folder import begin_in, holds_devnet, own_folder, wipe_data
from assay.devnet.market import begin_chain
from assay.protocol.errors import Ask, Stop

STOPPED = Devnet("http://127.0.0.1:1", 0, (NodeRecord("solver-1", "solver", 0, ""),), 1.0, 1)


@pytest.fixture(autouse=True)
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own home, with the devnet of another checkout in it; the current folder has none."""
    for name in ("ASSAY_HOME", "ASSAY_RPC_URL", "ETH_RPC_URL", "ASSAY_DEPLOYMENT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    (tmp_path / "user" / ".assay").mkdir(parents=True)
    (tmp_path / "project" / "below").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project")
    write_devnet(tmp_path / "user" / ".assay", STOPPED)
    return tmp_path / "user" / ".assay"


def said(app: App) -> str:
    with redirect_stderr(io.StringIO()) as err:
        app.output = Output(False, False)
        own_folder(app)
    return " ".join(err.getvalue().split())


def app_with(**flags: str) -> App:
    return App(Flags(**flags), Output(False, True), True, False, None)


def key(home: Path, name: str, strength: int) -> None:
    (home / "keystore").mkdir(parents=True, exist_ok=True)
    body = {"version": 3, "crypto": {"kdfparams": {"n": strength}}}
    (home / "keystore" / name).write_text(json.dumps(body))


def test_without_a_home_a_devnet_has_one_here_and_not_the_users(tmp_path: Path, user: Path) -> None:
    told = said(app_with())
    assert Settings(Flags()).home == Path(".assay") and Path(".assay").is_dir()
    assert str(tmp_path / "project" / ".assay") in told.replace(" ", "")
    assert f"--home {user} devnet up" in told, "the one that is there is named, with how to go on with it"
    assert said(app_with()) == "", "said once"


def test_a_home_above_or_named_is_the_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(".assay").mkdir()
    monkeypatch.chdir(tmp_path / "project" / "below")
    assert said(app_with()) == "" and not Path(".assay").exists()
    monkeypatch.chdir(tmp_path)
    assert said(app_with(home="elsewhere")) == "" and not Path(".assay").exists()


def test_a_stopped_devnet_is_said_to_be_stopped(user: Path) -> None:
    with pytest.raises(Ask, match="is stopped") as caught:
        _ = Settings(Flags()).rpc_url
    assert f"`assay --home {user} devnet up` resumes" in caught.value.hint, "`up` alone would begin one here"
    with pytest.raises(Ask, match="is stopped") as caught:
        _ = Settings(Flags(home=str(user))).rpc_url
    assert "`assay devnet up` resumes" in caught.value.hint
    (user / "devnet.json").unlink()
    with pytest.raises(Ask, match="no devnet runs in") as caught:
        _ = Settings(Flags()).rpc_url
    assert caught.value.code == "no-chain" and "go to the folder" in caught.value.hint


def test_a_devnet_begins_beside_nobodys_data(tmp_path: Path) -> None:
    home = tmp_path / "home"
    begin_in(home, home / "deployment.json")
    key(home, "mine", STRONG_SCRYPT_N)
    begin_in(home, home / "deployment.json")
    (home / "nodes" / "mine").mkdir(parents=True)
    with pytest.raises(Ask) as caught:
        begin_in(home, home / "deployment.json")
    assert caught.value.code == "not-a-devnet" and "wipe" not in caught.value.hint
    (home / "chain.state").touch()
    with pytest.raises(Ask) as caught:
        begin_in(home, home / "deployment.json")
    assert caught.value.code == "devnet-leftovers"


def test_a_deployment_of_another_chain_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "public.json").write_text("{}")
    with pytest.raises(Ask) as caught:
        begin_in(tmp_path / "home", tmp_path / "public.json")
    assert caught.value.code == "not-a-devnet"


def test_wiping_removes_what_a_devnet_made_and_keeps_keys_that_it_did_not(tmp_path: Path) -> None:
    home = tmp_path / "home"
    write_devnet(home, STOPPED)
    key(home, "solver-1", DEVNET_SCRYPT_N)
    key(home, "mine", STRONG_SCRYPT_N)
    (home / "keystore" / "damaged").write_text("{")
    (home / "nodes" / "solver-1").mkdir(parents=True)
    (home / "password").write_text("x")
    assert wipe_data(home) == ["damaged", "mine"]
    assert not holds_devnet(home) and (home / "password").read_text() == "x"
    assert sorted(path.name for path in home.iterdir()) == ["keystore", "password"]


def test_wiping_leaves_nothing_where_all_was_the_devnets(tmp_path: Path) -> None:
    home = tmp_path / "home"
    write_devnet(home, STOPPED)
    key(home, "client", DEVNET_SCRYPT_N)
    (home / "password").write_text("x")
    assert wipe_data(home) == [] and list(home.iterdir()) == []


def test_a_home_that_is_no_devnets_is_not_wiped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    key(home, "client", DEVNET_SCRYPT_N)
    (home / "nodes" / "mine").mkdir(parents=True)
    monkeypatch.setattr("sys.argv", ["assay", "--home", str(home), "devnet", "down", "--wipe"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code and "nothing was stopped or removed" in capsys.readouterr().out
    assert (home / "keystore" / "client").exists() and (home / "nodes" / "mine").is_dir()


def test_options_that_are_not_heeded_are_named(
    user: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "resume", lambda app, stopped: stopped)
    words = ["assay", "--home", str(user), "devnet", "up", "--solvers", "7", "--block-time", "2"]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit) as ended:
        main()
    err = " ".join(capsys.readouterr().err.split())
    assert not ended.value.code and "--solvers, --block-time ignored" in err and "--verifiers" not in err


@pytest.mark.parametrize("other", [[], ["Jobs"]])
def test_a_devnet_of_another_version_is_not_gone_on_with(
    other: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain, "load_artifacts", dict[str, Any])
    monkeypatch.setattr(chain, "parse", lambda path: SimpleNamespace(addresses={"Jobs": "0x1"}))
    monkeypatch.setattr(chain, "differing", lambda *_: iter(other))
    if not other:
        chain.check_contracts(Path("home"), Path("deployment.json"), "http://127.0.0.1:1")
        return
    with pytest.raises(Ask, match="another version made the devnet in home: its contracts Jobs") as caught:
        chain.check_contracts(Path("home"), Path("deployment.json"), "http://127.0.0.1:1")
    assert caught.value.code == "devnet-of-another-version" and "--wipe" in caught.value.hint


def test_a_devnet_without_contracts_leaves_nothing_to_go_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next `devnet up` begins one; it went on with a chain that had no contracts."""

    def fails(settings: object) -> None:
        raise Stop("no Solidity sources", code="compile-failed")

    monkeypatch.setattr(
        chain, "start_chain", lambda *_: SimpleNamespace(url="http://127.0.0.1:1", pid=1 << 22)
    )
    monkeypatch.setattr(chain, "deploy_market", fails)
    home = tmp_path / "home"
    app = App(Flags(home=str(home)), Output(True, True), True, False, None)
    for _ in range(2):
        with pytest.raises(Stop, match="no Solidity sources"):
            begin_chain(app, 1.0)
        assert not holds_devnet(home) and recorded(home) is None
