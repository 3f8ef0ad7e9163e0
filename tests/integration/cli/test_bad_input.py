"""Wrong input by a person or a peer around a devnet: the error names the next step, and nothing is lost."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from assay.app.output import Exit
from assay.app.wiring import open_storage
from assay.blocks.blockstore import BlockStore
from assay.blocks.public_net import LOOPBACK
from assay.disk import record
from assay.protocol.errors import BlockNotFound
from tests.fakes.command import Ran, run
from tests.fakes.http_server import serving
from tests.integration.cli.conftest import Assay


@pytest.fixture
def with_flags(home: Path) -> Any:
    def go(*flags: str, command: tuple[str, ...] = ("token", "deposit", "1tok")) -> Ran:
        return run("--home", str(home), "--json", "--account", "client", "--yes", *flags, *command)

    return go


@pytest.fixture(scope="module")
def balance(assay: Assay) -> Any:
    return assay("token", "balance").data


@pytest.fixture(autouse=True)
def _nothing_is_lost(assay: Assay, balance: Any) -> Iterator[None]:
    yield
    assert assay("token", "balance").data == balance


@pytest.mark.long
def test_a_wrong_password_opens_nothing(with_flags: Any, tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.touch(mode=0o600)
    path.write_text("guess\n")
    refused = with_flags("--password-file", str(path))
    assert refused.status == Exit.CONFIG and "--password-file" in refused.error["hint"]
    assert "guess" not in refused.err


def test_a_password_file_that_others_can_read_is_refused(with_flags: Any, home: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(home / "password", tmp_path / "password"))
    path.chmod(0o644)
    refused = with_flags("--password-file", str(path))
    assert refused.status == Exit.CONFIG and refused.error["hint"] == f"chmod 600 {path}"


def test_a_password_file_that_is_not_there_is_said(with_flags: Any, tmp_path: Path) -> None:
    refused = with_flags("--password-file", str(tmp_path / "none"))
    assert refused.status == Exit.CONFIG and "--password-file" in refused.error["hint"]


def test_an_account_that_is_not_there_is_said(home: Path) -> None:
    common = ("--home", str(home), "--json", "--yes")
    unknown = run(*common, "--account", "nobody", "token", "deposit", "1tok")
    assert unknown.status == Exit.CONFIG and "client" in unknown.error["message"]
    none = run(*common, "token", "deposit", "1tok")
    assert none.status == Exit.CONFIG and "--account" in none.error["hint"]
    misspelt = run(*common, "account", "balance", "0x1234")
    assert misspelt.status == Exit.USAGE and misspelt.error["hint"]


@pytest.mark.parametrize(
    ("content", "code"),
    [(None, "no-deployment"), ("{", "no-deployment"), ('{"schema": "x"}', "no-deployment")],
    ids=["missing", "no JSON", "another schema"],
)
def test_without_a_deployment_file_nothing_is_sent(
    with_flags: Any, tmp_path: Path, content: str | None, code: str
) -> None:
    path = tmp_path / "deployment.json"
    if content is not None:
        path.write_text(content)
    refused = with_flags("--deployment", str(path))
    assert refused.status in (Exit.USAGE, Exit.CONFIG) and refused.error["code"] == code


def test_a_deployment_with_foreign_code_is_refused(with_flags: Any, home: Path, tmp_path: Path) -> None:
    body = json.loads((home / "deployment.json").read_text())["body"]
    names = list(body["contracts"])
    one, other = names[0], names[1]
    body["contracts"][one]["address"] = body["contracts"][other]["address"]
    path = tmp_path / "deployment.json"
    record.write(path, "assay/deployment/1", body)
    refused = with_flags("--deployment", str(path))
    assert refused.status in (Exit.USAGE, Exit.CONFIG) and one in refused.error["message"]


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("whistle", "run", "--auto", "maybe"), "bad-mode"),
        (("solver", "run", "--min-price", "7"), "bad-amount"),
        (("verifier", "run", "--patience", "soon"), "bad-duration"),
        (("devnet", "warp", "yesterday"), "bad-duration"),
        (("devnet", "logs", "nobody"), "not-found"),
        (("devnet", "up"), "devnet-running"),
        (("job", "init", "x.toml", "--template", "rnn"), "bad-job-file"),
    ],
    ids=lambda value: " ".join(value[:3]) if isinstance(value, tuple) else value,
)
def test_an_option_that_cannot_be_is_refused_before_anything_starts(
    with_flags: Any, command: tuple[str, ...], code: str
) -> None:
    refused = with_flags(command=command)
    assert refused.status in (Exit.USAGE, Exit.CONFIG, Exit.NOT_FOUND)
    assert refused.error["code"] == code


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # uvicorn ends its thread
def test_a_port_in_use_is_said(with_flags: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        refused = with_flags(command=("whistle", "run", "--port", str(taken.getsockname()[1])))
    assert refused.status == Exit.USAGE and refused.error["code"] == "port-in-use"


def test_a_url_that_is_no_chain_is_said(with_flags: Any) -> None:
    refused = with_flags("-r", "http://127.0.0.1:1", command=("job", "ls"))
    assert refused.status == Exit.UNREACHABLE and "ETH_RPC_URL" in refused.error["hint"]


def test_a_corrupted_block_from_a_peer_is_not_taken(tmp_path: Path) -> None:
    cid = BlockStore(tmp_path / "honest").put(b"the block")
    storage = open_storage(tmp_path / "node", private=LOOPBACK)
    with closing(storage), serving(lambda path, body: (200, b"uhe block")) as url:  # one bit is another
        storage.exchange.set_peers([url])
        with pytest.raises(BlockNotFound, match=r"corrupt|match|wrong"):
            storage.blocks.get(cid)
        assert not storage.store.has(cid)


def test_garbage_is_what_nothing_names_and_is_an_hour_old(home: Path, assay: Assay) -> None:
    store = BlockStore(home / "nodes" / "idler" / "store")
    old, young, pinned = (store.put(name) for name in (b"old", b"young", b"pinned"))
    store.pin(pinned)
    for cid in (old, pinned):
        path = next((store.root / "blocks").glob(f"*/{cid}"))
        os.utime(path, (1, 1))
    freed = assay("storage", "gc", "idler").data
    assert freed == {"idler": {"blocks": 1, "bytes": 3, "left": 11}}
    assert (store.has(old), store.has(young), store.has(pinned)) == (False, True, True)


def test_a_configuration_with_an_unknown_key_is_refused(with_flags: Any) -> None:
    Path("assay.toml").write_text('rpcurl = "http://127.0.0.1:1"\n')
    try:
        refused = with_flags(command=("job", "ls"))
        assert refused.status == Exit.CONFIG and refused.error["code"] == "bad-config"
        Path("assay.toml").write_text('rpc_url = "http://127.0.0.1:1"\n')
        assert with_flags(command=("config",)).data["rpc_url"]["origin"] == "assay.toml"
    finally:
        os.remove("assay.toml")
