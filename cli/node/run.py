"""Running a role as a process: its web face, its peers, its signals.

Contract: a node announces where it serves its blocks, follows the other nodes' announcements, and stops
cleanly on SIGTERM and SIGINT. What it has begun on chain is in its journal; starting it again goes on from
there.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from assay.app.invocation import EVENTS_FILE, App
from assay.app.output import plain
from assay.app.web import WebServer, node_app
from assay.app.wiring import Connection, NodeStorage
from assay.chain.eth.clock import ChainClock
from assay.node.service import Service
from assay.protocol.errors import AssayError
from assay.protocol.types import Seconds
from assay.storage.blockstore import BlockStore

PEERS_EVERY_S = 2.0


class NodeClock:
    """The Clock port of a node: the chain's time; before each wait the node looks after its peers and pending
    transactions."""

    def __init__(self, chain: ChainClock, before_wait: Callable[[], None]) -> None:
        self._chain = chain
        self._before_wait = before_wait

    def now(self) -> Seconds:
        return self._chain.now()

    def block(self) -> int:
        return self._chain.block()

    def wait(self, seconds: float) -> bool:
        self._before_wait()
        return self._chain.wait(seconds)


class EventLog:
    """A node's events as JSON lines, on standard error for people and in a file for the devnet's display."""

    def __init__(self, path: Path, echo: bool) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[str] = path.open("a", buffering=1)
        self._echo = echo
        self._lock = threading.Lock()

    def __call__(self, event: dict[str, Any]) -> None:
        line = json.dumps({"time": round(time.time(), 3), **plain(event)})
        with self._lock:
            self._file.write(line + "\n")
            if self._echo:
                sys.stderr.write(line + "\n")


@dataclass(frozen=True)
class NodeParts:
    """What a role's constructor needs."""

    connection: Connection
    storage: NodeStorage
    clock: NodeClock
    emit: EventLog
    home: Path


def run_node(
    app: App, host: str, port: int, make: Callable[[NodeParts], Service], *, serve: bool = True
) -> None:
    """Run one role until told to stop. Not to `serve` its blocks is for drills."""
    name = app.settings.account
    home = app.node_home(name)
    connection, storage = app.connect(), app.storage(name)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: connection.clock.stop())
    emit = EventLog(home / EVENTS_FILE, echo=not app.output.quiet)
    follow = _follow_peers(connection, storage, emit)
    service = make(NodeParts(connection, storage, NodeClock(connection.clock, follow), emit, home))
    served = storage.store if serve else BlockStore(home / "served")
    server = WebServer(node_app(served, lambda: service.status, service.status.role), host, port)
    url = server.start()
    try:
        if connection.market.endpoints().get(connection.market.me) != url:
            connection.writer.set_endpoint(connection.intent("endpoint", url), url)
        follow()
        emit({"event": "started", "role": service.status.role, "name": name, "url": url})
        service.run()
        emit({"event": "stopping", "role": service.status.role, "name": name})
    finally:
        server.stop()
        storage.close()


def _follow_peers(connection: Connection, storage: NodeStorage, emit: EventLog) -> Callable[[], None]:
    last = -PEERS_EVERY_S

    def follow() -> None:
        nonlocal last
        if time.monotonic() - last < PEERS_EVERY_S:
            return
        last = time.monotonic()
        try:
            connection.writer.sender.resume()
            endpoints = connection.market.endpoints()
            storage.set_peers(url for account, url in endpoints.items() if account != connection.market.me)
        except AssayError as error:
            emit({"event": "chain-unreachable", "error": error.message})

    return follow
