"""Runs a node's actions: synchronous ones at once, coroutines while they wait for workers and transactions.

Contract: an action is a function, or a coroutine that awaits futures (`Awaited`). The loop goes on meanwhile,
and `collect` resumes the action. An action is not started again while it is running or backing off. An error
in one action is reported (``node.report``) and does not stop the others. Used from the loop's thread, except
`later`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Coroutine, Generator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from assay.node.report import Report
from assay.protocol.errors import AssayError, Deferred
from assay.protocol.ports import Clock, Market, Write
from assay.protocol.types import JobId, TxResult

T = TypeVar("T")
Outcome = TxResult | Exception
"""Result of a call."""
Handler = Coroutine[Future[Any], None, object]
TOGETHER = "calls sent together"
FIRST_BACKOFF_S = 1.0
LONGEST_BACKOFF_S = 16.0


class Backoff:
    """Wait times that double with each failure of a key, and are cleared by its success."""

    def __init__(self) -> None:
        self._until: dict[object, float] = {}
        self._next: dict[object, float] = {}

    def failed(self, what: object, now_s: float) -> float:
        """Records a failure and returns the seconds until `ready`."""
        pause = self._next.get(what, FIRST_BACKOFF_S)
        self._next[what] = min(2 * pause, LONGEST_BACKOFF_S)
        self._until[what] = now_s + pause
        return pause

    def succeeded(self, what: object) -> None:
        self._next.pop(what, None)
        self._until.pop(what, None)

    def has_failed(self, what: object) -> bool:
        """True if the key has failed and not succeeded since."""
        return what in self._until

    def ready(self, what: object, now_s: float) -> bool:
        return self.left_s(what, now_s) <= 0

    def left_s(self, what: object, now_s: float) -> float:
        """Seconds until the key is ready; 0 or less if it is."""
        return self._until.get(what, 0.0) - now_s


@dataclass(frozen=True)
class PendingWrite:
    """A write to be batched with others; it has its own backoff and a callback for success."""

    what: object
    job_id: JobId
    write: Callable[[], Write]
    done: Callable[[], None]


class Awaited(Generic[T]):
    """Awaits a future within an action's coroutine."""

    def __init__(self, future: Future[T]) -> None:
        self._future = future

    def __await__(self) -> Generator[Future[T], None, T]:
        while not self._future.done():
            yield self._future
        return self._future.result()


@dataclass(frozen=True)
class _Running:
    """A suspended action and the future it waits for."""

    job_id: JobId | None
    handler: Handler
    waits: Future[Any]


class Actions:
    """The running and failed actions of one node."""

    def __init__(self, report: Report, clock: Clock) -> None:
        self._report, self._clock = report, clock
        self.backoff = Backoff()
        self.sender: Executor | None = None
        """Thread that sends transactions while the loop goes on; None: the loop waits for each."""
        self.put_off = set[object]()
        """Fetching actions that were put off and not done since."""
        self.any_put_off = False
        """True if an action was put off since this was last cleared."""
        self._running: dict[object, _Running] = {}
        self._later: deque[Callable[[], object]] = deque()

    def attempt(self, what: object, job_id: JobId | None, work: Callable[[], Any]) -> bool:
        """Runs `work`, or starts it if it is a coroutine, unless it is running or backing off.

        True if it was run or started. Errors are reported and cause backoff.
        """
        if what in self._running:
            return False
        if self.backoff.has_failed(what) and not self.backoff.ready(what, self._clock.now()):
            return False
        try:
            found = work()
        except Exception as error:  # noqa: BLE001 - a bug met in one job must not keep the others waiting
            self.broke(what, job_id, error)
            return False
        if isinstance(found, Coroutine):
            return self._go_on(what, job_id, found)
        self._succeeded(what)
        return True

    def _go_on(self, what: object, job_id: JobId | None, handler: Handler) -> bool:
        """Resumes an action until it waits again; False if it failed."""
        try:
            waits = handler.send(None)
        except StopIteration:
            self._succeeded(what)
            return True
        except Exception as error:  # noqa: BLE001 - as in `attempt`
            self.broke(what, job_id, error)
            return False
        self._running[what] = _Running(job_id, handler, waits)
        return True

    async def send(self, work: Callable[[], T]) -> T:
        """Runs a call that sends a transaction, in the sender's thread while the loop goes on."""
        return work() if self.sender is None else await Awaited(self.sender.submit(work))

    def attempt_all(self, market: Market, pending_writes: Sequence[PendingWrite]) -> None:
        """Sends the writes that are not backing off, in one transaction where possible.

        Each write has its own error. Nothing else is sent this way while calls are in flight.
        """
        if TOGETHER in self._running:
            return
        now, ready, writes = self._clock.now(), [], []
        with market.snapshot():
            for pending_write in pending_writes:
                if not self.backoff.ready(pending_write.what, now):
                    continue
                try:
                    writes.append(pending_write.write())
                    ready.append(pending_write)
                except Exception as error:  # noqa: BLE001 - as in `attempt`
                    self.broke(pending_write.what, pending_write.job_id, error)
        if self.sender is None:
            self._were_sent(ready, _sent(market, writes))
        elif ready:
            self._go_on(TOGETHER, None, self._send_all(market, ready, writes))

    async def _send_all(self, market: Market, ready: Sequence[PendingWrite], writes: Sequence[Write]) -> None:
        self._were_sent(ready, await self.send(partial(_sent, market, writes)))

    def _were_sent(self, ready: Sequence[PendingWrite], outcomes: Sequence[Outcome]) -> None:
        for pending_write, outcome in zip(ready, outcomes, strict=True):
            if isinstance(outcome, Exception):
                self.broke(pending_write.what, pending_write.job_id, outcome)
                continue
            self._succeeded(pending_write.what)
            try:
                pending_write.done()
            except Exception as error:  # noqa: BLE001 - as in `attempt`
                self.broke(pending_write.what, pending_write.job_id, error)

    def is_running(self, what: object) -> bool:
        """True if the action is running."""
        return what in self._running

    def running_of(self, kinds: Collection[type]) -> int:
        """Number of running actions of these classes."""
        names = {kind.__name__ for kind in kinds}
        return sum(str(what).partition("/")[0] in names for what in self._running)

    @property
    def waiting(self) -> bool:
        """True if any action is running or a `later` call is queued."""
        return bool(self._running or self._later)

    @property
    def ready(self) -> bool:
        """True if there is anything to `collect`."""
        return bool(self._later) or any(found.waits.done() for found in self._running.values())

    def later(self, work: Callable[[], object]) -> None:
        """Queues a call for the loop's thread. Thread-safe."""
        self._later.append(work)

    def collect(self) -> None:
        """Resumes actions whose futures are done, and runs queued `later` calls."""
        self.take_in()
        over = {what: found for what, found in self._running.items() if found.waits.done()}
        if over:
            self._clock.now()  # where that is not to be had, they are collected later
        for what, found in over.items():
            del self._running[what]
            self._go_on(what, found.job_id, found.handler)

    def take_in(self) -> None:
        """Runs queued `later` calls."""
        while self._later:
            self._later.popleft()()

    def give_up(self, what: object) -> None:
        """Cancels an action, if it is running, and the future it waits for."""
        if (found := self._running.pop(what, None)) is not None:
            found.waits.cancel()
            found.handler.close()

    def end_all(self) -> None:
        """Cancels all actions; the next process starts them again."""
        for what in list(self._running):
            self.give_up(what)

    def broke(self, what: object, job_id: JobId | None, error: Exception) -> None:
        """Records that an action or call failed, also by a bug: reports it and starts its backoff."""
        error = self._report.lack(error) or error
        pause_s = self.backoff.failed(what, self._clock.now())
        self.put_off.discard(what)
        if not isinstance(error, AssayError):
            self._report.broken(str(what), error)
            return
        self._report.failed(what, job_id, error, pause_s)
        if isinstance(error, Deferred):
            self._report.count("put_off")
            self.put_off.add(what)
            self.backoff.succeeded(what)  # it has waited its turn
            self.any_put_off = True

    def _succeeded(self, what: object) -> None:
        self.backoff.succeeded(what)
        self.put_off.discard(what)
        self._report.succeeded(what)


def _sent(market: Market, writes: Sequence[Write]) -> list[Outcome]:
    """Sends writes together and returns each outcome.

    If batching meets a bug they are sent one by one; idempotency prevents double sends. Raises errors that
    stop all of them, such as an unreachable chain.
    """
    try:
        return list(market.send_all(writes))
    except AssayError:
        raise
    except Exception as error:  # noqa: BLE001 - a bug met in one call must not keep the others waiting
        if len(writes) == 1:
            return [error]
        return [outcome for write in writes for outcome in _sent(market, [write])]
