"""Waiting for a devnet's nodes distinguishes a node that ended from a slow one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from assay.app.invocation import App
from assay.app.output import Output
from assay.app.settings import Flags
from assay.devnet.market import node_events, wait_started
from assay.protocol.errors import Stop


def app_in(home: Path) -> App:
    return App(Flags(home=str(home)), Output(False, True), True, False, None)


def test_a_node_that_ended_shows_the_end_of_its_log(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "solver-1.log").write_text("first\nout of memory\n")
    with pytest.raises(Stop, match="stopped while it was starting:\nfirst\nout of memory") as told:
        wait_started(app_in(tmp_path), {"solver-1": ended.pid}, {"solver-1": 0})
    assert told.value.code == "node-failed"


def test_a_node_that_is_slow_is_not_said_to_have_failed(tmp_path: Path) -> None:
    with pytest.raises(Stop, match="has not started after 0 s, though its process runs") as told:
        wait_started(app_in(tmp_path), {"solver-1": os.getpid()}, {"solver-1": 0}, timeout_s=0.0)
    assert told.value.code == "node-slow" and "busy" in told.value.hint


def test_only_what_is_said_since_then_counts(tmp_path: Path) -> None:
    events = node_events(tmp_path, "solver-1")
    events.parent.mkdir(parents=True)
    old, new = (json.dumps({"event": "started", "url": url}) + "\n" for url in ("http://old", "http://new"))
    events.write_text(old + new)
    urls = wait_started(app_in(tmp_path), {"solver-1": os.getpid()}, {"solver-1": len(old)})
    assert urls == {"solver-1": "http://new"}
