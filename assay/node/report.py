"""Reports a node's status, events and errors.

Contract: an error is reported once while it lasts. `Retry` is tried again later. `Stop` abandons its job with
the reason. `Ask` is shown until a person acts. A bug is logged with its traceback and counted.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any

from assay.node.resource_errors import shortage
from assay.protocol.errors import Ask, AssayError, Retry, Reverted, Stop
from assay.protocol.types import ZERO_ADDRESS, Address, JobId

log = logging.getLogger(__name__)

LOOK = "tick"
"""Name of the loop's part that polls the market."""
Event = dict[str, Any]
Emit = Callable[[Event], None]
LOST_RACES = frozenset(
    {
        "ShardTaken",
        "PriceBelow",
        "WrongPhase",
        "WrongRound",
        "RewoundSince",
        "WrongGame",
        "NotDue",
        "TickedLately",
        "NotStale",
        "NotStanding",
        "NotHolder",
        "DeadlinePassed",
        "DeadlineNotPassed",
        "EarlierUnsettled",
        "GamesOpen",
        "SeedUnavailable",
        "HeaderAwaited",
        "WrongHeader",
        "TooSoon",
        "NotYourMove",
        "PipelineFull",
        "RoundIncomplete",
        "NotFinished",
        "PlaceTaken",
        "Overtaken",
        "AlreadyVoted",
        "JobEnded",
        "WindowClosed",
        "NotDrawn",
        "WrongSeed",
        "NoReward",
    }
)
"""Errors of a lost race: somebody else was faster, or it is too early. The next poll decides again."""
LOSSES = 16
"""Number of losses that are shown."""


@dataclass(frozen=True)
class Status:
    """Immutable snapshot of a service's activity, for a page or a log line; replaced as a whole."""

    role: str
    address: Address = ZERO_ADDRESS
    job: str = ""
    round: int = 0
    step: int = 0
    loss: float | None = None
    action: str = "starting"
    error: str = ""
    counters: dict[str, int] = field(default_factory=dict)
    abandoned: dict[str, str] = field(default_factory=dict)
    questions: dict[str, str] = field(default_factory=dict)
    """Questions to a person by source. Jobs are named by their id in hex."""
    endpoints: dict[str, str] = field(default_factory=dict)
    """Unreachable chain endpoints, and why."""
    workers: tuple[dict[str, Any], ...] = ()
    """Activity of each worker (``app.worker_status``)."""
    waiting: tuple[str, ...] = ()
    """Long waits for members of a crew."""
    alarms: dict[str, str] = field(default_factory=dict)
    """Duties at risk at present, by name."""
    lost: tuple[str, ...] = ()
    """Recent losses, and why."""
    sleep: str = ""
    """How long the node may be offline from now on."""
    at_risk: str = ""
    """The most that the node may lose now."""
    min_price: str = ""
    """Minimum price of a solver, as ``app.units.parse_rate`` reads it."""
    operations_per_second: int | None = None
    """Of all its devices together, as `solver bench` measured them."""
    up_s: int = 0
    """Seconds since its process started."""

    def counted(self, name: str) -> Status:
        return replace(self, counters={**self.counters, name: self.counters.get(name, 0) + 1})


def ignore(event: Event) -> None:
    """An `Emit` that drops events."""


class Report:
    """Status and event output of one node."""

    def __init__(self, role: str, address: Address, emit: Emit = ignore, poll_s: float = 0.0) -> None:
        self.status = Status(role=role, address=address)
        self._emit, self._poll_s = emit, poll_s
        self._broken: dict[str, str] = {}
        """Failed parts of the loop, jobs and claims, with the reported error."""
        self._aside: dict[str, str] = {}
        self._aside_now: dict[str, str] = {}
        """Jobs and claims left out of the last poll and of this one, with the reason."""
        self._tried_again: set[str] = set()
        """Failed actions of jobs that are tried again while they are wanted."""

    def emit(self, event: str, **fields: Any) -> None:
        """Emits one event."""
        self._emit({"role": self.status.role, "address": self.status.address, "event": event, **fields})

    def note(self, **changes: Any) -> None:
        """Updates fields of the status."""
        self.status = replace(self.status, **changes)

    def count(self, name: str) -> None:
        """Increments a counter."""
        self.status = self.status.counted(name)

    def lose(self, text: str) -> None:
        """Reports a loss, to which a person is alerted. Recent texts are not repeated."""
        if text not in self.status.lost:
            self.note(lost=(*self.status.lost, text)[-LOSSES:])

    def complain(self, text: str, holds: bool) -> None:
        """Shows a condition as the current error, and as a question to a person, while it holds."""
        if holds and self.status.error in ("", text):
            self.note(error=text)
        elif not holds and self.status.error == text:
            self.note(error="")

    def refusal(self, job_id: JobId) -> str:
        """Reason why a job was abandoned; empty if it was not."""
        return self.status.abandoned.get(job_id.hex(), "")

    def abandon(self, job_id: JobId, reason: str) -> None:
        """Abandons a job and reports why."""
        if job_id.hex() not in self.status.abandoned:
            self.note(abandoned={**self.status.abandoned, job_id.hex(): reason})
            self.emit("abandoned", job=job_id.hex(), reason=reason)

    def succeeded(self, what: object) -> None:
        """Clears the error of an action."""
        if self.status.error.startswith(f"{what}: "):
            self.note(error="")
        if str(what) in self.status.questions:
            self.note(questions={k: v for k, v in self.status.questions.items() if k != str(what)})

    def wants(self, wanted: Collection[str]) -> None:
        """Clears the errors of actions that are not wanted any more, as their job is over: nobody tries them
        again, so nothing else would."""
        for what in self._tried_again.difference(wanted):
            self.succeeded(what)
        self._tried_again.intersection_update(wanted)

    def failed(self, what: object, job_id: JobId | None, error: AssayError, pause_s: float) -> None:
        """Reports the error of an action; `pause_s`: seconds until the retry."""
        text = _text(error)
        if isinstance(error, Reverted):
            lost = error.error in LOST_RACES
            self.count("lost_races" if lost else "reverted")
            self.emit("refused", what=str(what), error=error.error, benign=lost)
            if not lost:
                self.note(error=f"{what}: {text}")
            return
        self.note(error=f"{what}: {text}")
        if isinstance(error, Retry | Ask) and job_id is not None:
            self._tried_again.add(str(what))
        if isinstance(error, Retry):
            self.count("retries")
            self.emit("retry", what=str(what), code=error.code, error=text, after_s=pause_s)
        elif isinstance(error, Ask):
            self.note(questions={**self.status.questions, str(what): text})
            self.emit("ask", what=str(what), code=error.code, error=text)
        elif isinstance(error, Stop) and job_id is not None:
            self.abandon(job_id, text)
        else:
            self.emit("stopped", what=str(what), code=error.code, error=text)

    def broken(self, what: str, error: Exception, **place: str) -> None:
        """Reports an exception in a part of the loop, an action, or the view of a job or claim.

        Makes no chain call, because the chain may be what fails.
        """
        if (lack := self.lack(error)) is not None:
            error = lack
        if not isinstance(error, AssayError):
            log.error("%s failed\n%s", what, "".join(traceback.format_exception(error)))
            self.count("bugs")
            text = f"{type(error).__name__}: {error}"
            self._show_broken(what, f"{what}: bug: {text}")
            self.emit("bug", error=text, what=what, **place)
            return
        self.count("retries")
        if self._show_broken(what, f"{what}: {_text(error)}"):
            self.emit("retry", what=what, code=error.code, error=_text(error), after_s=self._poll_s)

    def _show_broken(self, what: str, shown: str) -> bool:
        """Shows the error unless the market poll failed, which outranks errors that follow from it; True if
        it is new."""
        news = self._broken.get(what) != shown
        self._broken[what] = shown
        if LOOK not in self._broken or what == LOOK:
            self.note(error=shown)
        return news

    def mended(self, what: str) -> None:
        """Clears the error of a part of the loop."""
        self._broken.pop(what, None)
        if self.status.error.startswith(f"{what}: "):
            self.note(error="")

    def lack(self, error: Exception) -> AssayError | None:
        """The shortage of this machine that the error is; None if it is none."""
        lack = shortage(error)
        if lack is not None:
            self.count("shortages")
        return lack

    def look_begins(self) -> None:
        """Starts a new poll for `set_aside`."""
        self._aside, self._aside_now = self._aside_now, {}

    def set_aside(self, what: str, error: Exception, **place: str) -> None:
        """Reports that a job or claim is left out of this poll because of an error; once while it lasts."""
        self.count("set_aside")
        why = f"{type(error).__name__}: {error}"
        if self._aside.get(what) != why:
            self._broken.pop(what, None)
            self.broken(what, error, **place)
        self._aside_now[what] = why


def _text(error: AssayError) -> str:
    return f"{error.message}; {error.hint}" if error.hint else error.message
