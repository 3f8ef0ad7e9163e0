"""Alerts a person about deadlines, losses and other urgent problems: events, a webhook, desktop
notifications.

Contract: alarms are raised at half and nine tenths of a deadline's time, also while the market cannot be read
(a full disk, an unreachable chain), by the last poll. A slow or failing webhook or desktop blocks nothing; a
failed alert is counted, reported and not repeated. A webhook's message is JSON: node, role, address, what is
owed, what is lost, seconds left. A notification is its text, by `notify-send` (libnotify).
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import astuple
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

from assay.disk import record
from assay.node.deadlines import (
    ANY_TIME,
    LATE,
    Alarm,
    Alarms,
    Deadline,
    Duties,
    deadlines_of,
    is_lost,
    offline_allowance,
)
from assay.node.obligations import at_risk
from assay.node.report import LOSSES, Status
from assay.protocol.errors import Ask
from assay.protocol.ports import MarketView
from assay.protocol.types import ClaimId
from assay.protocol.words import show_amount

WAIT_S = 10.0
COMPARED_EVERY_S = 15.0
BLIND_S = 30.0
STANDS_S = 60.0
"""Seconds for which an alarm is shown unless repeated."""
_KIND = "assay/clocks/1"
CLOCKS_FILE = "clocks-{}.json"
"""File in a node's folder, by role, with the deadlines at its last check."""
NOTIFIER = "notify-send"

Tell = Callable[[dict[str, Any]], str]
"""Sends one alert; returns the error, or an empty text."""


def ways(webhook: str | None, notify: bool) -> list[Tell]:
    """Alert channels of this node. Raises Ask if desktop notifications are requested and unavailable."""
    found: list[Tell] = [partial(post, webhook)] if webhook else []
    if notify:
        program = shutil.which(NOTIFIER)
        if program is None:
            raise Ask(
                f"--notify needs {NOTIFIER}, which is not on PATH; nothing was started",
                hint="install it (Debian: libnotify-bin), or send alarms to --webhook URL",
                code="no-notifier",
            )
        found.append(partial(show, program))
    return found


def post(url: str, body: dict[str, Any]) -> str:
    """Posts to a webhook."""
    import httpx

    try:
        answer = httpx.post(url, json=body, timeout=WAIT_S)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return f"{type(error).__name__}: {error}"
    return "" if answer.is_success else f"it answered with HTTP status {answer.status_code}"


def show(program: str, body: dict[str, Any]) -> str:
    """Shows a notification, which stays until dismissed if the deadline is near."""
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
    """Watches the deadlines of one account and raises alarms, also for losses.

    It needs no disk: without its record, only losses during a restart go unnoticed.
    """

    def __init__(
        self,
        market: MarketView,
        now: Callable[[], int],
        name: str,
        role: str,
        emit: Callable[[dict[str, Any]], None],
        tell: Sequence[Tell] = (),
        *,
        kept: Path | None = None,
        status: Callable[[], Status] = lambda: Status(""),
        unheard: Callable[[], Sequence[ClaimId]] = lambda: (),
        duties: Callable[[], Duties] = Duties,
    ) -> None:
        """`kept`: file of running deadlines; `status`: the service's, whose new questions and losses are
        alarms too; `unheard`: claims for which the contracts know of games that the logs do not show;
        `duties`: the service's."""
        self._duties = duties
        self._unheard, self._compared = unheard, float("-inf")
        self._market, self._now, self._name, self._role, self._emit = market, now, name, role, emit
        self._tell, self._kept, self._status = tell, kept, status
        self._alarms = Alarms()
        self._seen: tuple[int, float, list[Deadline]] = 0, time.monotonic(), []
        """Chain time and local time of the last complete check, and its deadlines."""
        self._pool = ThreadPoolExecutor(1, "alarm") if tell else None
        self.told, self.unsent = 0, 0
        self.nearest: tuple[float, Deadline] | None = None
        """The deadline of which most time has passed, and the fraction."""
        self.standing: dict[str, str] = {}
        """Duties at risk now, by name."""
        self.lost: tuple[str, ...] = ()
        """Known losses, with reasons."""
        self.sleep = ""
        """How long the node may be offline, as text."""
        self.at_risk = ""
        """Stake and bonds at risk now, as text."""
        self._ran = self._remembered()
        self._looked: int | None = None
        """Time of the last check; None: none in this process."""
        self._blind = ""
        """Why the last check failed."""
        self._blind_since: float | None = None
        self._raised: dict[str, tuple[str, float]] = {}
        """Alarms raised by others, with their time."""
        self._asked: dict[str, str] = {}
        self._told_losses: tuple[str, ...] = ()
        """Questions and losses of the service that a person was alerted to."""

    def __call__(self) -> None:
        """Checks once and raises due alarms, by the last poll if the market cannot be read. Raises errors of
        reading."""
        try:
            self._look()
            self._blind, self._blind_since = "", None
        except Exception as error:  # any error leaves deadlines unwatched: it is reported, and raised again
            self._report_unreadable(error)
            raise
        finally:
            self._tell_due()

    def _report_unreadable(self, error: Exception) -> None:
        """Raises an alarm if the chain has not been readable for long: deadlines may pass unseen."""
        now, hint = time.monotonic(), getattr(error, "hint", "")
        self._blind = getattr(error, "message", f"{type(error).__name__}: {error}")
        self._blind_since = now if self._blind_since is None else self._blind_since
        if now - self._blind_since >= BLIND_S:
            known = ", ".join(deadline.what for deadline in self._ran) or "nothing that is known"
            said = f"the chain cannot be read, and {known} runs: {self._blind}"
            self.raise_alarm("chain", f"{said}; {hint}" if hint else said)

    def raise_alarm(self, what: str, text: str) -> None:
        """Raises an alarm at once, and shows it while it is repeated within `STANDS_S`. Thread-safe."""
        known, now = self._raised.get(what), time.monotonic()
        self._raised[what] = text, now
        if known is None or now - known[1] > STANDS_S:
            self._wake({"owes": what, "loses": "", "share": LATE, "secondsLeft": 0, "text": text})

    def _compare(self) -> None:
        """Periodically checks that the logs show every game that the contracts count."""
        if time.monotonic() - self._compared < COMPARED_EVERY_S:
            return
        self._compared = time.monotonic()
        for claim_id in self._unheard():
            name = f"claim {claim_id.hex()[:16]}"
            text = (
                f"the contracts count more open games or demands about {name} than the chain node's logs"
                " tell: a deadline may run that this node does not see. The logs are read again; use another"
                " chain node, or two (--rpc-url)"
            )
            self.raise_alarm(name, text)

    def _look(self) -> None:
        market, me = self._market, self._market.me
        now, others = int(self._now()), self._duties()
        running = [*deadlines_of(market, me), *others.running]
        self._seen = now, time.monotonic(), running
        for deadline in self._ran:  # first what was lost while nobody looked
            if deadline not in running and deadline.ends < now and is_lost(market, me, deadline):
                self._report_loss(deadline, now)
        self.sleep = str(offline_allowance(market, me, now, others) or ANY_TIME)
        self.at_risk = show_amount(at_risk(market, me))
        self._remember(running, now)
        self._compare()

    def _tell_due(self) -> None:
        seen, since_s, running = self._seen
        now = seen + int(time.monotonic() - since_s)
        shares = [(deadline.share(now), deadline) for deadline in running if deadline.begins != deadline.ends]
        self.nearest = max(shares, key=lambda found: found[0], default=None)
        for alarm in self._alarms.look(running, now):
            self._wake(
                {
                    "owes": alarm.deadline.what,
                    "loses": alarm.deadline.loses,
                    "share": alarm.share,
                    "secondsLeft": alarm.left_s,
                    "text": str(alarm),
                }
            )
        late = {c.what: str(Alarm(c, LATE, c.ends - now)) for c in running if c.share(now) >= LATE}
        self._tell_service()
        since = time.monotonic() - STANDS_S
        self._raised = {what: raised for what, raised in self._raised.items() if raised[1] > since}
        self.standing = late | {what: text for what, (text, _) in self._raised.items()}

    def _tell_service(self) -> None:
        """Alerts to what the service asks a person or has lost, each once."""
        status = self._status()
        questions = [f"{what}: {text}" for what, text in status.questions.items() if what not in self._asked]
        self._asked = dict(status.questions)
        losses = [text for text in status.lost if text not in self._told_losses]
        self._told_losses = status.lost
        for text in losses:
            self.lost = (*self.lost, text)[-LOSSES:]
        for text in (*losses, *questions):
            self._wake({"owes": "", "loses": "", "share": LATE, "secondsLeft": 0, "text": text})

    def _report_loss(self, deadline: Deadline, now: int) -> None:
        """Reports a loss and, as far as known, its cause."""
        looked = self._looked
        if self._blind:
            why = f"the chain could not be read: {self._blind}"
        elif looked is None:
            why = "this node was not running"
        elif now - looked > max((deadline.ends - deadline.begins) // 4, 1):
            why = f"this node did not look for {now - looked} s: it was stopped or asleep"
        else:
            why = self._status().error or "it was not done in time"
        text = f"{deadline.what} was due {now - deadline.ends} s ago, and {deadline.loses}: {why}"
        self.lost = (*self.lost, text)[-LOSSES:]
        self._wake(
            {"owes": deadline.what, "loses": deadline.loses, "share": 1.0, "secondsLeft": 0, "text": text}
        )

    def _wake(self, body: dict[str, Any]) -> None:
        who = {"node": self._name, "role": self._role, "address": self._market.me}
        body = {**who, **body, "text": f"{self._name}: {body['text']}"}
        self.told += 1
        self._emit({"event": "alarm", **body})
        if self._pool is not None:
            self._pool.submit(self._send, body)

    def _remember(self, running: Sequence[Deadline], now: int) -> None:
        changed = list(running) != list(self._ran)
        self._ran, self._looked = tuple(running), now
        if self._kept is not None and changed:
            with suppress(OSError):
                record.write(self._kept, _KIND, [astuple(deadline) for deadline in running])

    def _remembered(self) -> tuple[Deadline, ...]:
        """Deadlines that ran at an earlier process's last check."""
        if self._kept is None:
            return ()
        body = record.read_or_quarantine(self._kept, _KIND, instead="what was lost meanwhile is not told")
        return tuple(
            Deadline(what, loses, begins, ends, tuple(of)) for what, loses, begins, ends, of in body or ()
        )

    def counters(self) -> dict[str, int]:
        """Counters for status and metrics."""
        share = 0.0 if self.nearest is None else self.nearest[0]
        unsent = {"alarms_unsent": self.unsent} if self.unsent else {}
        lost = {"losses": len(self.lost)} if self.lost else {}
        return {"alarms": self.told, "clock_percent": round(100 * share), **unsent, **lost}

    def close(self) -> None:
        """Waits for alerts that are being sent."""
        if self._pool is not None:
            self._pool.shutdown(wait=True)

    def _send(self, body: dict[str, Any]) -> None:
        for tell in self._tell:
            if why := tell(body):
                self.unsent += 1
                self._emit({"event": "alarm-unsent", "node": self._name, "error": why})
