"""Bytes from a node's gateway become an answer of the right shape or an error of the right class, in time."""

from __future__ import annotations

import base64
import gzip
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from assay.chain.eth import answer_schemas, transport
from assay.chain.eth import rpc as rpc_module
from assay.chain.eth.rpc import HttpRpc, RpcFailed
from assay.protocol.errors import RpcUnreachable

HASH = "0x" + "12" * 32
ADDRESS = "0x" + "34" * 20


class Gateway(ThreadingHTTPServer):
    """Answers every request as a test says."""

    daemon_threads = True
    status = 200
    body: Callable[[int], bytes] = staticmethod(lambda number: b"")
    """Of the question's id."""
    declared: int | None = None
    """Content-Length, where it is not the body's."""
    pause_s = 0.0
    """Between two bytes of the body."""
    packed: tuple[str, Callable[[bytes], bytes]] | None = None
    """The body's content encoding, and what makes it."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.asked, self.accounts = list[str](), list[str | None]()
        """Each request's address and its account."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def answers(self, result: Any) -> None:
        self.body = lambda number: json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode()


class Handler(BaseHTTPRequestHandler):
    server: Gateway

    def do_POST(self) -> None:
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = self.server.body(question["id"])
        self.server.asked.append(self.path)
        self.server.accounts.append(self.headers["Authorization"])
        self.send_response(self.server.status)
        if self.server.packed is not None:
            name, pack = self.server.packed
            body = pack(body)
            self.send_header("Content-Encoding", name)
        self.send_header("Content-Length", str(self.server.declared or len(body)))
        self.end_headers()
        stop = threading.Event()
        parts = [bytes([byte]) for byte in body] if self.server.pause_s else [body]
        try:
            for part in parts:
                self.wfile.write(part)
                self.wfile.flush()
                stop.wait(self.server.pause_s)
        except OSError:
            return  # the reader has had enough
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    server = Gateway(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_request_that_is_too_large_is_an_answer_and_no_outage(gateway: Gateway) -> None:
    """So that what is too much at once is asked in parts."""
    rpc = HttpRpc(gateway.url)
    gateway.status = 413
    with pytest.raises(RpcFailed, match="too large"):
        rpc.request("eth_call", [])
    for gateway.status in (400, 413, 422):
        with pytest.raises(RpcFailed, match="too large") as refused:
            rpc.request("eth_getLogs", [{}])
        assert refused.value.rpc_code == 413
    for gateway.status in (302, 400, 429, 500, 502):
        with pytest.raises(RpcUnreachable, match=f"HTTP status {gateway.status}"):
            rpc.request("eth_call", [])


def test_an_answer_that_is_too_large_is_one_too(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc_module, "LARGEST_ANSWER", 1_000_000)
    gateway.answers("0x" + "00" * 1_000_000)
    with pytest.raises(RpcFailed, match="too large"):
        HttpRpc(gateway.url).request("eth_call", [])
    gateway.answers("0x" + "00" * 400_000)
    assert len(HttpRpc(gateway.url).request("eth_call", [])) == 800_002


@pytest.mark.parametrize("value", [b"{}", b"[]", b"0", b'{"a":0}'])
def test_attack_T40_an_answer_of_millions_of_values_is_too_large(gateway: Gateway, value: bytes) -> None:
    """32 MiB of "{}," are most of a gigabyte in memory, and six questions are asked at once: it is never
    unpacked, and asked for in parts like any that is too large."""
    values = b",".join([value] * 500_001)
    gateway.body = lambda number: b'{"jsonrpc": "2.0", "id": %d, "result": [%s]}' % (number, values)
    with pytest.raises(RpcFailed, match="too large, over 500000 values") as refused:
        HttpRpc(gateway.url).request("eth_getLogs", [{}])
    assert refused.value.rpc_code == 413


@pytest.mark.long
def test_an_answer_of_the_most_logs_that_are_taken_at_once_is_none_of_these(gateway: Gateway) -> None:
    place = {"blockNumber": "0x7", "blockHash": HASH, "transactionHash": HASH, "transactionIndex": "0x0"}
    said = {"address": ADDRESS, "topics": [HASH] * 4, "data": "0x" + "00" * 256, "removed": False}
    log = {**said, **place, "logIndex": "0x0", "blockTimestamp": "0x1"}
    gateway.answers([log] * 20_000)
    assert len(HttpRpc(gateway.url, timeout_s=60.0).request("eth_getLogs", [{}])) == 20_000


def test_attack_47_a_packed_answer_is_unpacked_no_further_than_is_allowed(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A megabyte of gzip is a gigabyte."""
    gateway.packed = "gzip", gzip.compress
    gateway.answers("0x" + "00" * 400_000)
    assert len(HttpRpc(gateway.url).request("eth_call", [])) == 800_002
    for gateway.packed in (
        ("gzip", lambda body: gzip.compress(body)[:-9]),
        ("gzip", lambda body: body),
        ("br", lambda body: body),
    ):
        with pytest.raises(RpcUnreachable):
            HttpRpc(gateway.url).request("eth_call", [])
    gateway.packed = "gzip", gzip.compress
    monkeypatch.setattr(rpc_module, "LARGEST_ANSWER", 500_000)
    with pytest.raises(RpcFailed, match="too large"):
        HttpRpc(gateway.url).request("eth_call", [])


BODIES = {
    "nothing": b"",
    "HTML": b"<html><h1>502 Bad Gateway</h1></html>",
    "truncated": b'{"jsonrpc": "2.0", "id": 1, "resu',
    "null": b"null",
    "a list": b"[]",
    "no result": b'{"jsonrpc": "2.0", "id": 1}',
    "another question's": b'{"jsonrpc": "2.0", "id": 77, "result": "0x1"}',
    "a null result": b'{"jsonrpc": "2.0", "id": 1, "result": null}',
    "a number": b'{"jsonrpc": "2.0", "id": 1, "result": 7}',
    "a huge number": b'{"jsonrpc": "2.0", "id": 1, "result": ' + b"9" * 5_000 + b"}",
    "a huge quantity": b'{"jsonrpc": "2.0", "id": 1, "result": "0x' + b"f" * 17 + b'"}',
    "a negative one": b'{"jsonrpc": "2.0", "id": 1, "result": "-0x1"}',
    "an object": b'{"jsonrpc": "2.0", "id": 1, "result": {}}',
    "a nest": b"[" * 200_000,
    "no text": b"\xff\xfe\xfd",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_attack_47_what_is_no_answer_is_an_outage(gateway: Gateway, body: bytes) -> None:
    gateway.body = lambda number: body
    with pytest.raises(RpcUnreachable, match="did not answer eth_blockNumber"):
        HttpRpc(gateway.url).request("eth_blockNumber", [])


ERRORS = [{"code": None}, {"code": "x", "message": None}, {}, [], "no", 7, True, {"data": {"data": 7}}]


@pytest.mark.parametrize("error", ERRORS, ids=json.dumps)
def test_attack_47_an_error_of_any_shape_is_the_nodes_error(gateway: Gateway, error: Any) -> None:
    """The first of them ended solver, verifier and whistleblower."""
    gateway.body = lambda number: json.dumps({"id": number, "error": error}).encode()
    with pytest.raises(RpcFailed) as caught:
        HttpRpc(gateway.url).request("eth_blockNumber", [])
    assert isinstance(caught.value.rpc_code, int) and isinstance(caught.value.data, str)


def test_a_long_error_is_cut(gateway: Gateway) -> None:
    gateway.body = lambda number: json.dumps({"error": {"message": "x" * 10**6}}).encode()
    with pytest.raises(RpcFailed) as caught:
        HttpRpc(gateway.url).request("eth_blockNumber", [])
    assert len(caught.value.message) < 1_000


def test_attack_47_an_answer_that_trickles_ends_with_its_time(gateway: Gateway) -> None:
    gateway.answers("0x" + "00" * 1_000)
    gateway.pause_s = 0.05
    with pytest.raises(RpcUnreachable, match="timed out"):
        HttpRpc(gateway.url, timeout_s=0.3).request("eth_call", [])


ENDLESS = {
    "a header": (b"HTTP/1.1 200 OK\r\nX-Waits: ", b"a"),
    "a status": (b"HTTP/1.1 200 ", b"O"),
    "interim answers": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "a body": (b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", b" "),
    "a chunk's size": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"a"),
    "a trailer": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n \r\n0\r\nX: ", b"a"),
}
"""The first bytes, and those that repeat."""


@contextmanager
def endless(begin: bytes, again: bytes) -> Iterator[str]:
    """Address of a server that answers with `begin`, and then `again` and again until the test ends."""
    stop, threads = threading.Event(), list[threading.Thread]()

    def answer(client: socket.socket) -> None:
        with client, suppress(OSError):
            client.recv(1 << 16)
            client.sendall(begin)
            while not stop.wait(0.05):
                client.sendall(again)

    def serve(server: socket.socket) -> None:
        with suppress(OSError):
            while not stop.is_set():
                client = server.accept()[0]
                threads.append(threading.Thread(target=answer, args=(client,)))
                threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threads.append(threading.Thread(target=serve, args=(server,)))
        threads[0].start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        stop.set()
        server.shutdown(socket.SHUT_RDWR)
        for each in threads:
            each.join(10)


def ends(rpc: HttpRpc) -> float:
    """Seconds after which a question that may take 0.4 s was given up; 5 where it never was."""
    begun, ended = time.monotonic(), threading.Event()

    def ask() -> None:
        with pytest.raises(RpcUnreachable, match=r"timed out|connection refused or lost"):
            rpc.ask("eth_blockNumber", [], 0.4)
        ended.set()

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    ended.wait(5)
    return time.monotonic() - begun


@pytest.mark.parametrize(("begin", "again"), ENDLESS.values(), ids=ENDLESS)
def test_attack_T32_an_answer_that_never_ends_ends_with_its_time(begin: bytes, again: bytes) -> None:
    """Each byte restarted the socket's timeout, so a poll hung for good, with or without an honest
    endpoint."""
    with endless(begin, again) as url:
        rpc = HttpRpc(url)
        assert 0.3 < ends(rpc) < 2
        before = threading.active_count(), len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            assert ends(rpc) < 2
        time.sleep(0.2)  # the other end sees that nobody reads
        after = threading.active_count(), len(os.listdir("/proc/self/fd"))
        assert after <= before, "no thread and no socket is left"


def test_attack_T32_a_proxy_whose_answer_never_ends_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """To a node under TLS a proxy makes a tunnel, and says so before."""
    with endless(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n") as url:
        monkeypatch.setenv("https_proxy", url)
        monkeypatch.delenv("no_proxy", raising=False)
        assert 0.3 < ends(HttpRpc("https://node.invalid")) < 2


def test_attack_T32_many_addresses_that_do_not_answer_have_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of a host's addresses had the whole time."""

    def addresses(*_: Any, **__: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 1))] * 100

    def connect(place: tuple[str, int], timeout_s: float, **_: Any) -> socket.socket:
        """As the standard library's: of a name, each address in turn with the whole limit."""
        for _address in addresses() if place[0] == "node.invalid" else [place]:
            time.sleep(min(timeout_s, 0.15))
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", connect)
    monkeypatch.setattr(socket, "getaddrinfo", addresses)
    assert ends(HttpRpc("http://node.invalid:8545")) < 2


def test_attack_47_an_answer_that_ends_early_is_none(gateway: Gateway) -> None:
    gateway.answers("0x1234")
    gateway.declared = 10_000
    with pytest.raises(RpcUnreachable):
        HttpRpc(gateway.url, timeout_s=2.0).request("eth_call", [])


BLOCK = {
    "hash": HASH,
    "parentHash": HASH,
    "number": "0x5",
    "timestamp": "0x1",
    "baseFeePerGas": "0x1",
    "mixHash": HASH,
}
LOG = {
    "address": ADDRESS,
    "topics": [HASH],
    "data": "0x",
    "blockNumber": "0x5",
    "blockHash": HASH,
    "logIndex": "0x0",
    "transactionHash": HASH,
}
RECEIPT = {
    "transactionHash": HASH,
    "blockNumber": "0x5",
    "blockHash": HASH,
    "gasUsed": "0x5",
    "status": "0x1",
    "logs": [LOG],
}
WHOLE: dict[str, tuple[list[Any], Any]] = {
    "eth_getBlockByNumber": (["0x5", False], BLOCK),
    "eth_getTransactionReceipt": ([HASH], RECEIPT),
    "eth_getLogs": ([{}], [LOG]),
}
WRONG: list[Any] = [None, 7, "", "0x", "0xzz", "0x1" + "0" * 64, [], {}, [None], True, "5"]


@pytest.mark.parametrize("method", WHOLE)
def test_attack_47_every_field_that_is_read_is_what_it_must_be(gateway: Gateway, method: str) -> None:
    rpc, (params, answer) = HttpRpc(gateway.url), WHOLE[method]
    gateway.answers(answer)
    assert rpc.request(method, params) == answer
    inner = answer[0] if isinstance(answer, list) else answer
    optional = {"baseFeePerGas", "mixHash", "parentHash"}
    for name in inner:
        without = {key: value for key, value in inner.items() if key != name}
        for wrong in [without, *({**inner, name: value} for value in WRONG if value != inner[name])]:
            if name in optional and wrong.get(name) is None:
                continue
            if (name, wrong.get(name)) in (("data", "0x"), ("topics", []), ("logs", [])):
                continue  # a log may have none
            gateway.answers([wrong] if isinstance(answer, list) else wrong)
            with pytest.raises(RpcUnreachable):
                rpc.request(method, params)


def test_attack_T33_a_log_that_is_said_to_be_removed_is_no_answer(gateway: Gateway) -> None:
    """It was taken for a chain that had changed meanwhile, at every poll, in silence."""
    for wrong in (True, "false", None):
        gateway.answers([{**LOG, "removed": False}, {**LOG, "removed": wrong}])
        with pytest.raises(RpcUnreachable, match="removed"):
            HttpRpc(gateway.url).request("eth_getLogs", [{}])
    gateway.answers([{**LOG, "removed": False}])
    assert HttpRpc(gateway.url).request("eth_getLogs", [{}])


def test_an_answer_to_another_question_is_none(gateway: Gateway) -> None:
    rpc = HttpRpc(gateway.url)
    gateway.answers({**BLOCK, "number": "0x6"})
    with pytest.raises(RpcUnreachable, match="block 6 for block 5"):
        rpc.request("eth_getBlockByNumber", ["0x5", False])
    gateway.answers({**RECEIPT, "transactionHash": "0x" + "99" * 32})
    with pytest.raises(RpcUnreachable, match="another transaction"):
        rpc.request("eth_getTransactionReceipt", [HASH])


@pytest.mark.parametrize("value", ["0x", "0x_1", " 0x1", "0x1 ", "0x\uff11", "1", 1, None, "0x" + "f" * 65])
def test_a_quantity_is_hex_digits_and_nothing_else(value: Any) -> None:
    with pytest.raises(answer_schemas.Misshapen):
        answer_schemas.check("eth_getBalance", [], value)


def test_a_url_that_is_none_is_an_outage() -> None:
    for url in ("nowhere", "http://[::1", "ftp://127.0.0.1", "http://127.0.0.1:99999"):
        with pytest.raises(RpcUnreachable):
            HttpRpc(url, timeout_s=1.0).request("eth_chainId", [])


def test_what_the_environment_says_holds_and_is_looked_up_once(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy; and the account that the URL names."""
    monkeypatch.setenv("http_proxy", gateway.url)
    monkeypatch.delenv("no_proxy", raising=False)
    looked, look_up = list[dict[str, str]](), transport.getproxies
    monkeypatch.setattr(transport, "getproxies", lambda: looked.append(look_up()) or looked[-1])
    gateway.answers("0x7")
    rpc = HttpRpc("http://ann:se%63ret@node.invalid:8545/key")
    assert [rpc.request("eth_blockNumber", []) for _ in range(3)] == ["0x7"] * 3
    assert gateway.asked == ["http://node.invalid:8545/key"] * 3, "asked of the proxy"
    assert gateway.accounts == ["Basic " + base64.b64encode(b"ann:secret").decode()] * 3
    assert len(looked) == 1
