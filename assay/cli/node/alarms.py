"""Waking somebody: a node's clocks that pass half and nine tenths of their time, what was lost, and what else
cannot wait, as events, to a webhook, and as notifications on the desktop.

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
from contextlib import suppress
from dataclasses import astuple
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

from assay.disk import record
from assay.node.clocks import ANY_TIME, LATE, Alarm, Alarms, Clock, clocks, is_lost, may_sleep
from assay.node.owed import at_risk
from assay.protocol.errors import Ask
from assay.protocol.ports import MarketView
from assay.protocol.types import ClaimId
from assay.protocol.words import show_amount

WAIT_S = 10.0
COMPARED_EVERY_S = 15.0
BLIND_S = 30.0
STANDS_S = 60.0
"""For which an alarm is shown that is not raised again."""
LOST = 16
"""What was lost, of which so much is shown."""
_KIND = "assay/clocks/1"
CLOCKS_FILE = "clocks-{}.json"
"""In a node's folder, by role: what ran against it when it last looked."""
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
        answer = httpx.post(url, json=body, timeout=WAIT_S)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return f"{type(error).__name__}: {error}"
    return "" if answer.is_success else f"it answered with HTTP status {answer.status_code}"


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
    """Looks at the clocks of one account, tells of them, and of what was lost. It needs no disk: without room
    for its record it only forgets, should it be killed, what ran at that time."""

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
        error: Callable[[], str] = lambda: "",
        unheard: Callable[[], Sequence[ClaimId]] = lambda: (),
    ) -> None:
        """`kept`: where it keeps what runs; `error`: what the node says is wrong with it; `unheard`: claims
        of which the chain's logs do not tell all that its contracts know."""
        self._unheard, self._compared = unheard, float("-inf")
        self._market, self._now, self._name, self._role, self._emit = market, now, name, role, emit
        self._tell, self._kept, self._error = tell, kept, error
        self._alarms = Alarms()
        self._seen: tuple[int, float, list[Clock]] = 0, time.monotonic(), []
        """The chain's time at the last look that came to an end, this machine's, and the clocks then."""
        self._pool = ThreadPoolExecutor(1, "alarm") if tell else None
        self.told, self.unsent = 0, 0
        self.nearest: tuple[float, Clock] | None = None
        """The clock that is furthest gone, and its share."""
        self.standing: dict[str, str] = {}
        """What is at risk now, by what."""
        self.lost: tuple[str, ...] = ()
        """What this process knows to have been lost, and why."""
        self.sleep = ""
        """How long the node may sleep, in words."""
        self.at_risk = ""
        """What is locked now, in words."""
        self._ran = self._remembered()
        self._looked: int | None = None
        """When it last looked; None: before this process."""
        self._blind = ""
        """Why the last look did not succeed."""
        self._blind_since: float | None = None
        self._raised: dict[str, tuple[str, float]] = {}
        """What others have raised, and when."""

    def __call__(self) -> None:
        """Look once, and tell what is due; where that cannot be looked at, by the last look. Raises what
        looking raises."""
        try:
            self._look()
            self._blind, self._blind_since = "", None
        except Exception as error:  # whatever it is, nobody can look: it is told, and raised again
            self._cannot_look(error)
            raise
        finally:
            self._tell_due()

    def _cannot_look(self, error: Exception) -> None:
        """Wake somebody where the chain has not been read for long: nobody sees what runs out meanwhile."""
        now, hint = time.monotonic(), getattr(error, "hint", "")
        self._blind = getattr(error, "message", f"{type(error).__name__}: {error}")
        self._blind_since = now if self._blind_since is None else self._blind_since
        if now - self._blind_since >= BLIND_S:
            known = ", ".join(clock.what for clock in self._ran) or "nothing that is known"
            said = f"the chain cannot be read, and {known} runs: {self._blind}"
            self.raise_alarm("chain", f"{said}; {hint}" if hint else said)

    def raise_alarm(self, what: str, text: str) -> None:
        """Wake somebody at once, and show it for as long as it is raised again every `STANDS_S`. Called from
        any thread."""
        known, now = self._raised.get(what), time.monotonic()
        self._raised[what] = text, now
        if known is None or now - known[1] > STANDS_S:
            self._wake({"owes": what, "loses": "", "share": LATE, "secondsLeft": 0, "text": text})

    def _compare(self) -> None:
        """Now and then: whether the logs tell of every game that the contracts count."""
        if time.monotonic() - self._compared < COMPARED_EVERY_S:
            return
        self._compared = time.monotonic()
        for claim_id in self._unheard():
            name = f"claim {claim_id.hex()[:16]}"
            text = (
                f"the contracts count more open games or demands about {name} than the chain node's logs"
                " tell: a clock may run that this node does not see. The logs are read again; use another"
                " chain node, or two (--rpc-url)"
            )
            self.raise_alarm(name, text)

    def _look(self) -> None:
        market, me = self._market, self._market.me
        now, running = int(self._now()), clocks(market, me)
        self._seen = now, time.monotonic(), running
        for clock in self._ran:  # first what was lost while nobody looked
            if clock not in running and clock.ends < now and is_lost(market, me, clock):
                self._mourn(clock, now)
        self.sleep = str(may_sleep(market, me, now) or ANY_TIME)
        self.at_risk = show_amount(at_risk(market, me))
        self._remember(running, now)
        self._compare()

    def _tell_due(self) -> None:
        seen, since_s, running = self._seen
        now = seen + int(time.monotonic() - since_s)
        shares = [(clock.share(now), clock) for clock in running if clock.begins != clock.ends]
        self.nearest = max(shares, key=lambda found: found[0], default=None)
        for alarm in self._alarms.look(running, now):
            self._wake(
                {
                    "owes": alarm.clock.what,
                    "loses": alarm.clock.loses,
                    "share": alarm.share,
                    "secondsLeft": alarm.left_s,
                    "text": str(alarm),
                }
            )
        late = {c.what: str(Alarm(c, LATE, c.ends - now)) for c in running if c.share(now) >= LATE}
        since = time.monotonic() - STANDS_S
        self._raised = {what: raised for what, raised in self._raised.items() if raised[1] > since}
        self.standing = late | {what: text for what, (text, _) in self._raised.items()}

    def _mourn(self, clock: Clock, now: int) -> None:
        """Say what was lost, and why, as far as this node can know."""
        looked = self._looked
        if self._blind:
            why = f"the chain could not be read: {self._blind}"
        elif looked is None:
            why = "this node was not running"
        elif now - looked > max((clock.ends - clock.begins) // 4, 1):
            why = f"this node did not look for {now - looked} s: it was stopped or asleep"
        else:
            why = self._error() or "it was not done in time"
        text = f"{clock.what} was due {now - clock.ends} s ago, and {clock.loses}: {why}"
        self.lost = (*self.lost, text)[-LOST:]
        self._wake({"owes": clock.what, "loses": clock.loses, "share": 1.0, "secondsLeft": 0, "text": text})

    def _wake(self, body: dict[str, Any]) -> None:
        who = {"node": self._name, "role": self._role, "address": self._market.me}
        body = {**who, **body, "text": f"{self._name}: {body['text']}"}
        self.told += 1
        self._emit({"event": "alarm", **body})
        if self._pool is not None:
            self._pool.submit(self._send, body)

    def _remember(self, running: Sequence[Clock], now: int) -> None:
        changed = list(running) != list(self._ran)
        self._ran, self._looked = tuple(running), now
        if self._kept is not None and changed:
            with suppress(OSError):
                record.write(self._kept, _KIND, [astuple(clock) for clock in running])

    def _remembered(self) -> tuple[Clock, ...]:
        """What ran when an earlier process last looked."""
        if self._kept is None:
            return ()
        body = record.read_or_set_aside(self._kept, _KIND, instead="what was lost meanwhile is not told")
        return tuple(
            Clock(what, loses, begins, ends, tuple(of)) for what, loses, begins, ends, of in body or ()
        )

    def counters(self) -> dict[str, int]:
        """For the status and the metrics."""
        share = 0.0 if self.nearest is None else self.nearest[0]
        unsent = {"alarms_unsent": self.unsent} if self.unsent else {}
        lost = {"clocks_lost": len(self.lost)} if self.lost else {}
        return {"alarms": self.told, "clock_percent": round(100 * share), **unsent, **lost}

    def close(self) -> None:
        """Wait for what is being sent."""
        if self._pool is not None:
            self._pool.shutdown(wait=True)

    def _send(self, body: dict[str, Any]) -> None:
        for tell in self._tell:
            if why := tell(body):
                self.unsent += 1
                self._emit({"event": "alarm-unsent", "node": self._name, "error": why})
