"""`job post` after its job is posted: it says what is wrong, once, and when nobody needs it any more."""

from __future__ import annotations

import io
import signal
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assay.app.invocation import App
from assay.app.output import Output
from assay.app.settings import Flags
from assay.cli.commands.job_post import wait_for_signal
from assay.protocol.errors import Retry
from assay.protocol.types import JobId

JOB = JobId(bytes.fromhex("ab" * 32))


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """The handlers that were there, again."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "deployment.json").touch()
    return tmp_path


def said(home: Path, *looks: Callable[[], bool]) -> str:
    """The output over some polls, each of which finds the job closed or not, or raises."""
    left = iter(looks)
    waits = iter([True] * len(looks) + [False])
    market = SimpleNamespace(job=lambda _: SimpleNamespace(progress=SimpleNamespace(closed=next(left)())))
    clock = SimpleNamespace(wait=lambda _: next(waits), now=lambda: 0)
    writer = SimpleNamespace(sender=SimpleNamespace(resume=lambda: None), jobs=list)
    connection: Any = SimpleNamespace(clock=clock, market=market, writer=writer)
    with redirect_stderr(io.StringIO()) as err:
        app = App(Flags(home=str(home), account="client"), Output(False, False), True, False, None)
        wait_for_signal(app, connection, JOB)
    return " ".join(err.getvalue().split())


def is_open() -> bool:
    return False


def is_closed() -> bool:
    return True


def fails() -> bool:
    raise Retry("the node does not answer", hint="wait", code="rpc-unreachable")


def test_nothing_is_said_of_a_job_that_goes_on(home: Path) -> None:
    assert said(home, is_open, is_open) == ""


def test_a_closed_job_is_told_once_with_the_command_that_fetches_it(home: Path) -> None:
    told = said(home, is_open, is_closed, is_closed)
    assert told.count("the job is closed") == 1 and "stop with Ctrl-C" in told
    assert f"--account client job fetch {'ab' * 8} --out model" in told


def test_a_trouble_is_told_once_and_its_end(home: Path) -> None:
    told = said(home, fails, fails, is_open, is_closed)
    assert told.count("the node does not answer; serving goes on, and this is tried again every 5 s") == 1
    assert told.index("all is well again") < told.index("the job is closed")


def test_a_market_that_was_wiped_is_told_as_gone(home: Path) -> None:
    (home / "deployment.json").unlink()
    told = said(home, fails, fails)
    assert told.count("the market was taken down; stop with Ctrl-C") == 1 and "tried again" not in told
