"""The dashboard over HTTP: static pages, each page's data as JSON and as a stream of server-sent events.

Contract: GET only. Nothing from elsewhere is loaded (Content-Security-Policy: own scripts and styles only),
and text of the chain becomes text nodes, never markup. Answers only to addresses, localhost and the host that
it listens on, so that no other site can read it through its own name, or make it work (Fetch Metadata). At
most MOST_STREAMS are open: the oldest ends for a new one, and its browser reconnects.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Collection, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Send

from assay.app.invocation import App
from assay.app.web import NamedHosts, WebServer
from assay.dashboard.feed import MOST_TOPICS, Feed, Topic, game_number, told
from assay.dashboard.source import MarketSource
from assay.protocol.errors import AssayError, Stop, Unknown

STATIC = Path(__file__).parent / "static"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:;"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
LOOK_S = 0.1
HEARTBEAT_S = 15.0
MADE_WITHIN_S = 30.0
MOST_STREAMS = MOST_TOPICS // 2
"""Fewer than pages, so that streams never hold all of them."""
_HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)


class Guarded:
    """Adds headers that restrict a browser to this server's files, and refuses data to pages of other sites.

    Such a page cannot read the data, but could make the server compute them.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, asked: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        told = (value for key, value in asked["headers"] if key == b"sec-fetch-site")
        foreign = next(told, b"none") not in (b"none", b"same-origin")
        if foreign and asked["path"].startswith(("/api/", "/events/")):
            await PlainTextResponse("this is for the dashboard's own pages\n", 403)(asked, receive, guarded)
        else:
            await self._app(asked, receive, guarded)


def dashboard_app(feed: Feed, replay: Callable[[int], dict[str, Any]], names: Collection[str]) -> Starlette:
    """The web application. `replay`: this machine's replay of a game; `names`: hosts by which it is
    reached."""
    streams: OrderedDict[object, None] = OrderedDict()

    def index(_: Request) -> Response:
        return FileResponse(STATIC / "index.html", media_type="text/html; charset=utf-8")

    def icon(_: Request) -> Response:
        return FileResponse(STATIC / "icon.svg", media_type="image/svg+xml")

    def healthz(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    def own(request: Request) -> Response:
        try:
            return JSONResponse(replay(game_number(request.path_params["game"])))
        except AssayError as error:
            return JSONResponse(told(error), status_code=404 if isinstance(error, Stop | Unknown) else 503)

    async def once(request: Request) -> Response:
        page = feed.page(_topic(request))
        for _ in range(int(MADE_WITHIN_S / LOOK_S)):
            if page.made.is_set():
                break
            await asyncio.sleep(LOOK_S)
            page = feed.page(_topic(request))
        failed = "" if page.error is None or page.view is not None else page.error["code"]
        status = 503 if not page.text else 500 if failed == "bug" else 404 if failed else 200
        return Response(page.text or "{}", status_code=status, media_type="application/json")

    async def events(request: Request) -> Response:
        feed.page(_topic(request))  # is made from now on
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        stream = _stream(feed, _topic(request), request, streams)
        return StreamingResponse(stream, media_type="text/event-stream", headers=headers)

    app = Starlette(
        routes=[
            Route("/", index),
            Route("/favicon.ico", icon),
            Route("/healthz", healthz),
            Route("/api/replay/{game}", own),
            Route("/api/{path:path}", once),
            Route("/events/{path:path}", events),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        middleware=[Middleware(Guarded), Middleware(NamedHosts, names=names)],
    )
    app.router.redirect_slashes = False  # such a redirect repeats the host that the request named
    return app


def _topic(request: Request) -> Topic:
    path: str = request.path_params["path"]
    return tuple(path.strip("/").split("/"))


async def _stream(
    feed: Feed, topic: Topic, request: Request, streams: OrderedDict[object, None]
) -> AsyncIterator[str]:
    """Each version of a page as it is made, with heartbeats between them. `streams`: those that may
    continue, oldest first."""
    sent, quiet, me = 0, 0.0, object()
    streams[me] = None
    if len(streams) > MOST_STREAMS:
        streams.popitem(last=False)
    try:
        yield "retry: 1000\n\n"
        while me in streams and not feed.stopped.is_set() and not await request.is_disconnected():
            page = feed.page(topic)
            if page.version > 0 and page.version != sent:
                sent, quiet = page.version, 0.0
                yield f"id: {page.version}\ndata: {page.text}\n\n"
            elif quiet >= HEARTBEAT_S:
                quiet = 0.0
                yield ": still here\n\n"
            await asyncio.sleep(LOOK_S)
            quiet += LOOK_S
    finally:
        streams.pop(me, None)
    if feed.stopped.is_set():
        yield f"event: end\ndata: {json.dumps('the dashboard was stopped')}\n\n"


@contextmanager
def serving(
    app: App,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    every_s: float = 1.0,
    node_urls: Sequence[str] = (),
    losses: bool = True,
) -> Iterator[str]:
    """Serves the pages of `app`'s market; yields the base URL. Raises Stop if the port is taken, and the
    errors of connecting."""
    source = MarketSource(app, [url.rstrip("/") for url in node_urls], losses=losses)
    feed = Feed(source, every_s)
    server = WebServer(dashboard_app(feed, source.replay, {host}), host, port)
    following = threading.Thread(target=feed.run, name="dashboard", daemon=True)
    try:
        url = server.start()
        following.start()
        yield url
    finally:
        feed.stop()
        server.stop()
        if following.is_alive():
            following.join(timeout=10)
        source.close()
