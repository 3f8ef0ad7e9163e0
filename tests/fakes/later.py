"""A thread that a test moves."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from assay.protocol.errors import AssayError


class Later(Executor):
    """Runs functions when the test says so."""

    def __init__(self) -> None:
        self.given: list[Callable[[], None]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(fn(*args, **kwargs))
            except AssayError as error:
                future.set_exception(error)

        self.given.append(work)
        return future

    def go(self) -> None:
        """Do all that was given."""
        given, self.given = self.given, []
        for work in given:
            work()
