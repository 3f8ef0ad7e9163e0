"""A solver stopped in the midst of training ends soon, loses only the present segment, and resumes from
there.

However it ends, it leaves no worker behind.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.app.devnet_record import process_alive, recorded
from tests.e2e.commands import ROOT, assay, environment, result

pytestmark = pytest.mark.slow
LIMIT_S = 240
ENDS_S = 10.0
SLOW = {
    "hidden = 64": "hidden = 512",
    "batch = 32 ": "batch = 1024 ",
    "segment_steps = 4 ": "segment_steps = 8 ",
    "shards = 2\n": "shards = 1\n",
    "min_shards = 2": "min_shards = 1",
    'task = "120s"': 'task = "1200s"',
}
"""Of the job file: a segment takes a second and more."""


def ask(home: Path, *arguments: str) -> Any:
    return result(assay(home, "--account", "client", *arguments))


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A devnet whose solver trains a slow job that its client serves."""
    folder, job = tmp_path / "devnet", tmp_path / "job.toml"
    serving: subprocess.Popen[bytes] | None = None
    try:
        ask(folder, "devnet", "up", "--solvers=1", "--verifiers=2", "--whistleblowers=0", "--block-time=0.5")
        ask(folder, "job", "init", str(job), "--template", "mlp", "--rounds", "1")
        text = job.read_text()
        for before, after in SLOW.items():
            assert before in text, before
            text = text.replace(before, after)
        job.write_text(text)
        serving = subprocess.Popen(
            assay(folder, "--account", "client", "job", "post", str(job), "--budget", "200tok"),
            cwd=ROOT,
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        yield folder
    finally:
        if serving is not None:
            serving.send_signal(signal.SIGTERM)
            serving.wait(30)
        ask(folder, "devnet", "down")


def events(home: Path, event: str) -> list[dict[str, Any]]:
    lines = (home / "nodes" / "solver-1" / "events.jsonl").read_text().splitlines()
    return [found for line in lines if (found := json.loads(line))["event"] == event]


def wait_until(holds: Callable[[], object], limit_s: float = LIMIT_S) -> float:
    """Seconds until it holds."""
    begun = time.monotonic()
    while not holds():
        assert time.monotonic() - begun < limit_s, "it has never come to that"
        time.sleep(0.02)
    return time.monotonic() - begun


def solver(home: Path) -> int:
    found = recorded(home)
    assert found is not None
    return next(node.pid for node in found.nodes if node.name == "solver-1")


def below(pid: int) -> set[int]:
    """Processes that a process has started, or one of these, and that have not ended."""
    found = set[int]()
    for entry in Path("/proc").iterdir():
        try:
            status = (entry / "stat").read_text() if entry.name.isdigit() else ""
        except OSError:
            continue
        state, parent = status.rpartition(") ")[2].split(" ")[:2] if status else ("", "")
        if parent == str(pid) and state != "Z":
            found |= {int(entry.name), *below(int(entry.name))}
    return found


def in_training(home: Path, more: int) -> set[int]:
    """Wait for so many further segments, and into the next one; the solver's workers."""
    count = len(events(home, "trained")) + more
    wait_until(lambda: len(events(home, "trained")) >= count)
    time.sleep(0.3)
    workers = below(solver(home))
    assert workers, "it trains in a process of its own"
    return workers


def places(home: Path) -> list[tuple[int, int]]:
    return [(event["round"], event["segment"]) for event in events(home, "trained")]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_solver_that_is_ended_while_it_trains_goes_on_where_it_was(home: Path, number: int) -> None:
    workers = in_training(home, 3)
    pid, before = solver(home), places(home)
    os.kill(pid, number)
    took_s = wait_until(lambda: not process_alive(pid), ENDS_S)
    left_s = wait_until(lambda: not any(process_alive(worker) for worker in workers), 2.0)
    print(f"{signal.Signals(number).name}: ended in {took_s:.2f} s, its workers {left_s:.2f} s later")
    last = places(home)
    assert before == last[: len(before)] and len(last) <= len(before) + 1
    if number != signal.SIGKILL:
        assert events(home, "stopping")

    ask(home, "devnet", "restart", "solver-1")
    wait_until(lambda: len(places(home)) > len(last))
    after = places(home)
    assert len(set(after)) == len(after), "no segment that was stored is trained again"
    first = after[len(last)][1]
    assert first in (last[-1][1] + 1, last[-1][1] + 2), "one may be stored of which nobody was told any more"
    wait_until(lambda: events(home, "committed"))
    assert events(home, "bug") == []


def test_a_solver_whose_chain_does_not_answer_ends_in_time_too(home: Path) -> None:
    workers = in_training(home, 1)
    found, pid = recorded(home), solver(home)
    assert found is not None
    os.kill(found.chain_pid, signal.SIGSTOP)
    try:
        time.sleep(3.0)  # it waits for an answer by now
        os.kill(pid, signal.SIGTERM)
        took_s = wait_until(lambda: not process_alive(pid), ENDS_S)
        wait_until(lambda: not any(process_alive(worker) for worker in workers), 2.0)
        print(f"without its chain: ended in {took_s:.2f} s")
    finally:
        os.kill(found.chain_pid, signal.SIGCONT)
    ask(home, "devnet", "restart", "solver-1")
    wait_until(lambda: events(home, "committed"))
    after = places(home)
    assert len(set(after)) == len(after), "no segment that was stored is trained again"
