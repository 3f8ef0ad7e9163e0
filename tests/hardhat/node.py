"""Hardhat's node as a process: an Ethereum chain that is not Anvil, with blocks by the clock.

Contract: its accounts are those of the usual development mnemonic, as Anvil's. `make second-chain` installs
it; `NotInstalled` says so if it is missing.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path

from assay.chain.eth.rpc import HttpRpc
from assay.protocol.errors import RpcUnreachable

FOLDER = Path(__file__).parent
READY_S = 60.0


class NotInstalled(RuntimeError):
    """Hardhat's node is not there."""


class Hardhat:
    """A running node. Use as a context manager."""

    def __init__(self, log: Path, block_ms: int = 1_000) -> None:
        program = FOLDER / "node_modules" / ".bin" / "hardhat"
        if not program.exists():
            raise NotInstalled("Hardhat's node is not installed: `make second-chain` installs it")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        environment = {**os.environ, "BLOCK_MS": str(block_ms), "CI": "1"}
        with log.open("w") as sink:
            self._process = subprocess.Popen(
                ["node", str(program), "node", "--hostname", "127.0.0.1", "--port", str(port)],
                cwd=FOLDER,
                env={**environment, "HARDHAT_DISABLE_TELEMETRY_PROMPT": "true"},
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
            )
        self._log = log

    def __enter__(self) -> Hardhat:
        end, rpc = time.monotonic() + READY_S, HttpRpc(self.url, timeout_s=2.0)
        while True:
            try:
                rpc.request("eth_chainId", [])
                return self
            except RpcUnreachable:
                if self._process.poll() is not None or time.monotonic() > end:
                    self.__exit__()
                    raise AssertionError(f"Hardhat's node did not start: {self._log.read_text()}") from None
                time.sleep(0.1)

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(20)
