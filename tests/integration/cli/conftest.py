"""A small devnet (a chain, the contracts, nobody on it) and the ``assay`` command on it."""

from __future__ import annotations

import gc
import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from assay.app.devnet_record import recorded
from assay.chain.eth.rpc import HttpRpc
from assay.devnet.market import take_down
from tests.fakes.command import Ran, run

Assay = Callable[..., Ran]


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


def _meant(journal: Path) -> bytes:
    """Everything in a journal but which blocks were seen."""
    with closing(sqlite3.connect(journal)) as database:
        tables = [database.execute(f"SELECT * FROM {name}").fetchall() for name in ("intents", "attempts")]
        facts = database.execute("SELECT * FROM facts WHERE name NOT LIKE 'checkpoints/%'").fetchall()
    return repr((tables, facts)).encode()


class Unchanged:
    """Snapshot of a devnet's chain without nodes, and of all files in its home and the working directory.

    Files of the chain's own process are left out. `reads` also leaves out stored blocks and events of the
    chain, traced steps, and SQLite's own files.
    """

    def __init__(self, home: Path, *, reads: bool = False) -> None:
        gc.collect()  # a journal that an earlier command left open writes its file when it goes
        self._reads = reads
        devnet = recorded(home)
        assert devnet is not None
        self._home, self._rpc = home, HttpRpc(devnet.rpc_url)
        self._block = self._number()
        self._accounts, self._files, self._ahead_s = self._held(), self._kept(), self._clock()

    def _ask(self, method: str, *parameters: object) -> Any:
        return self._rpc.request(method, list(parameters))

    def _number(self) -> int:
        return int(self._ask("eth_blockNumber"), 16)

    def _clock(self) -> float:
        return int(self._ask("eth_getBlockByNumber", "latest", False)["timestamp"], 16) - time.time()

    def _held(self) -> dict[str, tuple[str, str]]:
        """Nonce, pending transactions counted, and ether of every account that the chain's users have."""
        names = {json.loads(path.read_text())["address"] for path in (self._home / "keystore").glob("*")}
        who = [*(f"0x{name.removeprefix('0x')}" for name in sorted(names)), *self._ask("eth_accounts")]
        return {
            each: (
                self._ask("eth_getTransactionCount", each, "pending"),
                self._ask("eth_getBalance", each, "pending"),
            )
            for each in who
        }

    def _kept(self) -> dict[str, str]:
        """Digests by path."""
        found = {}
        for folder in (self._home, Path.cwd()):
            for path in sorted(folder.rglob("*")):
                own = path.relative_to(folder).parts[0]
                if own == "logs" or own.startswith("chain.state") or not path.exists():
                    continue
                cache = path.name.startswith("events.db") or path.suffix in (".db-wal", ".db-shm", ".seal")
                if self._reads and (cache or own == "traces"):
                    continue
                if self._reads and path.suffix == ".db":
                    body = _meant(path)
                else:
                    body = path.read_bytes() if path.is_file() else b"a folder"
                found[str(path)] = sha256(body).hexdigest()
        return found

    def check(self) -> None:
        """Assert that nothing has changed: no transaction, no balance, no clock, no file."""
        now = self._number()
        mined = [
            block
            for block in range(self._block + 1, now + 1)
            if int(self._ask("eth_getBlockTransactionCountByNumber", hex(block)), 16)
        ]
        assert mined == [] and self._held() == self._accounts
        assert abs(self._clock() - self._ahead_s) < 30, "nobody has moved the chain's clock"
        kept = self._kept()
        assert {path for path in kept if kept[path] != self._files.get(path)} == set()
        assert self._files.keys() == kept.keys()


@pytest.fixture(scope="module")
def assay(home: Path) -> Assay:
    """The command on the devnet, with --json, without asking, acting for `client`."""

    def on_devnet(*arguments: str, account: str = "client", yes: bool = True, stdin: str = "") -> Ran:
        common = ["--home", str(home), "--json", "--account", account, *(["--yes"] if yes else [])]
        return run(*common, *arguments, stdin=stdin)

    return on_devnet
