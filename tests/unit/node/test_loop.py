"""The loop that every role runs: nothing that its parts raise ends it, and what they raise is said."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assay.app.node_problems import why_not_ready
from assay.app.output import plain
from assay.cli.node.run import EventLog
from assay.node.actions import Actions
from assay.node.loop import Loop
from assay.node.report import Report
from assay.node.resource_errors import shortage
from assay.protocol.errors import Retry, RpcUnreachable
from assay.protocol.types import Address, JobId, Seconds

JOB = JobId(b"\7" * 32)
FULL = OSError(errno.ENOSPC, "No space left on device")
NO_FILES = OSError(errno.EMFILE, "Too many open files")


def full_database() -> sqlite3.Error:
    """SQLite's error when it may take no more pages."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.execute("CREATE TABLE t (x)")
    db.execute("PRAGMA max_page_count = 3")
    try:
        db.execute("INSERT INTO t VALUES (zeroblob(100000))")
    except sqlite3.Error as error:
        return error
    raise AssertionError("it took more than it may")


FAULTS = [
    RpcUnreachable("no answer"),
    TypeError("int() argument must be a string, not 'NoneType'"),
    FULL,
    NO_FILES,
    MemoryError(),
    RuntimeError("can't start new thread"),
    full_database(),
    RecursionError(),
]


class Steps:
    """A clock that runs for so many waits, and fails in one of them as a test says."""

    def __init__(self, waits: int, fail: Callable[[int], None] = lambda number: None) -> None:
        self.waits, self.fail = waits, fail
        self.done = 0

    def now(self) -> Seconds:
        return Seconds(1_000 + 100 * self.done)

    def block(self) -> int:
        return 1

    def wait(self, seconds: float) -> bool:
        self.done += 1
        self.fail(self.done)
        return self.done < self.waits


class Looks:
    """A loop that counts its looks, and fails in one of them as a test says."""

    def __init__(self, clock: Steps, emit: Callable[[dict], None]) -> None:
        self.report = Report("solver", Address("0x" + "11" * 20), emit, 1.0)
        self.actions = Actions(self.report, clock)
        self.loop = Loop(self.report, self.actions, clock, self.tick, lambda: 1.0)
        self.looks = 0
        self.fail: Callable[[int], None] = lambda number: None

    def tick(self) -> None:
        self.looks += 1
        self.fail(self.looks)


def once(error: Exception, at: int = 2) -> Callable[[int], None]:
    def fail(number: int) -> None:
        if number == at:
            raise error

    return fail


@pytest.mark.parametrize("error", FAULTS, ids=lambda error: f"{type(error).__name__}-{error}"[:40])
@pytest.mark.parametrize("part", ["tick", "housekeeping", "wait", "emit"])
def test_attack_47_nothing_that_a_part_of_the_loop_raises_ends_it(part: str, error: Exception) -> None:
    said: list[dict] = []
    faults = once(error)
    emitted = 0

    def emit(event: dict) -> None:
        nonlocal emitted
        emitted += 1
        if part == "emit":
            raise error
        said.append(event)

    service = Looks(Steps(5, faults if part == "wait" else lambda number: None), emit)
    if part == "tick":
        service.fail = faults
    elif part == "housekeeping":
        calls = iter(range(1, 100))
        service.loop.housekeeping = lambda: faults(next(calls))
    elif part == "emit":
        service.fail = once(Retry("the chain does not answer"))
    service.loop.run()
    assert service.looks == 5
    if part == "emit":
        assert emitted and service.loop.unsaid == 1
        return
    assert [event["event"] for event in said] == [
        "bug" if shortage(error) is None and "bugs" in service.report.status.counters else "retry"
    ]
    assert sum(service.report.status.counters.get(name, 0) for name in ("bugs", "retries")) == 1


@pytest.mark.parametrize("error", [FULL, NO_FILES, MemoryError(), full_database()], ids=str)
def test_a_machine_that_lacks_something_says_what_and_goes_on(error: Exception) -> None:
    service = Looks(Steps(3), lambda event: None)
    seen: list[str] = []

    def fail(number: int) -> None:
        seen.append(service.report.status.error)
        if number == 1:
            raise error

    service.fail = fail
    service.loop.run()
    assert seen[1].startswith("tick: ") and service.report.status.error == ""
    assert service.report.status.counters == {"shortages": 1, "retries": 1}


@pytest.mark.parametrize("error", [FULL, ValueError("a bug")], ids=["full disk", "bug"])
def test_an_action_that_fails_keeps_no_other_from_its_deadline(error: Exception) -> None:
    service = Looks(Steps(1), lambda event: None)
    done: list[str] = []

    def fail() -> None:
        raise error

    assert not service.actions.attempt("first", JOB, fail)
    assert service.actions.attempt("second", JOB, lambda: done.append("second"))
    assert not service.actions.attempt("first", JOB, lambda: done.append("too soon")), "it backs off"
    assert done == ["second"] and service.report.refusal(JOB) == ""


def test_what_is_no_shortage_is_a_bug() -> None:
    assert shortage(FileNotFoundError(errno.ENOENT, "gone")) is None
    assert shortage(RuntimeError("a bug")) is None and shortage(KeyError("x")) is None
    assert shortage(sqlite3.OperationalError("no such table: t")) is None


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EventLog]:
    yield EventLog(tmp_path / "events.jsonl", echo=False)


def test_events_that_do_not_fit_are_counted_and_the_next_are_read(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write
    log({"event": "one"})
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda file, data: real(file, data[: len(data) // 2]))
        log({"event": "half"})

        def refuse(file: int, data: bytes) -> int:
            raise FULL

        full.setattr(os, "write", refuse)
        log({"event": "lost"})
    log({"event": "two"})
    lines = (tmp_path / "events.jsonl").read_text().splitlines()
    assert log.lost == 2
    assert [json.loads(line)["event"] for line in (lines[0], lines[-1])] == ["one", "two"]
    assert len(lines) == 3, "half a line stands by itself"


@pytest.mark.parametrize("fault", [RpcUnreachable("no answer"), ValueError("a stranger's text")])
def test_a_look_that_fails_is_what_is_shown_until_it_goes_again(fault: Exception) -> None:
    """Housekeeping fails with it, and must not hide it: a node that does not see the market is not ready."""
    events: list[dict[str, object]] = []
    report = Report("solver", Address("0x" + "11" * 20), events.append)
    report.note(action="waiting for work")
    seen: list[str] = []

    def fails(number: int) -> None:
        seen.append(why_not_ready(plain(report.status)))

    clock = Steps(6, fails)
    looks = iter([fault, fault, fault, None, None, None, None])

    def tick() -> None:
        if (failed := next(looks)) is not None:
            raise failed

    loop = Loop(report, Actions(report, clock), clock, tick, lambda: 1.0)
    keeps = iter([fault, fault, fault, None, None, None, None])

    def keep() -> None:
        if (failed := next(keeps)) is not None:
            raise failed

    loop.housekeeping = keep
    loop.run()
    assert all(str(fault) in why and why.startswith("chain: ") for why in seen[:3]) and seen[3:6] == [""] * 3
    told = [event for event in events if event["event"] == "retry"]
    assert [event["what"] for event in told] == (["tick", "housekeeping"] if isinstance(fault, Retry) else [])
