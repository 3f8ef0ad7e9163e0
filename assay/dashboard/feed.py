"""The latest version of every open page, made again as the chain moves.

Contract: one thread reads the market, so that pages never wait for each other's reads. A page that nobody has
asked for in a while is not made. The page shows an error with its hint, and continues once it is over.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from assay.protocol.errors import AssayError, RpcUnreachable, Stop

log = logging.getLogger(__name__)
Topic = tuple[str, ...]
"""The parts of a page's path: ("job", "3f…")."""
FORGET_S = 30.0
MOST_TOPICS = 64
"""Maximum number of pages; the one asked for least recently is dropped."""


def game_number(text: str) -> int:
    """The game's number in a page's path. Raises Stop for anything else."""
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise Stop("there is no such game", hint="begin at the market", code="not-found")
    return int(text)


class Source(Protocol):
    """Source of the pages' data."""

    def refresh(self) -> dict[str, Any]:
        """Moves on to the chain's latest block; returns the data that all pages show. Raises AssayError."""
        ...

    def view(self, topic: Topic) -> dict[str, Any]:
        """A page's data. Raises AssayError; Stop for an unknown page."""
        ...

    def work(self, topics: list[Topic]) -> bool:
        """Does a part of the slow work for these pages; True if there is more to do."""
        ...


@dataclass
class Page:
    """One page: its latest text, and how often it has changed."""

    asked_s: float
    version: int = 0
    text: str = ""
    view: dict[str, Any] | None = None
    error: dict[str, str] | None = None
    made: threading.Event = field(default_factory=threading.Event)


def told(error: AssayError) -> dict[str, str]:
    """An error as pages show it."""
    return {"code": error.code, "message": error.message, "hint": error.hint}


class Feed:
    """Pages by topic, kept up to date by `run` in its own thread."""

    def __init__(self, source: Source, every_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self._source, self._every_s, self._now = source, every_s, now
        self._pages: dict[Topic, Page] = {}
        self._lock = threading.Lock()
        self._wake, self.stopped = threading.Event(), threading.Event()
        self._head: dict[str, Any] = {}
        self._trouble: dict[str, str] | None = None

    def page(self, topic: Topic) -> Page:
        """A page, which is made while somebody asks for it."""
        with self._lock:
            page = self._pages.pop(topic, None)
            if page is None:
                page = Page(self._now())
                self._wake.set()
            page.asked_s = self._now()
            self._pages[topic] = page
            if len(self._pages) > MOST_TOPICS:
                del self._pages[next(iter(self._pages))]
            return page

    def run(self) -> None:
        """Follows the chain until `stop`."""
        while not self.stopped.is_set():
            begun, more = self._now(), self.turn()
            left = 0.05 if more else max(self._every_s - (self._now() - begun), 0.05)
            self._wake.wait(left)
            self._wake.clear()

    def stop(self) -> None:
        """Ends `run` and every stream."""
        self.stopped.set()
        self._wake.set()

    def turn(self) -> bool:
        """Reads the chain once and makes every open page; True if there is more to do."""
        with self._lock:
            old = [t for t, page in self._pages.items() if self._now() - page.asked_s > FORGET_S]
            for topic in old:
                del self._pages[topic]
            topics = list(self._pages)
        if not topics:
            return False
        more = False
        try:
            self._head, self._trouble = self._source.refresh(), None
            more = self._source.work(topics)
        except AssayError as error:
            self._trouble = told(error)
        except Exception as error:  # top of a service's loop: the pages show the error
            log.exception("the dashboard could not read the market")
            self._trouble = {"code": "bug", "message": f"{type(error).__name__}: {error}", "hint": ""}
        for topic in topics:
            self._make(topic)
        return more

    def _make(self, topic: Topic) -> None:
        with self._lock:
            page = self._pages.get(topic)
        if page is None:
            return
        if self._trouble is None:
            page.view, page.error = self._view(topic, page.view)
        body = {"topic": "/".join(topic), "head": self._head, "trouble": self._trouble, "error": page.error}
        text = json.dumps({**body, "view": page.view}, separators=(",", ":"))
        if text != page.text:
            page.text, page.version = text, page.version + 1
        page.made.set()

    def _view(
        self, topic: Topic, before: dict[str, Any] | None
    ) -> tuple[dict[str, Any] | None, dict[str, str] | None]:
        """A page's present data, or the last ones while the chain's node fails."""
        try:
            return self._source.view(topic), None
        except RpcUnreachable as error:
            self._trouble = told(error)
            return before, None
        except AssayError as error:
            return None, told(error)
        except Exception as error:  # top of a service's loop, for one page
            log.exception("the page %s could not be made", "/".join(topic))
            return before, {"code": "bug", "message": f"{type(error).__name__}: {error}", "hint": ""}
