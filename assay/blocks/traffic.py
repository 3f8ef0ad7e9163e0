"""Counts a node's block traffic, by direction and purpose (training or proof).

Contract: response bodies are counted as they pass: in by `CountingTransport`, out by `CountingApp`. A node
fetches for training or for proof, depending on its role (`Traffic.purpose`), and says so in a header, by
which the server counts. The totals are stored in one record and survive restarts except for the last seconds.
Not guaranteed: that a stranger's header is true; the bytes of headers and TCP.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

import httpx

from assay.disk import record

PURPOSE_HEADER = "Assay-Purpose"
TRAINING, PROOF = "training", "proof"
PURPOSES = (TRAINING, PROOF)
FILE = "traffic.json"
_KIND = "assay/traffic/1"

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Message, Receive, Send], Awaitable[None]]


class Traffic:
    """Totals of one node, in bytes. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self.purpose = TRAINING
        self._path = path
        self._lock = threading.Lock()
        self._totals = read_totals(path)
        self._saved = dict(self._totals)

    def count(self, direction: str, purpose: str, count: int) -> None:
        """Add bytes that went `in` or `out`."""
        with self._lock:
            self._totals[f"{direction}_{purpose}"] += count

    def totals(self) -> dict[str, int]:
        """Bytes by direction and purpose: in_training, in_proof, out_training, out_proof."""
        with self._lock:
            return dict(self._totals)

    def save(self) -> None:
        """Writes the totals if they have changed."""
        totals = self.totals()
        if totals != self._saved:
            record.write(self._path, _KIND, totals)
            self._saved = totals


def read_totals(path: Path) -> dict[str, int]:
    """Totals in a node's file; zeros if it is missing or damaged."""
    kept = record.read_or_quarantine(path, _KIND, instead="bytes are counted from 0") or {}
    return {
        f"{direction}_{purpose}": int(kept.get(f"{direction}_{purpose}", 0))
        for direction in ("in", "out")
        for purpose in PURPOSES
    }


class CountingTransport(httpx.AsyncBaseTransport):
    """HTTP transport that counts received bytes."""

    def __init__(self, inner: httpx.AsyncBaseTransport, traffic: Traffic) -> None:
        self._inner, self._traffic = inner, traffic

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        purpose = self._traffic.purpose
        request.headers[PURPOSE_HEADER] = purpose
        response = await self._inner.handle_async_request(request)
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = _Counted(response.stream, self._traffic, purpose)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Counted(httpx.AsyncByteStream):
    def __init__(self, inner: httpx.AsyncByteStream, traffic: Traffic, purpose: str) -> None:
        self._inner, self._traffic, self._purpose = inner, traffic, purpose

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._inner:
            self._traffic.count("in", self._purpose, len(part))
            yield part

    async def aclose(self) -> None:
        await self._inner.aclose()


class CountingApp:
    """ASGI application that counts sent bytes of answers on `/ipfs/`."""

    def __init__(self, app: AsgiApp, traffic: Traffic) -> None:
        self._app, self._traffic = app, traffic

    async def __call__(self, request: Message, receive: Receive, send: Send) -> None:
        if request["type"] != "http" or not request["path"].startswith("/ipfs/"):
            await self._app(request, receive, send)
            return
        name = PURPOSE_HEADER.lower().encode()
        said = next((value.decode("latin-1") for key, value in request["headers"] if key == name), TRAINING)
        purpose = said if said in PURPOSES else TRAINING

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.body":
                self._traffic.count("out", purpose, len(message.get("body", b"")))
            await send(message)

        await self._app(request, receive, counted)
