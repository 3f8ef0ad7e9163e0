"""An RPC gateway in front of a chain's node; subclasses make it fail, lag, lie or count.

Contract: without a subclass every answer is the node's own. Use as a context manager.
"""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import httpx

from assay.protocol import bounded_json


class Gateway(ThreadingHTTPServer):
    """Forwards to the node at `node_url`; `share`: share of requests that it treats differently."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, node_url: str, share: float = 0.0, seed: int = 0) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.node_url, self.share = node_url, share
        self.done: Counter[str] = Counter()
        """Counts requests by outcome."""
        self._random, self._lock = random.Random(seed), threading.Lock()
        self._http = httpx.Client(timeout=60)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, *_: object) -> None:
        """Ignores clients that hang up."""

    def ask(self, question: Any) -> Any:
        """The node's own answer. Raises httpx.HTTPError."""
        return self._http.post(self.node_url, json=question).json()

    def own(self, method: str, *params: Any) -> Any:
        """The node's own result."""
        return self.ask({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})["result"]

    def answer(self, question: Any) -> Any:
        """The answer to give."""
        return self.ask(question)

    def respond(self, handler: Handler, question: Any) -> None:
        """Answers a request."""
        handler.send(200, json.dumps(self.answer(question)).encode())


class Handler(BaseHTTPRequestHandler):
    """One client connection."""

    protocol_version = "HTTP/1.1"
    server: Gateway

    def do_POST(self) -> None:
        question = bounded_json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            self.server.respond(self, question)
        except (OSError, httpx.HTTPError):  # who asked is gone, or the node itself
            self.close_connection = True

    def send(self, status: int, body: bytes, sent: bytes | None = None) -> None:
        """Sends a response with this body; `sent`: the part of it that is really sent."""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body if sent is None else sent)

    def log_message(self, format: str, *args: object) -> None:
        """Does nothing."""
