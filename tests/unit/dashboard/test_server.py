"""The dashboard over HTTP: pages, streams, allowed sources, allowed readers, and error pages."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx
import pytest

from assay.app.web import WebServer
from assay.dashboard.feed import FORGET_S, MOST_TOPICS, Feed
from assay.dashboard.server import STATIC, dashboard_app
from assay.dashboard.source import MarketSource
from assay.protocol.errors import Retry
from tests.fakes.dashboard import DaySource


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Rig:
    """A dashboard whose chain is read when the test says so."""

    def __init__(self, folder: Path) -> None:
        self.source, self.clock = DaySource(folder), Clock()
        self.feed = Feed(self.source, 1.0, self.clock)
        self.server = WebServer(dashboard_app(self.feed, self.source.replay, set()), "127.0.0.1", 0)
        self.url = self.server.start()

    def get(self, path: str, **options: Any) -> httpx.Response:
        self.feed.page(tuple(path.removeprefix("/api/").split("/")))
        self.feed.turn()
        return httpx.get(self.url + path, **options)

    def close(self) -> None:
        self.feed.stop()
        self.server.stop()


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tmp_path_factory.mktemp("day"))
    yield made
    made.close()


def streamed(lines: Iterator[str]) -> dict[str, Any]:
    """The next message of a stream."""
    return next(json.loads(line[6:]) for line in lines if line.startswith("data: "))


def test_a_page_is_streamed_anew_when_the_market_has_moved(rig: Rig) -> None:
    topic = ("job", rig.source.job_id.hex())
    with httpx.stream("GET", f"{rig.url}/events/{'/'.join(topic)}", timeout=20) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = response.iter_lines()
        rig.feed.turn()
        first = streamed(lines)
        assert first["topic"] == "/".join(topic) and first["view"]["work"] == []
        while not rig.source.market.claims(rig.source.job_id):
            rig.source.turn()
        rig.feed.turn()
        second = streamed(lines)
        assert second["view"]["work"] and second["head"]["block"] > first["head"]["block"]
        version = rig.feed.page(topic)
        before = version.version
        rig.feed.turn()
        rig.feed.turn()
        assert version.version <= before + 1, "what did not change is not sent again"


def test_a_reorganisation_takes_back_what_it_took_from_the_chain(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    try:
        source, path = rig.source, f"/api/job/{rig.source.job_id.hex()}"
        source.keep()
        while not source.market.claims(source.job_id):
            source.turn()
        there = rig.get(path).json()
        source.reorganise()
        gone = rig.get(path).json()
        assert there["view"]["work"] and gone["view"]["work"] == []
        assert gone["head"]["reorganisations"] == there["head"]["reorganisations"] + 1
        assert gone["head"]["blocksReplaced"] > 0 and gone["head"]["block"] < there["head"]["block"]
    finally:
        rig.close()


def test_a_node_that_fails_is_told_and_what_was_shown_stays(rig: Rig) -> None:
    before = rig.get("/api/market").json()
    rig.source.silent = True
    try:
        during = rig.get("/api/market").json()
    finally:
        rig.source.silent = False
    assert during["trouble"]["code"] == "rpc-unreachable" and during["trouble"]["hint"]
    assert during["view"] == before["view"]
    assert rig.get("/api/market").json()["trouble"] is None


def test_what_there_is_not_is_a_404_with_a_next_step(rig: Rig) -> None:
    for path in ("/api/job/" + "ab" * 32, "/api/job/xyz", "/api/nothing", "/api/game/99"):
        answer = rig.get(path)
        assert answer.status_code == 404, path
        assert answer.json()["error"]["hint"]
    assert rig.get("/api/replay/99").status_code == 404


@pytest.mark.parametrize(
    "path",
    [
        *("", "/", "job", "job/", "job/%00", "job/" + "g" * 64, "job/latest/x", "a" * 3000, "%F0%9F%92%A9"),
        *("game/-1", "game/x", "game/" + "9" * 500, "game/1/2", "account/..%2f..%2fetc", "nodes/x"),
        "market?x=<script>",
    ],
)
def test_nonsense_is_a_404_and_never_a_bug(rig: Rig, path: str) -> None:
    feed = rig.feed
    feed.page(tuple(unquote(path.split("?")[0]).strip("/").split("/")))
    feed.turn()
    answer = httpx.get(f"{rig.url}/api/{path}")
    assert answer.status_code in (200, 404), answer.text
    assert (answer.status_code == 200) == path.startswith("market")
    if answer.status_code == 404 and answer.text.startswith('{"topic"'):
        assert answer.json()["error"]["code"] != "bug"


@pytest.mark.long
def test_it_only_reads(rig: Rig) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        for path in ("/", "/api/market", "/events/market", "/api/replay/1", "/static/main.js"):
            assert httpx.request(method, rig.url + path).status_code == 405, (method, path)


def test_another_host_name_is_refused(rig: Rig) -> None:
    assert httpx.get(rig.url, headers={"host": "market.example"}).status_code == 400


def test_every_answer_keeps_the_browser_to_this_server(rig: Rig) -> None:
    for path in ("/", "/static/main.js", "/api/market", "/nowhere", "/favicon.ico"):
        headers = rig.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"], path
        assert headers["x-content-type-options"] == "nosniff"
    assert "'unsafe" not in headers["content-security-policy"]


def test_pages_load_nothing_from_elsewhere_and_only_what_is_there() -> None:
    asked = set(re.findall(r'(?:src|href)="([^"#][^"]*)"', (STATIC / "index.html").read_text()))
    for script in STATIC.glob("*.js"):
        asked |= {f"/static/{name}" for name in re.findall(r'from "\./([^"]+)"', script.read_text())}
    assert len(asked) >= 12
    for path in asked:
        assert path.startswith("/static/") and (STATIC / path.removeprefix("/static/")).is_file(), path


def test_no_script_of_ours_reads_markup_or_runs_text() -> None:
    sinks = re.compile(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function")
    assert [p.name for p in STATIC.glob("*.js") if sinks.search(p.read_text())] == []


def test_what_is_vendored_is_what_was_published() -> None:
    vendor = STATIC / "vendor"
    row = re.compile(r"^\| `([^`]+)` \| .* \| `([0-9a-f]{64})` \|$", re.MULTILINE)
    listed = dict(row.findall((vendor / "README.md").read_text()))
    there = {path.name for path in vendor.iterdir()} - {"README.md"}
    assert set(listed) == there
    for name, digest in listed.items():
        assert sha256((vendor / name).read_bytes()).hexdigest() == digest, name


def test_pages_are_forgotten_and_there_are_only_so_many(tmp_path: Path) -> None:
    clock = Clock()
    feed = Feed(DaySource(tmp_path), 1.0, clock)
    pages = [feed.page(("account", str(i))) for i in range(MOST_TOPICS)]
    assert feed.page(("account", "0")) is pages[0], "asked for again, so not the oldest"
    market = feed.page(("market",))
    feed.turn()
    assert market.made.is_set() and pages[0].made.is_set() and not pages[1].made.is_set()
    clock.now_s = FORGET_S + 1
    feed.turn()
    page = feed.page(("market",))
    assert not page.made.is_set()
    feed.turn()
    assert page.made.is_set() and page.version == 1


def test_attack_T68_streams_that_are_held_open_keep_nobody_out(rig: Rig) -> None:
    """Hundreds of streams of unknown pages: the oldest end, and a page is still made and streamed."""
    host, port = rig.url.removeprefix("http://").split(":")
    with ExitStack() as held:
        for i in range(rig.server.connections.most + 8):
            line = held.enter_context(socket.create_connection((host, int(port)), timeout=20))
            line.sendall(f"GET /events/x/{i} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            assert b"text/event-stream" in line.recv(1_000), i
        assert rig.get("/api/market").status_code == 200
        with httpx.stream("GET", f"{rig.url}/events/market", timeout=20, trust_env=False) as response:
            rig.feed.turn()
            assert streamed(response.iter_lines())["topic"] == "market"


def test_attack_T69_no_other_sites_page_has_anything_made(rig: Rig) -> None:
    for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 404), ("none", 404)):
        got = httpx.get(f"{rig.url}/api/replay/99", headers={"Sec-Fetch-Site": site})
        assert got.status_code == status, site
    assert httpx.get(rig.url, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200, "a link to it"


def test_attack_T69_one_replay_at_a_time_holds_one_thread() -> None:
    source = object.__new__(MarketSource)
    source._replaying = threading.Lock()
    with source._replaying, pytest.raises(Retry, match="another game"):
        source.replay(1)


def test_a_bug_in_one_page_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = DaySource(tmp_path)
    feed = Feed(source, 1.0, Clock())
    monkeypatch.setattr(source, "_account", lambda text: 1 // 0)
    bad, good = feed.page(("account", "x")), feed.page(("market",))
    feed.turn()
    assert bad.error is not None and "ZeroDivisionError" in bad.error["message"]
    assert good.view is not None and good.error is None
