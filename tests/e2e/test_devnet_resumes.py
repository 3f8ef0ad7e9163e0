"""A stopped devnet resumes: same chain, time, ports, keys and money, and its open job ends."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.chain.eth.rpc import HttpRpc
from tests.e2e.commands import ROOT, assay, environment, result

LIMIT_S = 240
pytestmark = pytest.mark.slow


def client(home: Path, *arguments: str) -> list[str]:
    return assay(home, "--account", "client", *arguments)


def ask(home: Path, *arguments: str) -> Any:
    return result(client(home, *arguments))


def block(devnet: Any, number: str) -> Any:
    return HttpRpc(devnet["rpc_url"]).request("eth_getBlockByNumber", [number, False])


def seconds(found: Any) -> int:
    return int(found["timestamp"], 16)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "devnet"
    try:
        yield folder
    finally:
        ask(folder, "devnet", "down")


@pytest.fixture
def posted(home: Path, tmp_path: Path) -> Iterator[Path]:
    """A small job, posted, whose files the client serves."""
    ask(home, "devnet", "up", "--solvers=1", "--verifiers=2", "--whistleblowers=0", "--block-time=0.5")
    job = tmp_path / "job.toml"
    ask(home, "job", "init", str(job), "--template", "mlp", "--rounds", "2")
    text = job.read_text().replace('challenge_window = "60s"', 'challenge_window = "20s"')
    job.write_text(text.replace("shards = 2", "shards = 1").replace("min_shards = 2", "min_shards = 1"))
    serving = subprocess.Popen(
        client(home, "job", "post", str(job), "--budget", "200tok"),
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield home
    finally:
        serving.send_signal(signal.SIGTERM)
        serving.wait(30)


def wait_for(home: Path, event: str, count: int = 1) -> None:
    events = home / "nodes" / "solver-1" / "events.jsonl"
    deadline = time.monotonic() + LIMIT_S
    while events.read_text().count(f'"event": "{event}"') < count:
        assert time.monotonic() < deadline, events.read_text()[-2000:]
        time.sleep(0.2)


def money(home: Path) -> list[Any]:
    """Stakes and tokens, while nobody works."""
    names = ("client", "solver-1")
    return [
        ask(home, what, how, name) for name in names for what, how in (("stake", "ls"), ("token", "balance"))
    ]


def down_and_up(home: Path) -> tuple[Any, Any]:
    """Stops the devnet and resumes it; returns its record before and after."""
    before = json.loads((home / "devnet.json").read_text())["body"]
    genesis = block(before, "0x0")["hash"]
    assert ask(home, "devnet", "down")["stopped"] == len(before["nodes"]) + 1
    after = ask(home, "devnet", "up", "--solvers=3")  # an existing devnet ignores the option
    assert after["rpc_url"] == before["rpc_url"] and block(after, "0x0")["hash"] == genesis
    assert [(n["name"], n["url"]) for n in after["nodes"]] == [(n["name"], n["url"]) for n in before["nodes"]]
    return before, after


def test_a_devnet_that_was_stopped_goes_on_with_the_job_that_was_under_way(posted: Path) -> None:
    wait_for(posted, "committed")
    down_and_up(posted)
    wait_for(posted, "committed", 3)
    down_and_up(posted)
    deadline = time.monotonic() + LIMIT_S
    while not (job := ask(posted, "job", "ls")[0])["progress"]["closed"]:
        assert time.monotonic() < deadline, job
        time.sleep(1)
    check_model(posted, job["job_id"].removeprefix("0x"))


def check_model(home: Path, job: str) -> None:
    """Checks that the model is on the chain and that its training replays."""
    folder = home / "model"
    ask(home, "job", "fetch", job, "--out", str(folder))
    found = ask(home, "job", "verify", str(folder), "--rpc", "--replay", "all")
    assert found["valid"] is True and found["notChecked"] == []
    assert found["chain"]["closed"] is True and found["chain"]["settled"] == found["chain"]["claims"] == 4
    assert found["replayed"]["segments"] == found["replayed"]["of"] and found["replayed"]["inputs"] == 4


def test_money_and_time_stand_still_while_a_devnet_is_down(home: Path) -> None:
    ask(home, "devnet", "up", "--solvers=1", "--verifiers=0", "--whistleblowers=0")
    ask(home, "devnet", "warp", "9d")
    held = money(home)
    for _ in range(2):
        at = json.loads((home / "devnet.json").read_text())["body"]
        height, last = int(block(at, "latest")["number"], 16), seconds(block(at, "latest"))
        _, devnet = down_and_up(home)
        assert money(home) == held
        times = [
            seconds(block(devnet, hex(n))) for n in range(height, int(block(devnet, "latest")["number"], 16))
        ]
        assert times == sorted(times) and last == times[0] and times[-1] < last + 120
