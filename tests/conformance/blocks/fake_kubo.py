"""A stand-in for a Kubo daemon: the RPC methods that the adapter uses, with Kubo's replies and error texts.

Source: https://docs.ipfs.tech/reference/kubo/rpc/
"""

from __future__ import annotations

import json
import threading
from email.parser import BytesParser
from email.policy import HTTP
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from urllib.parse import parse_qs, urlsplit

from assay.blocks.dagpb import children
from assay.protocol.cid import DAG_PB, RAW, Cid

CODECS = {"raw": RAW, "dag-pb": DAG_PB}


OPTIONS = {
    "block/put": {"cid-codec", "mhtype", "mhlen", "pin", "allow-big-block", "format", "timeout"},
    "block/get": {"arg", "timeout"},
    "block/stat": {"arg", "offline", "timeout"},
    "pin/add": {"arg", "recursive", "name", "progress", "timeout"},
}
"""Parameters of each method by Kubo's reference; `offline` and `timeout` go with all."""


class RpcError(Exception):
    """Becomes Kubo's 500 with a JSON message."""


class FakeKubo:
    """A daemon, by default on a free loopback port; `blocks` and `pins` are its repository."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self.blocks: dict[str, bytes] = {}
        self.pins: set[str] = set()
        self._server = ThreadingHTTPServer((host, port), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self.url = f"http://{host}:{self._server.server_address[1]}"

    def __enter__(self) -> FakeKubo:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def call(self, method: str, query: dict[str, str], body: bytes) -> bytes:
        unknown = set(query) - OPTIONS[method] if method in OPTIONS else set()
        if unknown:
            raise RpcError(f"unknown options {sorted(unknown)} of {method}")
        if method == "block/put":
            if query.get("format") and query.get("cid-codec", "raw") != "raw":
                raise RpcError(
                    'unable to use "format" (deprecated) and a custom "cid-codec" at the same time'
                )
            cid = str(Cid.of(body, CODECS[query["cid-codec"]]))
            if len(body) > 1 << 20 and query.get("allow-big-block") != "true":
                raise RpcError("produced block is over 1MiB: big blocks can't be exchanged with other peers")
            self.blocks[cid] = body
            return json.dumps({"Key": cid, "Size": len(body)}).encode()
        cid = query["arg"]
        if method == "block/get":
            return self._block(cid)
        if method == "block/stat":
            return json.dumps({"Key": cid, "Size": len(self._block(cid))}).encode()
        if method == "pin/add":
            self._check_dag(cid)
            self.pins.add(cid)
            return json.dumps({"Pins": [cid]}).encode()
        raise RpcError(f"unknown method {method}")

    def _block(self, cid: str) -> bytes:
        if cid not in self.blocks:
            raise RpcError(f"block was not found locally (offline): ipld: could not find {cid}")
        return self.blocks[cid]

    def _check_dag(self, cid: str) -> None:
        for child in children(Cid.parse(cid), self._block(cid), 10_000):
            self._check_dag(str(child))


def _handler(daemon: FakeKubo) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            url = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            query = {name: values[-1] for name, values in parse_qs(url.query).items()}
            try:
                reply = daemon.call(url.path.removeprefix("/api/v0/"), query, _part(self.headers, body))
                self._send(200, reply)
            except RpcError as error:
                message = {"Message": str(error), "Code": 0, "Type": "error"}
                self._send(500, json.dumps(message).encode())

        def _send(self, status: int, reply: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, format: str, *args: object) -> None:
            return

    return Handler


def _part(headers: object, body: bytes) -> bytes:
    """The single file of a multipart/form-data body; an empty body has none."""
    if not body:
        return b""
    head = f"Content-Type: {headers['Content-Type']}\r\n\r\n".encode()  # type: ignore[index]
    message = BytesParser(policy=HTTP).parsebytes(head + body)
    parts = list(message.iter_parts())
    assert len(parts) == 1, "the RPC takes one file"
    boundary = message.get_boundary()
    start = body.index(b"\r\n\r\n") + 4
    return body[start : body.rindex(f"\r\n--{boundary}--".encode())]
