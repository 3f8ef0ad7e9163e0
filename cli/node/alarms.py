"""Waking somebody: a node's clocks that pass half and nine tenths of their time, as events and to a webhook.

Contract: a webhook that is slow or fails holds nothing up; what could not be sent is counted and said, and
not sent again. The message is JSON: node, role, address, what is owed, what is lost, seconds left.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from assay.node.clocks import Alarm, Alarms, Clock, clocks
from assay.protocol.ports import MarketView

WAIT_S = 10.0


class Watch:
    """Looks at the clocks of one account, and tells of them."""

    def __init__(
        self,
        market: MarketView,
        now: Callable[[], int],
        name: str,
        role: str,
        emit: Callable[[dict[str, Any]], None],
        webhook: str | None,
    ) -> None:
        self._market, self._now, self._name, self._role, self._emit = market, now, name, role, emit
        self._webhook = webhook
        self._alarms = Alarms()
        self._pool = ThreadPoolExecutor(1, "alarm") if webhook else None
        self.told, self.unsent = 0, 0
        self.nearest: tuple[float, Clock] | None = None
        """The clock that is furthest gone, and its share."""

    def __call__(self) -> None:
        """Look once. Raises RpcUnreachable."""
        now, running = int(self._now()), clocks(self._market, self._market.me)
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
        import httpx

        assert self._webhook is not None
        try:
            httpx.post(self._webhook, json=body, timeout=WAIT_S).raise_for_status()
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            self.unsent += 1
            why = f"{type(error).__name__}: {error}"
            self._emit({"event": "alarm-unsent", "node": self._name, "error": why})
