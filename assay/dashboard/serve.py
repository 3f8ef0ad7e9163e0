"""Serves a dashboard during a `with` block."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from assay.app.invocation import App
from assay.app.web import WebServer
from assay.dashboard.feed import Feed
from assay.dashboard.server import dashboard_app
from assay.dashboard.source import MarketSource


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
