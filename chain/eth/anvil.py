"""Runs a local chain: Foundry's Anvil as a child process.

Contract: `Anvil` returns once the node answers with the requested chain id; the process outlives this one.
The state file, if given, is written every `state_interval_s` seconds and read at start; it grows with the
chain's history, so a long-lived chain wants a long interval. Not guaranteed: anything about real networks;
Anvil has no peers and no finality.
"""

from __future__ import annotations

import platform
import re
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.chain.eth.accounts import account_library
from assay.chain.eth.rpc import HttpRpc
from assay.chain.folders import CONTRACTS_DIR
from assay.protocol.errors import Ask, RpcUnreachable, Stop

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

TEST_MNEMONIC = "test test test test test test test test test test test junk"
_READY = re.compile(r"Listening on [\d.]+:(\d+)")


class AnvilMissing(Ask):
    """Anvil is not installed."""

    code = "anvil-missing"


class AnvilFailed(Stop):
    """Anvil exited before it was ready."""

    code = "anvil-failed"


@dataclass(frozen=True)
class AnvilOptions:
    """Options of the node. `port` 0: any free one; `block_time_s` None: one block per transaction."""

    log_file: Path
    port: int = 0
    chain_id: int = 31337
    block_time_s: float | None = None
    hardfork: str = "prague"
    state_file: Path | None = None
    state_interval_s: int = 1
    kept_states: int = 512
    """Number of past blocks whose state can be queried, all in memory. Otherwise Anvil writes every state to
    a folder, half a megabyte per block with these contracts, and leaves it there when it is killed. Blocks,
    transactions and logs are kept for good."""
    genesis_time_s: int | None = None
    extra: tuple[str, ...] = ()


def anvil_binary(contracts: Path = CONTRACTS_DIR) -> Path:
    """Path of the pinned native binary, or the one on PATH (never npm's launcher, which hides failures).

    Raises AnvilMissing.
    """
    system = {"Linux": "linux", "Darwin": "darwin"}.get(platform.system(), "none")
    machine = {"x86_64": "amd64", "AMD64": "amd64", "aarch64": "arm64", "arm64": "arm64"}.get(
        platform.machine(), "none"
    )
    pinned = contracts / "node_modules" / "@foundry-rs" / f"anvil-{system}-{machine}" / "bin" / "anvil"
    if pinned.is_file():
        return pinned
    found = shutil.which("anvil")
    if found is None:
        raise AnvilMissing(
            f"Anvil is not installed for {system}-{machine}, so no local chain can be started",
            hint="install Foundry (https://getfoundry.sh), which has it, and put anvil on PATH; in a checkout"
            " `make setup` installs it",
        )
    return Path(found)


@cache
def dev_account(index: int) -> LocalAccount:
    """Key of a prefunded development account. These keys are public: for local chains only."""
    library = account_library()
    library.enable_unaudited_hdwallet_features()
    account: LocalAccount = library.from_mnemonic(TEST_MNEMONIC, account_path=f"m/44'/60'/0'/0/{index}")
    return account


class Anvil:
    """A running local chain."""

    def __init__(self, options: AnvilOptions, *, ready_timeout_s: float = 15.0) -> None:
        self.options, self.port = options, options.port
        self._process = self._spawn()
        try:
            self.port = self._wait_until_ready(ready_timeout_s)
        except BaseException:
            self.stop()
            raise

    @property
    def url(self) -> str:
        """The node's RPC URL on this machine."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    def alive(self) -> bool:
        """True if the process runs."""
        return self._process.poll() is None

    def healthy(self) -> bool:
        """True if the node answers with its chain id."""
        rpc = HttpRpc(self.url, timeout_s=2.0)
        try:
            return rpc.eth.chain_id == self.options.chain_id
        except RpcUnreachable:
            return False

    def stop(self, timeout_s: float = 10.0) -> None:
        """Stops the node; it writes its state file on exit."""
        if self.alive():
            self._process.send_signal(signal.SIGINT)  # SIGINT lets it dump its state
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()

    def _arguments(self) -> list[str]:
        o = self.options
        arguments = [
            str(anvil_binary()),
            "--host",
            "127.0.0.1",
            "--port",
            str(o.port),
            "--chain-id",
            str(o.chain_id),
        ]
        arguments += ["--mnemonic", TEST_MNEMONIC, "--hardfork", o.hardfork]
        if o.block_time_s is not None:
            arguments += ["--block-time", f"{o.block_time_s:g}"]
        if o.state_file is not None:
            o.state_file.parent.mkdir(parents=True, exist_ok=True)
            # Without past states, which would be half a megabyte a block: what goes on reads the present one.
            arguments += ["--state", str(o.state_file), "--state-interval", str(o.state_interval_s)]
        arguments += ["--prune-history", str(o.kept_states)]
        if o.genesis_time_s is not None:
            arguments += ["--timestamp", str(o.genesis_time_s)]
        return [*arguments, *o.extra]

    def _spawn(self, **how: Any) -> subprocess.Popen[str]:
        """Starts the process; `how`: further arguments of `Popen`."""
        log = self.options.log_file
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("")
        with log.open("a") as sink:
            return subprocess.Popen(
                self._arguments(),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
                **how,
            )

    def _wait_until_ready(self, timeout_s: float) -> int:
        end = time.monotonic() + timeout_s
        log = self.options.log_file
        while time.monotonic() < end:
            found = _READY.search(log.read_text())
            if found is not None:
                self.port = int(found[1])
                if self.healthy():
                    return self.port
            elif not self.alive():
                break
            else:
                time.sleep(0.01)
        state = "is still not ready" if self.alive() else f"ended with status {self._process.returncode}"
        last = log.read_text().strip()[-300:] or "it printed nothing"
        raise AnvilFailed(
            f"Anvil {state}, so there is no local chain: {last}",
            hint="another program may hold the port (choose port 0), or the state file is of another version"
            " (move it away)",
        )
