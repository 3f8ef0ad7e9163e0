"""Serves a node's blocks (IPFS Trustless Gateway), status and metrics over HTTP.

Contract: read-only; listens on loopback unless told otherwise; serves only blocks that the node holds, within
the limits of `connections`. It runs in a thread beside the role's loop and stops with it. Only ``/ipfs/`` is
meant for others: a reverse proxy need not forward anything else, and a node that listens on loopback answers
the rest only to addresses, localhost and the host that it announces.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from assay.app.connection_limits import (
    Allowance,
    BoundedServer,
    Connections,
    PacedApp,
    WebLimits,
)
from assay.app.network_addresses import Reach, Reaches, base_url, is_named
from assay.app.node_problems import why_not_ready
from assay.app.output import plain
from assay.app.status_page import status_page
from assay.app.wiring import Connection, NodeStorage
from assay.app.worker_status import listed
from assay.blocks.blockstore import BlockStore
from assay.blocks.gateway import gateway_route
from assay.blocks.traffic import AsgiApp, CountingApp, Message, Receive, Send, Traffic
from assay.protocol.errors import Stop
from assay.protocol.types import Address

StatusOf = Callable[[], Any]
MAX_HEADER_BYTES = 16 * 1024
PAGE_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
"""Headers with which a browser runs no script in a node's page, should a text be taken for markup."""


class NamedHosts:
    """ASGI application that answers only to addresses, localhost and `names`; /ipfs/ is for all."""

    def __init__(self, app: AsgiApp, names: Collection[str]) -> None:
        self._app, self._names = app, names

    async def __call__(self, request: Message, receive: Receive, send: Send) -> None:
        hosts = [value.decode("latin-1") for key, value in request["headers"] if key == b"host"]
        known = all(is_named(host, self._names) for host in hosts) or request["path"].startswith("/ipfs/")
        refusal = "no host name of this server: ask for its address, or have the proxy send Host: 127.0.0.1\n"
        answer = self._app if known else PlainTextResponse(refusal, 400)
        await answer(request, receive, send)


def node_app(
    store: BlockStore,
    status: StatusOf,
    role: str,
    traffic: Traffic | None = None,
    reaches: Reaches | None = None,
    names: Collection[str] | None = None,
) -> Starlette:
    """Web application of one node. `status` returns a dataclass that may change from call to call; `names`:
    see `Reach.names`."""

    def reach(request: Request) -> Response:
        account = request.path_params["account"]
        found = None if reaches is None else reaches(Address(account))
        return JSONResponse({"reached": found}, 404 if found is None else 200)

    def page(_: Request) -> Response:
        return HTMLResponse(status_page(role, plain(status())), headers=PAGE_HEADERS)

    def healthz(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    def readyz(_: Request) -> Response:
        if why := why_not_ready(plain(status())):
            return JSONResponse({"ready": False, "reason": why}, 503)
        return JSONResponse({"ready": True})

    def show_status(_: Request) -> Response:
        return Response(json.dumps(plain(status())), media_type="application/json")

    def metrics(_: Request) -> Response:
        return Response(_exposed(role, plain(status())), media_type="text/plain; version=0.0.4")

    app = Starlette(
        routes=[
            gateway_route(store),
            Route("/", page),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/status", show_status),
            Route("/metrics", metrics),
            Route("/reach/{account}", reach),
        ]
    )
    app.router.redirect_slashes = False  # such a redirect repeats whatever host the request named
    if traffic is not None:
        app.add_middleware(CountingApp, traffic=traffic)
    if names is not None:
        app.add_middleware(NamedHosts, names=names)
    return app


def _exposed(role: str, status: Mapping[str, Any]) -> bytes:
    """A status in Prometheus format: each number of the node, and of its workers by index and device."""
    from prometheus_client import CollectorRegistry, Gauge, generate_latest

    registry, gauges = CollectorRegistry(), dict[str, Gauge]()

    def show(name: str, value: float, of: str, **labels: str) -> None:
        if name not in gauges:
            gauges[name] = Gauge(f"assay_{name}", f"{name} of {of}", list(labels), registry=registry)
        gauges[name].labels(**labels).set(value)

    for name, value in _numbers(status):
        show(name, value, "this node", role=role)
    for number, worker in enumerate(listed(status)):
        for name, value in _numbers({**worker, "busy": bool(worker["order"])}, "worker_"):
            show(name, value, "a worker", role=role, worker=str(number), device=worker["device"])
    return generate_latest(registry)


def _numbers(status: Any, prefix: str = "") -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    for name, value in status.items():
        if isinstance(value, dict):
            found += _numbers(value, f"{prefix}{name}_")
        elif isinstance(value, (int, float)):
            found.append((prefix + name, float(value)))
    return found


class WebServer:
    """A uvicorn server in a daemon thread, within its limits."""

    def __init__(self, app: AsgiApp, host: str, port: int, limits: WebLimits | None = None) -> None:
        limits = limits or WebLimits()
        self.connections = Connections(limits, time.monotonic)
        config = uvicorn.Config(
            PacedApp(app, Allowance(limits, time.monotonic)),
            host=host,
            port=port,
            http="h11",
            ws="none",
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=2,
            log_level="error",
            access_log=False,
            lifespan="off",
        )
        self._server = BoundedServer(config, self.connections)
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._server.serve()), name="web", daemon=True
        )
        self._host, self._port = host, port

    def start(self, timeout_s: float = 10.0) -> str:
        """Starts listening; returns the base URL. Raises Stop if the port is taken."""
        self._thread.start()
        deadline = time.monotonic() + timeout_s
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise Stop(
                    f"the server cannot listen on {self._host}, port {self._port}: another program may hold"
                    " the port",
                    hint="choose another --port, or 0 for any free one",
                    code="port-in-use",
                )
            time.sleep(0.02)
        return base_url(self._host, self._server.port)

    def stop(self) -> None:
        """Stops listening and joins the thread."""
        self._server.should_exit = True
        self._thread.join(timeout=5)


@contextmanager
def serve_blocks(
    name: str, connection: Connection, storage: NodeStorage, reach: Reach | None = None
) -> Iterator[str]:
    """Serves an account's blocks for a `with` block and announces the URL, by default on loopback; yields the
    base URL."""
    reach = reach or Reach("127.0.0.1", 0, "auto")
    status = {"role": "client", "action": "serving", "name": name}
    face = node_app(storage.store, lambda: status, "client", storage.traffic, names=reach.names)
    server = WebServer(face, reach.host, reach.port)
    url = server.start()
    market, announced = connection.writer, reach.announced(url)
    try:
        if market.endpoints().get(market.me, "") != announced:
            market.set_endpoint(connection.intent("endpoint", announced), announced)
        yield announced or url
    finally:
        server.stop()
        storage.close()
