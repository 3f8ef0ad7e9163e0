"""Waking somebody: a node's clocks that pass half and nine tenths of their time, as events, to a webhook, and
as notifications on the desktop.

Contract: clocks run on where they cannot be looked at, whatever the reason: a full disk, a chain that does
not answer. A webhook or a desktop that is slow or fails holds nothing up; what could not be sent is counted
and said, and not sent again. A webhook's message is JSON: node, role, address, what is owed, what is lost,
seconds left. A notification is its text, by `notify-send` (libnotify).
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from html import escape
from typing import Any

from assay.node.clocks import LATE, Alarm, Alarms, Clock, clocks
from assay.protocol.errors import Ask
from assay.protocol.ports import MarketView

WAIT_S = 10.0
NOTIFIER = "notify-send"

Tell = Callable[[dict[str, Any]], str]
"""Tells one alarm; what went wrong, or nothing."""


def ways(webhook: str | None, notify: bool) -> list[Tell]:
    """How this node wakes somebody. Raises Ask where the desktop's way is wanted and not there."""
    found: list[Tell] = [partial(post, webhook)] if webhook else []
    if notify:
        program = shutil.which(NOTIFIER)
        if program is None:
            raise Ask(
                f"--notify needs {NOTIFIER}, which is not on PATH",
                hint="install it (Debian: libnotify-bin), or be told by --webhook URL",
                code="no-notifier",
            )
        found.append(partial(show, program))
    return found


def post(url: str, body: dict[str, Any]) -> str:
    """Tell a webhook."""
    import httpx

    try:
        httpx.post(url, json=body, timeout=WAIT_S).raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def show(program: str, body: dict[str, Any]) -> str:
    """Show a notification, which stays until it is clicked away once the clock is nearly over."""
    urgency = "critical" if body["share"] >= LATE else "normal"
    title, text = f"assay: {body['node']} ({body['role']})", escape(body["text"], quote=False)
    command = [program, "--app-name=assay", f"--urgency={urgency}", "--", title, text]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{type(error).__name__}: {error}"
    said = ended.stderr.strip()[-200:]
    return f"{NOTIFIER} ended with {ended.returncode}: {said}" if ended.returncode else ""


class Watch:
    """Looks at the clocks of one account, and tells of them."""

    def __init__(
        self,
        market: MarketView,
        now: Callable[[], int],
        name: str,
        role: str,
        emit: Callable[[dict[str, Any]], None],
        tell: Sequence[Tell] = (),
    ) -> None:
        self._market, self._now, self._name, self._role, self._emit = market, now, name, role, emit
        self._tell = tell
        self._alarms = Alarms()
        self._seen: tuple[int, float, list[Clock]] = 0, time.monotonic(), []
        """The chain's time at the last look that came to an end, this machine's, and the clocks then."""
        self._pool = ThreadPoolExecutor(1, "alarm") if tell else None
        self.told, self.unsent = 0, 0
        self.nearest: tuple[float, Clock] | None = None
        """The clock that is furthest gone, and its share."""

    def __call__(self) -> None:
        """Look once, and tell what is due; where that cannot be looked at, by the last look. Raises what
        looking raises."""
        try:
            now = int(self._now())
            self._seen = now, time.monotonic(), clocks(self._market, self._market.me)
        finally:
            self._tell_due()

    def _tell_due(self) -> None:
        seen, since_s, running = self._seen
        now = seen + int(time.monotonic() - since_s)
        shares = [(clock.share(now), clock) for clock in running if clock.begins != clock.ends]
        self.nearest = max(shares, key=lambda found: found[0], default=None)
        for alarm in self._alarms.look(running, now):
            self.told += 1
            body = self._body(alarm)
            self._emit({"event": "alarm", **body})
            if self._pool is not None:
                self._pool.submit(self._send, body)

    def counters(self) -> dict[str, int]:
        """For the status and the metrics."""
        share = 0.0 if self.nearest is None else self.nearest[0]
        unsent = {"alarms_unsent": self.unsent} if self.unsent else {}
        return {"alarms": self.told, "clock_percent": round(100 * share), **unsent}

    def close(self) -> None:
        """Wait for what is being sent."""
        if self._pool is not None:
            self._pool.shutdown(wait=True)

    def _body(self, alarm: Alarm) -> dict[str, Any]:
        return {
            "node": self._name,
            "role": self._role,
            "address": self._market.me,
            "owes": alarm.clock.what,
            "loses": alarm.clock.loses,
            "share": alarm.share,
            "secondsLeft": alarm.left_s,
            "text": f"{self._name}: {alarm}",
        }

    def _send(self, body: dict[str, Any]) -> None:
        for tell in self._tell:
            if why := tell(body):
                self.unsent += 1
                self._emit({"event": "alarm-unsent", "node": self._name, "error": why})
