"""What HTTP errors of a node's gateway mean."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from assay.chain.eth.rpc import HttpRpc, RpcFailed
from assay.protocol.errors import RpcUnreachable


class Gateway(HTTPServer):
    """Answers every request with one status."""

    status = 200


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        assert isinstance(self.server, Gateway)
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    server = Gateway(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_request_that_is_too_large_is_an_answer_and_no_outage(gateway: Gateway) -> None:
    """So that what is too much at once is asked in parts."""
    rpc = HttpRpc(f"http://127.0.0.1:{gateway.server_port}")
    gateway.status = 413
    with pytest.raises(RpcFailed, match="too large"):
        rpc.request("eth_call", [])
    for gateway.status in (429, 502):
        with pytest.raises(RpcUnreachable, match=f"HTTP status {gateway.status}"):
            rpc.request("eth_call", [])
