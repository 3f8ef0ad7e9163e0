"""The dashboard over a fake market, for a browser: prints its URL and runs until killed.

check.mjs moves the market by GET /test/turn, keep, reorganise, silent, speak, state, until/WHAT.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from assay.app.web import WebServer
from assay.dashboard.feed import Feed
from assay.dashboard.server import dashboard_app
from tests.fakes.dashboard import DaySource

MOST_TURNS = 400


def conditions(source: DaySource) -> dict[str, Callable[[], bool]]:
    """Conditions of `until`, by name."""
    market, job_id = source.market, source.job_id
    begun = len(market.claims(job_id))
    return {
        "committed": lambda: bool(market.claims(job_id)),
        "disputed": lambda: any(not game.decided for game in market.games()),
        "decided": lambda: all(game.decided for game in market.games()),
        "more": lambda: len([v for v in market.claims(job_id) if v.claim.kind == 0]) > begun,
        "done": lambda: market.job(job_id).progress.closed,
    }


def control(app: Starlette, source: DaySource, lock: threading.Lock) -> None:
    """The routes that move the market."""

    def move(request: Request) -> Response:
        what = request.path_params["what"]
        with lock:
            if what == "silent" or what == "speak":
                source.silent = what == "silent"
            elif what == "turn":
                source.turn()
            elif what in ("keep", "reorganise"):
                getattr(source, what)()
            elif what.startswith("until/"):
                met = conditions(source)[what.removeprefix("until/")]
                turns = 0
                while not met():
                    source.turn()
                    turns += 1
                    assert turns < MOST_TURNS, f"it never came to {what}"
            ann = next(address for address, name in source.names.items() if name == "ann")
            return JSONResponse({"job": source.job_id.hex(), "account": ann})

    app.add_route("/test/{what:path}", move)


class Locked:
    """A source whose market stands still while it is read."""

    def __init__(self, source: DaySource, lock: threading.Lock) -> None:
        self._source, self._lock = source, lock

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._source, name)

        def held(*arguments: Any) -> Any:
            with self._lock:
                return method(*arguments)

        return held


def main() -> None:
    lock = threading.Lock()
    source = DaySource(Path(tempfile.mkdtemp(prefix="assay-browser-")))
    feed = Feed(Locked(source, lock), 0.3)
    app = dashboard_app(feed, Locked(source, lock).replay, ["127.0.0.1"])
    control(app, source, lock)
    server = WebServer(app, "127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    threading.Thread(target=feed.run, daemon=True).start()
    print(server.start(), flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
