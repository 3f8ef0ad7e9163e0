"""A small devnet (a chain, the contracts, nobody on it) and the ``assay`` command, run in this process."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer import Typer

from assay.cli.main import main, root
from assay.devnet.market import take_down


@dataclass(frozen=True)
class Ran:
    """How a command ended and what it printed."""

    status: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """The result of a command run with --json, which is the only thing on stdout."""
        assert self.status in (0, 9), self.err
        body = json.loads(self.out)
        assert set(body) == {"schema", "data"} and body["schema"].startswith("assay/")
        return body["data"]

    @property
    def error(self) -> dict[str, str]:
        """The error object of a command run with --json."""
        assert self.status != 0, self.out
        body = json.loads(self.err.strip().splitlines()[-1])
        assert body["schema"] == "assay/error/1"
        assert set(body["error"]) == {"code", "message", "hint"}
        assert body["error"]["message"] and body["error"]["hint"], "cause and next step"
        return body["error"]


Assay = Callable[..., Ran]


def run(*arguments: str, stdin: str = "", commands: Typer = root) -> Ran:
    """Run ``assay``, or other `commands`, with these arguments, as if from a script: standard input is not a
    terminal."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["assay", *arguments])
        patch.setattr(sys, "stdin", io.StringIO(stdin))
        with pytest.raises(SystemExit) as ended:
            main(commands)
    return Ran(int(ended.value.code or 0), out.getvalue(), err.getvalue())


@pytest.fixture(scope="module", autouse=True)
def _no_settings_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for setting in ("HOME", "RPC_URL", "ACCOUNT", "PASSWORD_FILE", "KEYSTORE", "DEPLOYMENT", "DEVICE"):
            patch.delenv(f"ASSAY_{setting}", raising=False)
        for setting in ("RPC_URL", "KEYSTORE_ACCOUNT", "PASSWORD", "KEYSTORE"):
            patch.delenv(f"ETH_{setting}", raising=False)
        patch.chdir(tmp_path_factory.mktemp("work"))
        yield


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A running devnet without nodes; the account `client` has 10,000 tokens."""
    folder = tmp_path_factory.mktemp("devnet")
    try:
        up = run("--home", str(folder), "devnet", "up", "--solvers=0", "--verifiers=0", "--whistleblowers=0")
        assert up.status == 0, up.err
        yield folder
    finally:
        take_down(folder)


@pytest.fixture(scope="module")
def assay(home: Path) -> Assay:
    """The command on the devnet, with --json, without asking, acting for `client`."""

    def on_devnet(*arguments: str, account: str = "client", yes: bool = True, stdin: str = "") -> Ran:
        common = ["--home", str(home), "--json", "--account", account, *(["--yes"] if yes else [])]
        return run(*common, *arguments, stdin=stdin)

    return on_devnet
