"""What an IPFS daemon answered, kept in a file and answered again; and what was asked of it.

A record is JSON: where it is from, and each exchange's method, path with its query, digest of the request's
file, status and body (zlib in base64). An exchange is found by what was asked, and taken in the order of
recording.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from assay.blocks.blockstore import MAX_BLOCK_BYTES
from assay.blocks.cid import DAG_PB, Cid
from assay.blocks.dagpb import Node, encode_file, encode_node
from assay.blocks.kubo import KuboBlocks
from assay.protocol.errors import AssayError

BLOCK = b"a block of Assay"
FILE = bytes(range(256)) * 2100
NODE = encode_node(Node((), encode_file(())))
ABSENT = str(Cid.of(b"never stored anywhere"))


def asked(request: httpx.Request) -> str:
    """What makes a request: its path, its query in order, and its file."""
    body = request.read()
    boundary = request.headers.get("content-type", "").partition("boundary=")[2]
    body = body.replace(boundary.encode(), b"--") if boundary else body
    query = "&".join(sorted(str(request.url.query, "ascii").split("&")))
    return f"{request.method} {request.url.path}?{query} {hashlib.sha256(body).hexdigest()[:16]}"


class Recorder(httpx.BaseTransport):
    """Asks a real daemon, and keeps what it answers."""

    def __init__(self, url: str) -> None:
        self._inner = httpx.HTTPTransport()
        self._url = httpx.URL(url)
        self.exchanges: list[dict[str, Any]] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        what = asked(request)
        inner = httpx.Request(
            request.method,
            request.url.copy_with(host=self._url.host, port=self._url.port),
            headers={k: v for k, v in request.headers.items() if k not in ("host",)},
            content=request.content,
            extensions=request.extensions,
        )
        response = self._inner.handle_request(inner)
        body = response.read()
        kept = base64.b64encode(zlib.compress(body, 9)).decode()
        self.exchanges.append({"asked": what, "status": response.status_code, "body": kept})
        return httpx.Response(response.status_code, stream=httpx.ByteStream(body))

    def save(self, path: Path, source: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        record = {"source": source, "exchanges": self.exchanges}
        path.write_text(json.dumps(record, indent=1) + "\n")


class Replayed(httpx.BaseTransport):
    """Answers as a daemon did."""

    def __init__(self, path: Path) -> None:
        self.left = list(json.loads(path.read_text())["exchanges"])

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        what = asked(request)
        place = next((i for i, exchange in enumerate(self.left) if exchange["asked"] == what), None)
        assert place is not None, f"the daemon was never asked {what}"
        exchange = self.left.pop(place)
        body = zlib.decompress(base64.b64decode(exchange["body"]))
        return httpx.Response(exchange["status"], stream=httpx.ByteStream(body))


def outcome(work: Callable[[], object]) -> object:
    """What a call gives, or the code of its error."""
    try:
        given = work()
    except AssayError as error:
        return error.code
    return Cid.of(given).digest.hex()[:16] if isinstance(given, bytes) else given


def tour(blocks: KuboBlocks) -> dict[str, object]:
    """Everything that the adapter does with a daemon, once; what came of each step."""
    cid, node = str(Cid.of(BLOCK)), str(Cid.of(NODE, DAG_PB))
    steps: dict[str, Callable[[], object]] = {
        "an absent block": lambda: blocks.has(ABSENT),
        "to get an absent block": lambda: blocks.get(ABSENT),
        "to put a block": lambda: blocks.put(BLOCK) == cid,
        "to put a node": lambda: blocks.put(NODE, DAG_PB) == node,
        "a block": lambda: blocks.has(cid),
        "a node": lambda: blocks.has(node),
        "to get a block": lambda: blocks.get(cid) == BLOCK,
        "to get a node": lambda: blocks.get(node) == NODE,
        "to pin": lambda: blocks.pin(cid),
        "to unpin": lambda: blocks.unpin(cid),
        "to unpin again": lambda: blocks.unpin(cid),
        "to delete": lambda: blocks.delete(cid),
        "to delete again": lambda: blocks.delete(cid),
        "the deleted block": lambda: blocks.has(cid),
        "a file": lambda: blocks.read_file(blocks.add_file(FILE), len(FILE)) == FILE,
        "to put the largest block": lambda: blocks.put(bytes(MAX_BLOCK_BYTES)) != "",
    }
    return {name: outcome(work) for name, work in steps.items()}


OUTCOMES: dict[str, object] = {
    "an absent block": False,
    "to get an absent block": "block-not-found",
    "to put a block": True,
    "to put a node": True,
    "a block": True,
    "a node": True,
    "to get a block": True,
    "to get a node": True,
    "to pin": None,
    "to unpin": None,
    "to unpin again": "block-not-found",
    "to delete": None,
    "to delete again": "block-not-found",
    "the deleted block": False,
    "a file": True,
}
"""What every daemon has to do; the largest block is taken by Kubo and refused by js-ipfs."""
