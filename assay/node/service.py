"""The loop that every role runs, and what it shows of itself.

Contract: a `Service` reads, decides and acts in `tick`; `run` repeats it until the clock says stop. An error
of one job never stops the others: `Retry` backs off, `Stop` abandons that job with its reason, `Ask` is shown
until a person acts. What stops the look itself, such as a chain that does not answer, is shown once and tried
again; so is what the machine lacks for the moment (`node.shortage`). Everything is caught about the tick,
each action and each call in it, the housekeeping and the wait: a bug is logged with its traceback and
counted, costs what it was met in, and the loop goes on.
Not guaranteed: that a tick is short; roles keep theirs to one segment of work.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from typing import Any, TypeVar

from assay.node.backoff import Backoff
from assay.node.lost_races import LOST_RACES
from assay.node.shortage import shortage
from assay.node.time_spent import REST, WAITING, TimeSpent
from assay.protocol.errors import Ask, AssayError, Retry, Reverted, Stop
from assay.protocol.ports import Clock, Market, Write
from assay.protocol.types import ZERO_ADDRESS, Address, JobId, TxResult

log = logging.getLogger(__name__)

T = TypeVar("T")
Event = dict[str, Any]
Emit = Callable[[Event], None]
Outcome = TxResult | Exception
"""What became of a call."""

CALLS_EVERY_S = 0.05
"""How often it is seen, where there is nothing else to do, whether a call that was sent is over."""


@dataclass(frozen=True)
class Status:
    """What a service is doing, for a page or a log line to read; replaced as a whole, never changed."""

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
    """What a person must decide, by what asked. Jobs are named by their id in hex."""
    endpoints: dict[str, str] = field(default_factory=dict)
    """Chain endpoints that do not answer at present, and why."""

    def counted(self, name: str) -> Status:
        return replace(self, counters={**self.counters, name: self.counters.get(name, 0) + 1})


def ignore(event: Event) -> None:
    """An `Emit` that shows nothing."""


@dataclass(frozen=True)
class PendingWrite:
    """A write to be sent with others: what backs off if it fails, and what to do once it is done."""

    what: object
    job_id: JobId
    write: Callable[[], Write]
    done: Callable[[], None]


@dataclass(frozen=True)
class _Call:
    """A call that is sent by itself beside long work, and what to do with its outcome."""

    job_id: JobId
    future: Future[Any]
    done: Callable[[Any], None]


class Service:
    """Base of the roles' services: the loop, the status, the events and the meaning of errors."""

    def __init__(self, role: str, address: Address, clock: Clock, emit: Emit, poll_s: float) -> None:
        self.status = Status(role=role, address=address)
        self.clock = clock
        self.poll_s = poll_s
        self.backoff = Backoff()
        self.housekeeping: Callable[[], None] = lambda: None
        """Done before each wait, such as to look after peers and pending transactions."""
        self.at_once = False
        """Whether there is to be another look without a wait: the last one ended before all was done."""
        self.spent = TimeSpent()
        self.sender: Executor | None = None
        """Where calls are sent that no later action waits for, beside long work; None: each is waited for."""
        self._under_way: tuple[Sequence[PendingWrite], Future[Sequence[Outcome]]] | None = None
        self._alone: dict[object, _Call] = {}
        self.unsaid = 0
        """Errors of which nothing could be said."""
        self._emit = emit

    def emit(self, event: str, **fields: Any) -> None:
        """Show one thing that happened."""
        self._emit({"role": self.status.role, "address": self.status.address, "event": event, **fields})

    def note(self, **changes: Any) -> None:
        """Change the status."""
        self.status = replace(self.status, **changes)

    def count(self, name: str) -> None:
        self.status = self.status.counted(name)

    def _complain(self, text: str, holds: bool) -> None:
        """Show as the error, and ask a person about, what holds only while it does."""
        if holds and self.status.error in ("", text):
            self.note(error=text)
        elif not holds and self.status.error == text:
            self.note(error="")

    def refusal(self, job_id: JobId) -> str:
        """Why a job was left alone; empty if it was not."""
        return self.status.abandoned.get(job_id.hex(), "")

    def abandon(self, job_id: JobId, reason: str) -> None:
        """Leave a job alone from now on, and say why."""
        if job_id.hex() not in self.status.abandoned:
            self.note(abandoned={**self.status.abandoned, job_id.hex(): reason})
            self.emit("abandoned", job=job_id.hex(), reason=reason)

    def attempt(self, what: object, job_id: JobId | None, work: Callable[[], Any]) -> bool:
        """Do `work` unless it is backing off; whether it was done. Errors become status and backoff."""
        if self.backoff.has_failed(what) and not self.backoff.ready(what, self.clock.now()):
            return False
        try:
            work()
        except Exception as error:  # noqa: BLE001 - a bug met in one job must not keep the others waiting
            self._broke(what, job_id, error)
            return False
        if not self.is_sent(what):  # else it is not known yet
            self._succeeded(what)
        return True

    def attempt_all(
        self, market: Market, pending_writes: Sequence[PendingWrite], *, beside: bool = False
    ) -> None:
        """Send what is not backing off, together where that goes; each one's error is its own. `beside`: go
        on where there is a sender, and `collect` later; nothing more is sent this way until then."""
        if self._under_way is not None:
            return
        now, ready, writes = self.clock.now(), [], []
        with market.snapshot():
            for pending_write in pending_writes:
                if not self.backoff.ready(pending_write.what, now):
                    continue
                try:
                    writes.append(pending_write.write())
                    ready.append(pending_write)
                except Exception as error:  # noqa: BLE001 - as in `attempt`
                    self._broke(pending_write.what, pending_write.job_id, error)
        if beside and self.sender is not None and ready:
            self._under_way = ready, self._submitted(self.sender, partial(_sent, market, writes))
            return
        self._were_sent(ready, _sent(market, writes))

    def send_beside(
        self, what: object, job_id: JobId, work: Callable[[], Any], done: Callable[[Any], None]
    ) -> None:
        """Have one call sent by the sender and `done` with what it gives, or, where there is none, wait for
        it. Until it is collected, `is_sent`."""
        if self.sender is None:
            done(work())
        else:
            self._alone[what] = _Call(job_id, self._submitted(self.sender, work), done)

    def _submitted(self, sender: Executor, work: Callable[[], T]) -> Future[T]:
        def sent() -> T:
            done = work()
            self.moved()
            return done

        return sender.submit(sent)

    def moved(self) -> None:
        """A call that was sent beside long work has been made. Called from any thread."""

    def has_failed(self) -> bool:
        """Whether a call that was sent by itself is over, and was not made."""
        return any(c.future.done() and c.future.exception() is not None for c in self._alone.values())

    def is_sending(self) -> bool:
        """Whether any call is under way beside long work."""
        calls = [call.future for call in self._alone.values()]
        return any(not f.done() for f in (*calls, *([self._under_way[1]] if self._under_way else ())))

    def is_sent(self, what: object) -> bool:
        """Whether such a call is under way."""
        return what in self._alone

    def collect(self) -> None:
        """Take in what became of the calls that were sent beside, once it is known. Raises what sending
        a batch raised."""
        over = {what: call for what, call in self._alone.items() if call.future.done()}
        if over:
            self.clock.now()  # where that is not to be had, they are collected later
        for what, call in over.items():
            del self._alone[what]
            self.attempt(what, call.job_id, partial(_finished, call))
        if self._under_way is not None and self._under_way[1].done():
            ready, sent = self._under_way
            self._under_way = None
            self._were_sent(ready, sent.result())

    def _were_sent(self, ready: Sequence[PendingWrite], outcomes: Sequence[Outcome]) -> None:
        for pending_write, outcome in zip(ready, outcomes, strict=True):
            if isinstance(outcome, Exception):
                self._broke(pending_write.what, pending_write.job_id, outcome)
                continue
            self._succeeded(pending_write.what)
            try:
                pending_write.done()
            except Exception as error:  # noqa: BLE001 - as in `attempt`
                self._broke(pending_write.what, pending_write.job_id, error)

    def _broke(self, what: object, job_id: JobId | None, error: Exception) -> None:
        """An action or a call failed, be it by a bug: it backs off, and that is said."""
        if (lack := shortage(error)) is not None:
            self.count("shortages")
            error = lack
        if isinstance(error, AssayError):
            self._failed(what, job_id, error)
        else:
            self.backoff.failed(what, self.clock.now())
            self._broken(str(what), error)

    def _succeeded(self, what: object) -> None:
        self.backoff.succeeded(what)
        if self.status.error.startswith(f"{what}: "):
            self.note(error="")
        if str(what) in self.status.questions:
            self.note(questions={k: v for k, v in self.status.questions.items() if k != str(what)})

    def _failed(self, what: object, job_id: JobId | None, error: AssayError) -> None:
        pause = self.backoff.failed(what, self.clock.now())
        text = _text(error)
        if isinstance(error, Reverted):
            lost = error.error in LOST_RACES
            self.count("lost_races" if lost else "reverted")
            self.emit("refused", what=str(what), error=error.error, benign=lost)
            if not lost:
                self.note(error=f"{what}: {text}")
            return
        self.note(error=f"{what}: {text}")
        if isinstance(error, Retry):
            self.count("retries")
            self.emit("retry", what=str(what), code=error.code, error=text, after_s=pause)
        elif isinstance(error, Ask):
            self.note(questions={**self.status.questions, str(what): text})
            self.emit("ask", what=str(what), code=error.code, error=text)
        elif isinstance(error, Stop) and job_id is not None:
            self.abandon(job_id, text)
        else:
            self.emit("stopped", what=str(what), code=error.code, error=text)

    def _blind(self, what: str, error: AssayError) -> None:
        """A part of the loop failed. Asks nothing of the chain, which may be what does not answer."""
        self.count("retries")
        shown = f"{what}: {_text(error)}"
        if self.status.error != shown:
            self.note(error=shown)
            self.emit("retry", what=what, code=error.code, error=_text(error), after_s=self.poll_s)

    def keep_house(self) -> None:
        """Done after each tick."""
        self.housekeeping()

    def tick(self) -> None:
        """Read, decide and act once."""
        raise NotImplementedError

    def run(self) -> None:
        """Tick until the clock says stop."""
        while True:
            with self.spent.on(REST):
                self._guarded("tick", self.tick)
                self._guarded("housekeeping", self.keep_house)
            with self.spent.on(WAITING):
                going_on = self._pause()
            if not going_on:
                return

    def _pause(self) -> bool:
        """Whether to go on. A wait that fails is no reason to end."""
        told: list[bool] = []
        self._guarded("wait", lambda: told.append(self._wait_for_calls()))
        return told != [False]

    def _wait_for_calls(self) -> bool:
        """Wait as long as is usual, or until a call that is under way is over; whether to go on."""
        left = 0.0 if self.at_once else self.poll_s
        while left > 0 and self._alone:
            if any(call.future.done() for call in self._alone.values()):
                return self.clock.wait(0.0)
            if not self.clock.wait(min(left, CALLS_EVERY_S)):
                return False
            left -= CALLS_EVERY_S
        return self.clock.wait(max(left, 0.0))

    def _guarded(self, what: str, work: Callable[[], object]) -> None:
        """Do one part of the loop. Nothing that it raises ends the loop."""
        failed: Exception | None = None
        try:
            work()
        except Exception as error:  # noqa: BLE001 - the one place: a bug must not stop a staked node
            failed = error
        try:
            if failed is not None:
                self._broken(what, failed)
            elif self.status.error.startswith(f"{what}: "):
                self.note(error="")
        except Exception:  # noqa: BLE001 - not even that goes, as without memory: at least go on
            self.unsaid += 1

    def _broken(self, what: str, error: Exception, **place: str) -> None:
        """Say what has stopped a part of the loop, an action, or a look at one job or claim."""
        if (lack := shortage(error)) is not None:
            self.count("shortages")
            error = lack
        if isinstance(error, AssayError):
            self._blind(what, error)
            return
        log.error("%s failed\n%s", what, "".join(traceback.format_exception(error)))
        self.count("bugs")
        self.note(error=f"bug: {type(error).__name__}: {error}")
        self.emit("bug", error=f"{type(error).__name__}: {error}", what=what, **place)


def _sent(market: Market, writes: Sequence[Write]) -> list[Outcome]:
    """What became of each; where sending them together meets a bug, of each by itself: what was sent is not
    sent twice. Raises what stops all of them, such as a chain that does not answer."""
    try:
        return list(market.send_all(writes))
    except AssayError:
        raise
    except Exception as error:  # noqa: BLE001 - a bug met in one call must not keep the others waiting
        if len(writes) == 1:
            return [error]
        return [outcome for write in writes for outcome in _sent(market, [write])]


def _finished(call: _Call) -> None:
    call.done(call.future.result())


def _text(error: AssayError) -> str:
    return f"{error.message}; {error.hint}" if error.hint else error.message


def intent(*parts: object) -> str:
    """A key for one effect on the chain: its parts joined; digests as hex."""
    return "/".join(part.hex() if isinstance(part, bytes) else str(part) for part in parts)


_SUBJECT = ("job_id", "claim_id", "verifier", "what", "game_id", "demand_id", "round", "shard", "number")


def subject(action: object) -> str:
    """What a backoff of a policy's action is about: its kind and its place, not its reason or its rewinds."""
    return intent(
        type(action).__name__, *(getattr(action, name) for name in _SUBJECT if hasattr(action, name))
    )


def turn(address: Address, subject: bytes, places: int = 8) -> int:
    """This account's turn (0 .. places-1) at a job that anyone may do, so that all do not do it at once.

    The same for everyone who computes it, different from subject to subject, and needs no randomness.
    """
    return int.from_bytes(sha256(subject + address.encode()).digest()[:4], "big") % places
