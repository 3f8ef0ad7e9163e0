"""A gateway before a chain's node that forwards everything and counts it by method.

Contract: answers pass unchanged. What clients asked is in `methods`; `eth_call` and `eth_estimateGas` are
counted with the block they named. Requests, of one call or a batch, are in `requests` by who sent them.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx


class RecordingGateway(ThreadingHTTPServer):
    """Forwards to the node at `url`. Use as a context manager."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, url: str, host: str = "127.0.0.1", port: int = 0) -> None:
        super().__init__((host, port), _Handler)
        self.node_url = url
        self.methods: Counter[str] = Counter()
        self.requests: Counter[str] = Counter()
        self.lock = threading.Lock()
        self.http = httpx.Client(timeout=60)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://{self.server_address[0]!s}:{self.server_port}"

    def __enter__(self) -> RecordingGateway:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, *_: object) -> None:
        """A client that hangs up is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: RecordingGateway

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        asked = json.loads(body)
        with self.server.lock:
            self.server.requests[self.client_address[0]] += 1
            for one in asked if isinstance(asked, list) else [asked]:
                self.server.methods[str(one.get("method"))] += 1
        headers = {"Content-Type": "application/json"}
        answer = self.server.http.post(self.server.node_url, content=body, headers=headers)
        self.send_response(answer.status_code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer.content)))
        self.end_headers()
        self.wfile.write(answer.content)

    def log_message(self, *_: object) -> None:
        """Silence."""
