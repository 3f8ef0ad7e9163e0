"""A devnet after any of its processes was killed: it reports that, continues, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.app.devnet_record import Devnet, process_alive, recorded
from assay.chain.eth.rpc import HttpRpc
from tests.e2e.commands import assay, result

pytestmark = pytest.mark.slow


def ask(home: Path, *arguments: str) -> Any:
    return result(assay(home, *arguments))


def record(home: Path) -> Devnet:
    found = recorded(home)
    assert found is not None
    return found


def pids(home: Path) -> dict[str, int]:
    found = record(home)
    return {"chain": found.chain_pid, **{node.name: node.pid for node in found.nodes}}


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while process_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not process_alive(pid)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "devnet"
    try:
        ask(folder, "devnet", "up", "--solvers=1", "--verifiers=1", "--whistleblowers=0", "--block-time=0.5")
        yield folder
    finally:
        left = list(pids(folder).values()) if recorded(folder) is not None else []
        ask(folder, "devnet", "down")
        assert not any(process_alive(pid) for pid in left if pid), "no orphan stays"


def answers(home: Path) -> list[str]:
    """Status of all nodes, once each of them answers and sees the chain."""
    deadline = time.monotonic() + 60
    while True:
        shown = ask(home, "devnet", "status")
        said = [node["status"].get("error") or node["status"]["action"] for node in shown]
        well = all(not node["status"].get("error") and "address" in node["status"] for node in shown)
        if well or time.monotonic() > deadline:
            assert well, said
            return said
        time.sleep(0.5)


def test_any_process_may_be_killed_and_started_again(home: Path) -> None:
    before = pids(home)
    kill(before["solver-1"])
    ask(home, "devnet", "restart", "solver-1")
    after = pids(home)
    assert after["solver-1"] != before["solver-1"] and after["verifier-1"] == before["verifier-1"]
    answers(home)

    time.sleep(11)  # until the chain has written its state
    genesis = HttpRpc(record(home).rpc_url).request("eth_getBlockByNumber", ["0x0", False])["hash"]
    kill(after["chain"])
    ask(home, "devnet", "restart", "chain")
    assert HttpRpc(record(home).rpc_url).request("eth_getBlockByNumber", ["0x0", False])["hash"] == genesis
    assert pids(home)["solver-1"] == after["solver-1"], "the nodes have outlived their chain"
    answers(home)

    kill(pids(home)["chain"])
    nodes = {name: pid for name, pid in pids(home).items() if name != "chain"}
    ask(home, "devnet", "up")
    assert not any(process_alive(pid) for pid in nodes.values()), "those without a chain were stopped"
    answers(home)

    kill(pids(home)["verifier-1"])
    ask(home, "devnet", "up")
    answers(home)

    alive = pids(home)
    kill(alive["chain"])
    assert ask(home, "devnet", "down")["stopped"] == 2
    assert not any(process_alive(pid) for pid in alive.values())
    assert (home / "chain.state").stat().st_size < 20_000_000
