"""Gateways before a real node that fail: one a share of its requests, in each of the ways in which gateways
do; one as it is told to, for each of its paths."""

from __future__ import annotations

import copy
import json
import random
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic
from typing import Any, Self

import httpx

from assay.protocol import bounded_json

FAULTS = ("drop", "delay", "429", "500", "truncated", "null", "html", "stale")
DELAYS_S = (0.5, 3.0)
STALE_BLOCKS = 3
A_SECOND = 5
"""Requests that a rate limit lets through."""


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

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def fault(self, path: str) -> tuple[str, float]:
        """What is to come of the next request at this path, and how late a late one is."""
        with self._lock:
            fails = self._random.random() < self.share
            chosen = self._random.choice(FAULTS) if fails else "answered"
            self.done[chosen] += 1
            return chosen, self._random.uniform(*DELAYS_S)

    def ask(self, question: dict[str, Any]) -> Any:
        """The node's own answer."""
        return self._http.post(self.node_url, json=question).json()


class Weather(FaultyGateway):
    """One path for each of several clients, and what is wrong there: `over`, by the path's name, has "drop",
    "delay", "limit", "garbled", "stale" (every second answer) or "lie"."""

    def __init__(self, url: str, seed: int = 0) -> None:
        super().__init__(url, 0.0, seed)
        self.over: dict[str, str] = {}
        self._let: Counter[tuple[str, int]] = Counter()

    def path(self, name: str) -> str:
        """The URL of a client."""
        return f"{self.url}/{name}"

    def fault(self, path: str) -> tuple[str, float]:
        name = path.strip("/")
        with self._lock:
            chosen = self.over.get(name, "answered")
            if chosen == "garbled":
                chosen = self._random.choice(("500", "truncated", "null", "html"))
            elif chosen == "stale":
                chosen = self._random.choice(("stale", "answered"))
            elif chosen == "limit":
                second = name, int(monotonic())
                self._let[second] += 1
                chosen = "429" if self._let[second] > A_SECOND else "answered"
            self.done[chosen] += 1
            return chosen, self._random.uniform(*DELAYS_S)


def lie(method: str, result: Any) -> tuple[Any] | None:
    """Another answer, in a tuple, where there is one to make up."""
    if method == "eth_getLogs" and result:
        return (result[:-1],)
    if method == "eth_getTransactionReceipt" and result:
        return ({**result, "status": "0x0"},)
    if method == "eth_blockNumber":
        return (hex(int(result, 16) + 1_000),)
    if method == "eth_getTransactionCount":
        return (hex(int(result, 16) + 5),)
    if method == "eth_call" and len(result) > 66:
        changed = copy.copy(result)
        return (changed[:-1] + ("1" if changed[-1] == "0" else "0"),)
    return None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultyGateway

    def do_POST(self) -> None:
        question = bounded_json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fault, late_s = self.server.fault(self.path)
        if fault == "drop":
            self.close_connection = True
            return
        if fault in ("429", "500"):
            self._send(int(fault), b"no")
            return
        if fault == "html":
            self._send(200, b"<html><h1>Bad Gateway</h1></html>")
            return
        try:
            answer = self._answer(question, fault)
        except httpx.HTTPError:  # the node itself is gone
            self.close_connection = True
            return
        body = json.dumps(answer).encode()
        if fault == "delay":
            threading.Event().wait(late_s)
        if fault == "truncated":
            self._send(200, body, body[: len(body) // 2])
            self.close_connection = True
            return
        self._send(200, body)

    def _answer(self, question: dict[str, Any], fault: str) -> dict[str, Any]:
        """What the node says, or what is made of it. Raises httpx.HTTPError."""
        if fault == "stale":
            question = self._stale(question)
        answer: dict[str, Any] = self.server.ask(question)
        if fault == "lie" and "result" in answer:
            other = lie(question["method"], answer["result"])
            answer = answer if other is None else {**answer, "result": other[0]}
        if fault == "null" and "result" in answer:
            answer["result"] = None
        if fault == "stale" and question["method"] == "eth_blockNumber" and "result" in answer:
            answer["result"] = hex(max(int(answer["result"], 16) - STALE_BLOCKS, 0))
        return answer

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
