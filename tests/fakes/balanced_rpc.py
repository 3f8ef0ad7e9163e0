"""Two nodes behind one address: every second request is answered by one that is some blocks behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any

import httpx

_AT = {
    "eth_call": 1,
    "eth_estimateGas": 1,
    "eth_getBalance": 1,
    "eth_getCode": 1,
    "eth_getTransactionCount": 1,
}


class Balancer:
    """What stands before the node at `url`; `blocks`: how far the second node is behind."""

    def __init__(self, url: str, blocks: int) -> None:
        self.url, self.blocks, self.every = url, blocks, 2
        self.asked = self.behind = 0
        self._lock = Lock()

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            self.asked += 1
            late = self.asked % self.every == 0
            self.behind += late
        return self._late(question) if late else self._own(question["method"], question["params"])

    def _own(self, method: str, params: list[Any]) -> dict[str, Any]:
        asked = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        found: dict[str, Any] = httpx.post(self.url, json=asked, timeout=60).json()
        return found

    def _late(self, question: dict[str, Any]) -> dict[str, Any]:
        method, params = question["method"], list(question["params"])
        head = max(int(self._own("eth_blockNumber", [])["result"], 16) - self.blocks, 0)
        if method == "eth_blockNumber":
            return {"result": hex(head)}
        if method == "eth_getBlockByNumber":
            params[0] = hex(head) if params[0] in ("latest", "pending") else params[0]
            if params[0].startswith("0x") and int(params[0], 16) > head:
                return {"result": None}
        elif method == "eth_getLogs":
            return self._logs(params[0], head)
        elif method in _AT:
            place = _AT[method]
            number = self._number(params[place], head)
            if number > head:
                return {"error": {"code": -32000, "message": "header not found"}}
            params[place] = hex(number)
        found = self._own(method, params)
        if method == "eth_getTransactionReceipt" and found.get("result"):
            return found if int(found["result"]["blockNumber"], 16) <= head else {"result": None}
        return found

    def _number(self, block: Any, head: int) -> int:
        if isinstance(block, dict):
            return self._number_of(block["blockHash"])
        return int(block, 16) if block.startswith("0x") else head

    def _number_of(self, block_hash: str) -> int:
        found = self._own("eth_getBlockByHash", [block_hash, False])["result"]
        return int(found["number"], 16)

    def _logs(self, query: dict[str, Any], head: int) -> dict[str, Any]:
        """Of a range it shows what it has, and says nothing of the rest."""
        if "blockHash" in query:
            if self._number_of(query["blockHash"]) > head:
                return {"error": {"code": -32000, "message": "unknown block"}}
        elif int(query["fromBlock"], 16) > head:
            return {"result": []}
        else:
            query = {**query, "toBlock": hex(min(int(query["toBlock"], 16), head))}
        return self._own("eth_getLogs", [query])


@contextmanager
def balanced(url: str, blocks: int) -> Iterator[tuple[str, Balancer]]:
    """The address, and what stands there."""
    balancer = Balancer(url, blocks)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = {"jsonrpc": "2.0", **balancer.answer(question), "id": question["id"]}
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", balancer
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
