"""A node's alarms: events, counters, and a webhook that is told, or fails and holds nothing up."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from assay.cli.node.alarms import Watch
from assay.cli.node.run import Logged, in_words
from tests.fakes.market_day import MarketDay


@pytest.fixture
def hook() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A webhook's URL, and what it was told."""
    told: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Nothing on standard error."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/hook", told
    server.shutdown()


def watched(folder: Path, webhook: str | None) -> tuple[Watch, list[dict[str, Any]]]:
    """A solver that took a shard, trains nothing, and is late; and its events."""
    day = MarketDay(folder)
    job_id = day.post()
    day.solver("ann")
    market, events = day.markets["ann"], []
    while day.address("ann") not in (holder.solver for holder in day.market_state.jobs[job_id].holders):
        day.services["ann"].tick()
        day.market_state.advance(1)
    watch = Watch(market, lambda: day.market_state.time, "ann", "solver", events.append, webhook)
    task_time = day.market_state.jobs[job_id].view.terms.task_time
    for _ in range(6):
        watch()
        day.market_state.advance(task_time // 5)
    watch.close()
    return watch, events


def test_a_late_task_is_told_at_half_and_near_its_end(
    tmp_path: Path, hook: tuple[str, list[dict[str, Any]]]
) -> None:
    watch, events = watched(tmp_path, hook[0])
    assert [event["share"] for event in events] == [0.5, 0.9]
    assert [body["share"] for body in hook[1]] == [0.5, 0.9]
    body = hook[1][0]
    assert body["node"] == "ann" and body["owes"].startswith("task 0/") and "penalty" in body["loses"]
    assert watch.counters()["alarms"] == 2 and watch.counters()["clock_percent"] >= 100


def test_a_webhook_that_fails_is_said_and_counted(tmp_path: Path) -> None:
    watch, events = watched(tmp_path, "http://127.0.0.1:1/")
    assert [event["event"] for event in events].count("alarm") == 2
    unsent = [event for event in events if event["event"] == "alarm-unsent"]
    assert unsent and watch.counters()["alarms_unsent"] == len(unsent)


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
