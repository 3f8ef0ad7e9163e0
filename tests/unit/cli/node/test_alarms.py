"""A node's alarms: events, counters, a webhook and a desktop that are told, or fail and hold nothing up."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from assay.cli.node.alarms import Watch, ways
from assay.cli.node.run import Housekeeping, Logged, in_words
from assay.node.report import Report
from assay.protocol.errors import Ask
from assay.protocol.types import ZERO_ADDRESS
from tests.fakes.http_server import serving
from tests.fakes.market_day import MarketDay


@pytest.fixture
def hook() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A webhook's URL, and what it was told."""
    told: list[dict[str, Any]] = []

    def answer(_: str, body: bytes) -> tuple[int, bytes]:
        told.append(json.loads(body))
        return 204, b""

    with serving(answer) as url:
        yield f"{url}/hook", told


def watched(folder: Path, webhook: str | None, notify: bool = False) -> tuple[Watch, list[dict[str, Any]]]:
    """A solver that took a shard, trains nothing, and is late; and its events."""
    day = MarketDay(folder)
    job_id = day.post()
    day.solver("ann")
    market, events = day.markets["ann"], list[dict[str, Any]]()
    while day.address("ann") not in (holder.solver for holder in day.market_state.jobs[job_id].holders):
        day.services["ann"].tick()
        day.market_state.advance(1)
    tell = ways(webhook, notify)
    watch = Watch(market, lambda: day.market_state.time, "ann", "solver", events.append, tell)
    task_time = day.market_state.jobs[job_id].view.terms.task_time
    for _ in range(6):
        watch()
        day.market_state.advance(task_time // 5)
    watch.close()
    return watch, events


def stand_in(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A notify-send on PATH that writes its arguments into the file that is given back, then does `text`."""
    said = folder / "said"
    program = folder / "bin" / "notify-send"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" END >> {said}\n{text}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return said


def test_a_late_task_is_told_at_half_and_near_its_end(
    tmp_path: Path, hook: tuple[str, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = stand_in(tmp_path, "", monkeypatch)
    watch, events = watched(tmp_path / "day", hook[0], notify=True)
    assert [event["share"] for event in events] == [0.5, 0.9]
    assert [body["share"] for body in hook[1]] == [0.5, 0.9]
    body = hook[1][0]
    assert body["node"] == "ann" and body["owes"].startswith("task 0/") and "penalty" in body["loses"]
    assert watch.counters()["alarms"] == 2 and watch.counters()["clock_percent"] >= 100
    shown = [text.splitlines() for text in said.read_text().split("END\n")[:-1]]
    assert [text[-2:] for text in shown] == [["assay: ann (solver)", event["text"]] for event in events]
    assert [text[1] for text in shown] == ["--urgency=normal", "--urgency=critical"]


def test_a_webhook_and_a_desktop_that_fail_are_said_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, "echo no bus >&2; exit 3", monkeypatch)
    watch, events = watched(tmp_path / "day", "http://127.0.0.1:1/", notify=True)
    assert [event["event"] for event in events].count("alarm") == 2
    unsent = [event["error"] for event in events if event["event"] == "alarm-unsent"]
    assert len(unsent) == watch.counters()["alarms_unsent"] == 4
    assert unsent[1] == unsent[3] == "notify-send ended with 3: no bus" and "Connect" in unsent[0]


def test_a_question_and_a_conviction_are_told_once(
    tmp_path: Path, hook: tuple[str, list[dict[str, Any]]]
) -> None:
    """A solver computed wrongly: its loss, and what a person has to decide, reach the webhook."""
    day, report, events = MarketDay(tmp_path), Report("solver", ZERO_ADDRESS), list[dict[str, Any]]()
    day.solver("ann")
    market, tell = day.markets["ann"], ways(hook[0], False)
    watch = Watch(
        market,
        lambda: day.market_state.time,
        "ann",
        "solver",
        events.append,
        tell,
        status=lambda: report.status,
    )
    watch()
    assert events == []
    report.lose("claim 0x12 was convicted")
    report.note(questions={"convictions": "this machine gives other bits"})
    for _ in range(3):
        watch()
    watch.close()
    said = ["ann: claim 0x12 was convicted", "ann: convictions: this machine gives other bits"]
    assert [body["text"] for body in hook[1]] == [event["text"] for event in events] == said
    assert watch.lost == ("claim 0x12 was convicted",)


def full(*_: object, **__: object) -> Any:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    raise error


def test_attack_W25_a_full_disk_keeps_no_alarm_back(
    tmp_path: Path, hook: tuple[str, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the counts of traffic nor the events of the chain can be written: nothing can be looked at."""
    day, events = MarketDay(tmp_path), list[dict[str, Any]]()
    job_id = day.post()
    solver = day.solver("ann")
    while day.address("ann") not in (holder.solver for holder in day.market_state.jobs[job_id].holders):
        solver.tick()
        day.market_state.advance(1)
    machine_s = [1_000.0]
    monkeypatch.setattr("assay.cli.node.alarms.time.monotonic", lambda: machine_s[0])
    tell = ways(hook[0], False)
    watch = Watch(day.markets["ann"], lambda: day.market_state.time, "ann", "solver", events.append, tell)
    storage = SimpleNamespace(traffic=SimpleNamespace(save=full), follow=lambda market: None)
    ann = day.address("ann")
    writer = SimpleNamespace(sender=SimpleNamespace(resume=full), endpoints=full, me=ann, speaker=ann)
    connection = SimpleNamespace(writer=writer, market=day.markets["ann"])
    keep_house = Housekeeping(cast(Any, connection), cast(Any, storage), "http://a", watch, cast(Any, None))
    keep_house._last = -1_000.0
    with pytest.raises(sqlite3.OperationalError):
        keep_house()
    assert events == []
    monkeypatch.setattr(day.markets["ann"], "jobs", full)
    machine_s[0] += 0.95 * day.market_state.jobs[job_id].view.terms.task_time
    keep_house._last = -1_000.0
    with pytest.raises(sqlite3.OperationalError):
        keep_house()
    watch.close()
    assert [event["share"] for event in events] == [0.9] == [body["share"] for body in hook[1]]
    assert watch.counters()["clock_percent"] >= 90


def test_a_desktop_without_the_program_is_refused_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Ask) as refused:
        ways(None, True)
    assert "notify-send" in refused.value.message and "--webhook" in refused.value.hint
    assert ways(None, False) == []


def test_what_is_shown_is_no_markup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = stand_in(tmp_path, "", monkeypatch)
    (tell,) = ways(None, True)
    body = {"node": "-n", "role": "solver", "share": 0.5, "text": "<b>a & b</b>"}
    assert tell(body) == ""
    assert said.read_text().splitlines()[2:5] == ["--", "assay: -n (solver)", "&lt;b&gt;a &amp; b&lt;/b&gt;"]


def test_what_is_logged_is_an_event_too() -> None:
    events: list[dict[str, Any]] = []
    handler = Logged(events.append)
    logger = logging.getLogger("assay.test-of-logs")
    logger.addHandler(handler)
    try:
        logger.warning("%s cannot be read", "a file")
        logger.info("nothing to say")
    finally:
        logger.removeHandler(handler)
    wanted = {"event": "log", "level": "warning", "logger": logger.name, "text": "a file cannot be read"}
    assert events == [wanted]


def test_a_person_at_a_terminal_reads_words() -> None:
    line = in_words({"event": "committed", "role": "solver", "address": "0x11", "round": 0, "claim": b"\1\2"})
    assert line.endswith("committed  round=0 claim=0x0102\n") and "0x11" not in line
