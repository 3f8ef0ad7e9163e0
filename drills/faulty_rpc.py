"""A gateway before a real node that fails a share of its requests, in each of the ways in which gateways
fail."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

FAULTS = ("drop", "delay", "429", "500", "truncated", "null", "html", "stale")
DELAYS_S = (0.5, 3.0)
STALE_BLOCKS = 3


class FaultyGateway(ThreadingHTTPServer):
    """Forwards to the node at `url`; a `share` of the requests fails. Use as a context manager."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, url: str, share: float, seed: int = 0) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.node_url, self.share = url, share
        self.done: Counter[str] = Counter()
        """Requests by what came of them."""
        self._random, self._lock = random.Random(seed), threading.Lock()
        self._http = httpx.Client(timeout=60)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def __enter__(self) -> FaultyGateway:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def fault(self) -> tuple[str, float]:
        """What is to come of the next request, and how late a late one is."""
        with self._lock:
            fails = self._random.random() < self.share
            chosen = self._random.choice(FAULTS) if fails else "answered"
            self.done[chosen] += 1
            return chosen, self._random.uniform(*DELAYS_S)

    def ask(self, question: dict[str, Any]) -> Any:
        """The node's own answer."""
        return self._http.post(self.node_url, json=question).json()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultyGateway

    def do_POST(self) -> None:
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fault, late_s = self.server.fault()
        if fault == "drop":
            self.close_connection = True
            return
        if fault in ("429", "500"):
            self._send(int(fault), b"no")
            return
        if fault == "html":
            self._send(200, b"<html><h1>Bad Gateway</h1></html>")
            return
        if fault == "stale":
            question = self._stale(question)
        answer = self.server.ask(question)
        if fault == "null" and "result" in answer:
            answer["result"] = None
        if fault == "stale" and question["method"] == "eth_blockNumber" and "result" in answer:
            answer["result"] = hex(max(int(answer["result"], 16) - STALE_BLOCKS, 0))
        body = json.dumps(answer).encode()
        if fault == "delay":
            threading.Event().wait(late_s)
        if fault == "truncated":
            self._send(200, body, body[: len(body) // 2])
            self.close_connection = True
            return
        self._send(200, body)

    def _stale(self, question: dict[str, Any]) -> dict[str, Any]:
        """The question as a node answers it that is some blocks behind."""
        if "latest" not in question["params"]:
            return question
        height = self.server.ask({"jsonrpc": "2.0", "id": 0, "method": "eth_blockNumber", "params": []})
        then = hex(max(int(height["result"], 16) - STALE_BLOCKS, 0))
        return {**question, "params": [then if part == "latest" else part for part in question["params"]]}

    def _send(self, status: int, body: bytes, sent: bytes | None = None) -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body if sent is None else sent)
        except OSError:
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""
