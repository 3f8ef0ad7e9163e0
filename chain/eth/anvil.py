"""Runs a local chain: Foundry's Anvil as a child process.

Contract: `start` returns once the node answers with the requested chain id. The process ends with this one,
also when this one is killed (Linux), unless `detached`. The state file, if given, is written every
`state_interval_s` seconds and read at start; it grows with the chain's history, so a long-lived chain wants a
long interval. Not guaranteed: anything about real networks; Anvil has no peers and no finality.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from assay.chain.eth.accounts import account_library
from assay.chain.eth.rpc import HttpRpc
from assay.chain.folders import CONTRACTS_DIR
from assay.protocol.errors import Ask, RpcUnreachable, Stop

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

TEST_MNEMONIC = "test test test test test test test test test test test junk"
_READY = re.compile(r"Listening on [\d.]+:(\d+)")
_PR_SET_PDEATHSIG = 1


class AnvilMissing(Ask):
    """Anvil is not installed."""

    code = "anvil-missing"


class AnvilFailed(Stop):
    """Anvil exited before it was ready."""

    code = "anvil-failed"


@dataclass(frozen=True)
class AnvilOptions:
    """Options of the node. `port` 0: any free one; `block_time_s` None: one block per transaction."""

    port: int = 0
    chain_id: int = 31337
    accounts: int = 10
    mnemonic: str = TEST_MNEMONIC
    block_time_s: float | None = None
    hardfork: str = "prague"
    state_file: Path | None = None
    state_interval_s: int = 1
    log_file: Path | None = None
    kept_states: int = 512
    """Number of past blocks whose state can be queried, all in memory. Otherwise Anvil writes every state to
    a folder, half a megabyte per block with these contracts, and leaves it there when it is killed. Blocks,
    transactions and logs are kept for good."""
    genesis_time_s: int | None = None
    detached: bool = False
    extra: tuple[str, ...] = field(default=())


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
def dev_account(index: int, mnemonic: str = TEST_MNEMONIC) -> LocalAccount:
    """Key of a prefunded development account. These keys are public: for local chains only."""
    library = account_library()
    library.enable_unaudited_hdwallet_features()
    account: LocalAccount = library.from_mnemonic(mnemonic, account_path=f"m/44'/60'/0'/0/{index}")
    return account


class Anvil:
    """A running local chain. Use as a context manager, or call `stop`."""

    def __init__(self, options: AnvilOptions | None = None, *, ready_timeout_s: float = 15.0) -> None:
        self.options = options or AnvilOptions()
        self.port = self.options.port
        self._log = self.options.log_file
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
        atexit.unregister(self.stop)
        if self.alive():
            self._process.send_signal(signal.SIGINT)  # SIGINT lets it dump its state
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def kill(self) -> None:
        """Kills the node, as a crash would."""
        self._process.kill()
        self.stop()

    def __enter__(self) -> Anvil:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

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
        arguments += ["--accounts", str(o.accounts), "--mnemonic", o.mnemonic, "--hardfork", o.hardfork]
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

    def _spawn(self) -> subprocess.Popen[str]:
        # The kernel's death signal follows the *thread* that forked, so only the main thread may ask for it.
        bound = sys.platform == "linux" and not self.options.detached
        bound = bound and threading.current_thread() is threading.main_thread()
        if self._log is not None:
            self._log.parent.mkdir(parents=True, exist_ok=True)
            self._log.write_text("")
        sink = subprocess.PIPE if self._log is None else self._log.open("a")
        try:
            process = subprocess.Popen(
                self._arguments(),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=self.options.detached,
                preexec_fn=_end_with_parent if bound else None,
            )
        finally:
            if not isinstance(sink, int):
                sink.close()
        if not self.options.detached:
            atexit.register(self.stop)
        return process

    def _wait_until_ready(self, timeout_s: float) -> int:
        end = time.monotonic() + timeout_s
        seen = ""
        while time.monotonic() < end:
            seen += self._output()
            found = _READY.search(seen)
            if found is not None:
                self.port = int(found[1])
                if self.healthy():
                    self._drain()
                    return self.port
            elif not self.alive():
                break
            else:
                time.sleep(0.01)
        state = "is still not ready" if self.alive() else f"ended with status {self._process.returncode}"
        raise AnvilFailed(
            f"Anvil {state}, so there is no local chain: {seen.strip()[-300:] or 'it printed nothing'}",
            hint="another program may hold the port (choose port 0), or the state file is of another version"
            " (move it away)",
        )

    def _output(self) -> str:
        if self._log is not None:
            return self._log.read_text()
        stdout = self._process.stdout
        return stdout.readline() if stdout is not None else ""

    def _drain(self) -> None:
        """Reads the node's output, which would block it once the pipe is full."""
        stdout = self._process.stdout
        if stdout is None:
            return

        def drain() -> None:
            with suppress(ValueError):  # `stop` has closed it
                for _ in stdout:
                    continue

        threading.Thread(target=drain, daemon=True, name="anvil-output").start()


def _end_with_parent() -> None:
    """Runs in the child before exec: makes the kernel kill it when the parent dies."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() == 1:  # the parent died between fork and here
        os._exit(1)
