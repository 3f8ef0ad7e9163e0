"""Whatever a stranger sends to a node's face, or to the dashboard, is answered as HTTP and shows no file."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.testclient import TestClient

from assay.app.network_addresses import Reach
from assay.app.web import PAGE_HEADERS, WebServer, node_app
from assay.blocks.blockstore import BlockStore
from assay.dashboard.feed import Feed
from assay.dashboard.server import dashboard_app
from tests.fakes.dashboard import DaySource

SECRET = b"the secret of this machine"
MARKUP = "<script>alert(1)</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module", params=["node", "dashboard"])
def face(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Base URL of a server; a secret lies next to the files that it serves."""
    folder: Path = tmp_path_factory.mktemp(request.param)
    (folder / "secret").write_bytes(SECRET)
    app: Any
    if request.param == "node":
        store = BlockStore(folder / "store")
        store.add_file(bytes(600_000))
        status = {"action": MARKUP, "error": MARKUP, "counters": {MARKUP: 1}}
        reach = Reach("127.0.0.1", 0, "http://node.example")
        app = node_app(store, lambda: status, "solver", names=reach.names)
    else:
        source = DaySource(folder / "day")
        feed = Feed(source, 0.1)
        request.addfinalizer(feed.stop)
        threading.Thread(target=feed.run, daemon=True).start()
        app = dashboard_app(feed, source.replay, {"node.example"})
    server = WebServer(app, "127.0.0.1", 0)
    yield server.start()
    server.stop()


def answer(face: str, sent: bytes) -> bytes:
    """The answer to these bytes, until the other side closes or is silent for a second."""
    place = urlsplit(face)
    got = b""
    with socket.create_connection((place.hostname, place.port), timeout=1.0) as line:
        try:
            line.sendall(sent)
            while part := line.recv(1 << 16):
                got += part
        except (TimeoutError, ConnectionError):
            pass
    return got


PATHS = [
    *("/../secret", "/static/../../secret", "/static/%2e%2e/%2e%2e/secret", "/static/..%2f..%2fsecret"),
    *("/static/%2fetc/passwd", "/static//etc/passwd", "/ipfs/../../secret", "/ipfs/%2e%2e%2fsecret"),
    *("/ipfs/%00", "/ipfs/%ff%fe", "/ipfs/" + "b" * 8_000, "/ipfs/bafy?format=raw&format=car", "/ipfs/"),
    *("/ipfs/%0d%0aX-Evil:%201", "//evil.example/", "/api/../../secret", "/api/replay/99999999999999999999"),
    *(
        "/api/replay/" + "9" * 5_000,
        "/api/replay/-1",
        "/api/job/%2e%2e",
        "/events/../x",
        "/events/" + "a/" * 500,
        "/%c0%af",
        "/?%s%n%x",
    ),
    *("/api/job/" + "ab" * 400, "/api/account/<script>", "/status/..;/", "/metrics?x=" + "y" * 9_000),
]


@pytest.mark.parametrize("path", PATHS, ids=range(len(PATHS)))
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
def test_no_path_leads_out_or_breaks_anything(face: str, method: str, path: str) -> None:
    host = urlsplit(face).netloc
    if path.startswith("/events") and method == "GET":
        pytest.skip("a stream has no end")
    got = answer(face, f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    status = int(got.split(b" ", 2)[1])
    assert status < 500 and SECRET not in got and b"root:" not in got, got[:300]
    assert b"x-evil" not in got.split(b"\r\n\r\n")[0].lower()


RAW = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET\r\n\r\n",
    b"\x00" * 5_000,
    b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 5_000 + b"\r\n",
    b"GET / HTTP/1.1\r\nHost: " + b"h" * 20_000 + b"\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /x",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nRange: bytes=0-,0-,0-,0-\r\n\r\n",
    b"CONNECT 169.254.169.254:80 HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET http://169.254.169.254/ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    b"TRACE / HTTP/1.1\r\nHost: a\r\nX-Secret: 1\r\nConnection: close\r\n\r\n",
    b"GET /\x0d\x0aX-Evil: 1 HTTP/1.1\r\nHost: a\r\n\r\n",
]


@pytest.mark.parametrize("sent", RAW, ids=range(len(RAW)))
def test_what_is_no_request_costs_one_connection(face: str, sent: bytes) -> None:
    got = answer(face, sent)
    assert not got or int(got.split(b" ", 2)[1]) < 500, got[:300]
    assert b"x-secret" not in got.lower(), "nothing is echoed"
    assert httpx.get(f"{face}/healthz", trust_env=False).json() == {"status": "ok"}


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:1", "[", ""]
)
def test_a_page_elsewhere_cannot_read_it_by_a_name_of_its_own(face: str, host: str) -> None:
    for path in ("/", "/status", "/metrics", "/api/market", "/status/"):
        got = httpx.get(face + path, headers={"Host": host}, trust_env=False)
        assert got.status_code == 400 and "location" not in got.headers, path


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "[::1]:8440", "192.168.1.7:1", "localhost:8440", "node.example"]
)
def test_it_answers_to_addresses_and_to_the_host_that_it_was_given(face: str, host: str) -> None:
    assert httpx.get(f"{face}/healthz", headers={"Host": host}, trust_env=False).status_code == 200


def test_blocks_are_served_under_any_name_and_status_where_a_network_was_let_in() -> None:
    client = TestClient(
        node_app(BlockStore(Path("store")), dict, "solver", names=set()), "http://cdn.example"
    )
    assert (
        client.get("/ipfs/bad?format=raw").text.startswith("'bad' is not")
        and client.get("/status").status_code == 400
    )
    assert Reach("0.0.0.0", 4001, "none").names is None, "a container's monitor asks by the service's name"


def test_a_nodes_page_has_no_markup_of_others_and_lets_none_run(face: str) -> None:
    got = httpx.get(f"{face}/", trust_env=False)
    assert "<script>alert" not in got.text and "onerror=alert(1)>" not in got.text
    policy = got.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
    assert got.headers["x-content-type-options"] == PAGE_HEADERS["x-content-type-options"]
