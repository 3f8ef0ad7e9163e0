"""A node's web server under strangers that hold connections open, send slowly, or take slowly."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from urllib.request import urlopen

import pytest

from assay.app.connection_limits import BBR, Allowance, Connections, WebLimits, network_of, prefer_bbr
from assay.app.web import WebServer, node_app
from assay.blocks.blockstore import BlockStore

LIMITS = WebLimits(
    connections=12, request_s=0.2, stall_s=0.2, exempt_loopback=False, per_address=1000, sweep_s=0.05
)
PATIENCE_S = 30.0


@contextmanager
def serving(store: BlockStore, limits: WebLimits) -> Iterator[tuple[WebServer, tuple[str, int]]]:
    server = WebServer(node_app(store, dict, "solver"), "127.0.0.1", 0, limits)
    url = server.start()
    try:
        yield server, ("127.0.0.1", int(url.rsplit(":", 1)[1]))
    finally:
        server.stop()


@pytest.fixture
def store(tmp_path: Path) -> BlockStore:
    return BlockStore(tmp_path)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it never came about"
        time.sleep(0.01)


def ended(client: socket.socket) -> bool:
    """Whether the server has ended this connection; what it sent before is thrown away."""
    client.settimeout(PATIENCE_S)
    try:
        while client.recv(65536):
            pass
    except ConnectionResetError:
        return True
    return True


def get(address: tuple[str, int], path: str = "/healthz") -> bytes:
    with urlopen(f"http://{address[0]}:{address[1]}{path}", timeout=PATIENCE_S) as answer:
        return bytes(answer.read())


def test_unfinished_headers_never_keep_others_out(store: BlockStore) -> None:
    """Ten times as many as there may be; each that is finished is answered, and the oldest has to go."""
    with serving(store, replace(LIMITS, request_s=1000.0)) as (server, address), ExitStack() as stack:
        clients = []
        for number in range(10 * LIMITS.connections):
            client = stack.enter_context(socket.create_connection(address))
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: ")
            clients.append(client)
            if number % 10 == 9:
                assert b"ok" in get(address)
        assert server.connections.cut >= 9 * LIMITS.connections
        assert ended(clients[0]), "the longest waiting goes first"
        clients[-1].sendall(b"x\r\n\r\n")
        assert clients[-1].recv(100).startswith(b"HTTP/1.1 200"), "the latest is served when it finishes"


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /healthz HTTP/1.1\r\nX-Long: ",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /hea",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nx",
        b"junk\r\n\r\n",
    ],
    ids=["nothing", "half a header", "half a second request", "half a body", "junk"],
)
def test_whoever_does_not_finish_its_request_is_cut_off(store: BlockStore, sent: bytes) -> None:
    with serving(store, LIMITS) as (_, address), socket.create_connection(address) as client:
        client.sendall(sent)
        assert ended(client)


def test_a_header_that_drips_is_cut_off_all_the_same(store: BlockStore) -> None:
    with serving(store, LIMITS) as (_, address), socket.create_connection(address) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nX-Long: ")
        deadline = time.monotonic() + PATIENCE_S
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            while time.monotonic() < deadline:
                client.sendall(b"x")
                time.sleep(0.02)


def test_whoever_takes_nothing_is_cut_off(store: BlockStore) -> None:
    cid = store.add_file(Random(1).randbytes(12 << 20))
    request = f"GET /ipfs/{cid}?format=car HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    with serving(store, replace(LIMITS, request_s=1000.0)) as (server, address), socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(address)
        client.sendall(request)
        until(lambda: server.connections.cut == 1)
        assert b"ok" in get(address)


def test_one_address_has_its_share_of_connections(store: BlockStore) -> None:
    limits = replace(LIMITS, per_address=3, request_s=1000.0)
    with serving(store, limits) as (_, address), ExitStack() as stack:
        clients = [stack.enter_context(socket.create_connection(address)) for _ in range(4)]
        assert ended(clients[3]), "one too many"
        for client in clients[:3]:
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 200")
            assert ended(client)
        assert b"ok" in get(address), "its place is free again"


def test_large_answers_come_whole_at_any_pace(store: BlockStore) -> None:
    data = bytes(range(256)) * 8192
    cid = store.put(data)
    slow = replace(LIMITS, bytes_per_s=20e6, burst_bytes=1 << 20, request_s=1000.0, stall_s=1000.0)
    with serving(store, slow) as (_, address):
        assert get(address, f"/ipfs/{cid}?format=raw") == data


def test_an_address_gets_its_burst_and_then_its_rate() -> None:
    now = [0.0]
    limits = WebLimits(bytes_per_s=100.0, burst_bytes=1000)
    allowance = Allowance(limits, lambda: now[0])
    assert [allowance.pause_s("192.0.2.1", 500) for _ in range(4)] == [0.0, 0.0, 5.0, 10.0]
    assert allowance.pause_s("192.0.2.2", 500) == 0.0, "another address has its own"
    now[0] = 15.0
    assert allowance.pause_s("192.0.2.1", 500) == 0.0
    assert allowance.pause_s("127.0.0.1", 10**9) == 0.0, "this machine is exempt"


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::", "2001:db8:1:2::/64"),
        ("127.0.0.1", ""),
        ("::1", ""),
        ("::ffff:127.0.0.1", ""),
        ("testclient", "testclient"),
        ("", ""),
    ],
)
def test_what_counts_as_one_address(address: str, name: str) -> None:
    assert network_of(address) == name


def test_no_more_than_a_quarter_of_the_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda what: (256, 1024))
    assert Connections(WebLimits(), time.monotonic).most == 64


def test_what_is_served_is_paced_by_bbr_where_the_system_has_it() -> None:
    allowed = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        before = listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")
        prefer_bbr(listening)
        after = listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")
        with socket.create_connection(listening.getsockname()), listening.accept()[0] as taken:
            inherited = taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")
    may = os.geteuid() == 0 and BBR in allowed.read_bytes().split()
    assert after == inherited and after in (BBR, before)
    assert after == BBR or not may
