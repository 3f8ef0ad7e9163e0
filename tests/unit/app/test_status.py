"""A node's status, as ``assay devnet status`` shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.app.status_page import status_page
from assay.node.actions import FIRST_BACKOFF_S, Actions
from assay.node.report import Report
from assay.protocol.errors import Ask, AssayError, Retry
from assay.protocol.types import Address, JobId, Seconds


class StillClock:
    """A clock that is set by hand."""

    time_s = 1_000

    def now(self) -> Seconds:
        return Seconds(self.time_s)

    def block(self) -> int:
        return 1

    def wait(self, seconds: float) -> bool:
        return False


def test_an_error_is_shown_until_the_same_thing_succeeds() -> None:
    clock = StillClock()
    report = Report("solver", Address("0x" + "11" * 20))
    actions = Actions(report, clock)

    def fail() -> None:
        raise Retry("the node did not answer", hint="wait")

    assert not actions.attempt("commit", None, fail)
    assert report.status.error == "commit: the node did not answer; wait"
    assert actions.attempt("train", None, lambda: None)
    assert report.status.error, "another thing's success says nothing of this one"
    clock.time_s += int(FIRST_BACKOFF_S)
    assert actions.attempt("commit", None, lambda: None)
    assert report.status.error == ""


@pytest.mark.parametrize("kind", [Retry, Ask])
def test_an_error_is_shown_no_longer_than_the_thing_is_wanted(kind: type[AssayError]) -> None:
    """As of a fetch for a job that is over: nothing tries it again, so nothing succeeds in it."""
    report = Report("solver", Address("0x" + "11" * 20))
    actions = Actions(report, StillClock())

    def fail() -> None:
        raise kind("nobody has the block", hint="wait")

    assert not actions.attempt("Examine/7", JobId(bytes(32)), fail)
    report.wants({"Examine/7", "Train/8"})
    assert report.status.error == "Examine/7: nobody has the block; wait"
    report.wants({"Train/8"})
    assert report.status.error == "" and not report.status.questions


def test_a_nodes_front_page_says_what_it_does_and_escapes_what_others_wrote() -> None:
    status = {
        "role": "solver",
        "address": "0x11",
        "action": "takes no shard of job <b>: \"it's\" & 'over'",
        "error": "no solver stake",
        "job": "",
        "loss": None,
        "counters": {"segments": 7},
    }
    page = status_page("solver", status)
    assert "<b>" not in page and "&lt;b&gt;" in page and "no solver stake" in page and "segments: 7" in page
    assert "None" not in page and page.startswith("<!doctype html>")
    assert "http://" not in page and "https://" not in page and "<script" not in page


def test_a_nodes_web_face_has_a_front_page(tmp_path: Path) -> None:
    from starlette.testclient import TestClient

    from assay.app.web import node_app
    from assay.blocks.blockstore import BlockStore

    client = TestClient(node_app(BlockStore(tmp_path / "store"), lambda: {"action": "serving"}, "client"))
    answer = client.get("/")
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/html")
    assert "assay client" in answer.text and "serving" in answer.text
    assert client.get("/status").json() == {"action": "serving"}
