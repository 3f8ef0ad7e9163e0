"""Forks of a process that has loaded everything are the commands that they are told to be."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from assay.app.devnet_record import process_alive, runs
from assay.devnet import nursery as devnet_nursery
from assay.devnet.nursery import Nursery, able, nursery_for
from assay.protocol.errors import Stop

pytestmark = pytest.mark.skipif(
    sys.platform != "linux",
    reason="a fork's own command line, and so a nursery, is of Linux alone (decision 0064)",
)


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as started:
        yield started


def waited(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def gone(pid: int) -> None:
    waited(lambda: not process_alive(pid))


def killed(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def waiting(folder: Path) -> list[str]:
    """A command that waits until somebody writes its password."""
    password = folder / "a password"
    os.mkfifo(password)
    return ["--home", str(folder / "a home"), "--password-file", str(password), "account", "new"]


@pytest.mark.long
def test_a_fork_is_the_command_with_its_own_log_and_its_own_end(nursery: Nursery, tmp_path: Path) -> None:
    log = tmp_path / "logs" / "one.log"
    log.parent.mkdir()
    log.write_text("before\n")
    pid = nursery.start(["--home", str(tmp_path / "a home"), "config", "show"], log)
    gone(pid)
    assert log.read_text().startswith("before\n") and "a home" in log.read_text()
    wrong = nursery.start(["no-such-command"], tmp_path / "two.log")
    gone(wrong)
    assert "No such command" in (tmp_path / "two.log").read_text() and wrong != pid
    threads = list(Path(f"/proc/{nursery._process.pid}/task").iterdir())
    assert len(threads) == 1, "which no fork would have"


def test_each_fork_has_the_command_line_that_it_was_told(nursery: Nursery, tmp_path: Path) -> None:
    """By which a devnet's processes are found, stopped and taken for nobody else's."""
    words = waiting(tmp_path)
    pids = [nursery.start([*words, f"bob-{n}"], tmp_path / f"{n}.log") for n in range(2)]
    try:
        for pid in pids:
            waited(partial(runs, pid, "-m", "assay", *words))
            assert not runs(pid, "assay.cli.nursery") and not runs(pid, "--account")
            assert os.getsid(pid) == pid, "in a session of its own"
    finally:
        for pid in pids:
            killed(pid)
    for pid in pids:
        gone(pid)


def test_a_line_that_has_no_room_starts_nothing_and_is_told(nursery: Nursery, tmp_path: Path) -> None:
    log = tmp_path / "log"
    pid = nursery.start(["config", "show", "x" * 2 * devnet_nursery.ROOM], log)
    gone(pid)
    assert "has no room" in log.read_text()


@pytest.mark.long
def test_what_was_started_outlives_the_nursery_and_a_dead_one_is_told(tmp_path: Path) -> None:
    words = [*waiting(tmp_path), "bob"]
    with Nursery() as nursery:
        pid = nursery.start(words, tmp_path / "log")
        os.kill(nursery._process.pid, signal.SIGKILL)
        gone(nursery._process.pid)
        with pytest.raises(Stop, match="has ended"):
            nursery.start(words, tmp_path / "log")
    try:
        waited(lambda: runs(pid, *words))
    finally:
        killed(pid)


def test_there_is_none_where_a_gpu_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(devnet_nursery, "GPUS", (tmp_path / "none",))
    assert able()
    monkeypatch.setattr(devnet_nursery, "GPUS", (tmp_path / "none", tmp_path))
    assert not able()


def test_a_log_that_cannot_be_written_starts_nothing(nursery: Nursery, tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        nursery.start(["config", "show"], tmp_path)


@pytest.mark.long
def test_what_nobody_was_told_of_ends_with_it(tmp_path: Path) -> None:
    """As where it is closed while somebody waits for a start."""
    words = [*waiting(tmp_path), "bob"]
    nursery = Nursery()
    assert nursery._process.stdin is not None
    nursery._process.stdin.write(json.dumps(["assay", words, str(tmp_path / "log")]) + "\n")
    nursery._process.stdin.flush()

    def started() -> list[int]:
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if runs(pid, *words)]

    waited(lambda: bool(started()))
    nursery.close()
    nursery.close()
    waited(lambda: not started())


@pytest.mark.parametrize(("nodes", "able_to", "one"), [(2, True, True), (1, True, False), (2, False, False)])
def test_there_is_one_where_it_is_of_use(
    monkeypatch: pytest.MonkeyPatch, nodes: int, able_to: bool, one: bool
) -> None:
    monkeypatch.setattr(devnet_nursery, "able", lambda: able_to)
    with nursery_for(nodes) as nursery:
        assert (nursery is not None) == one
