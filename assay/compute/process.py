"""Runs a worker as a process on this machine.

Contract: the process gets orders and nothing else. Its environment has no variable of this program, its
standard input is empty, and it exits when this process does, however that ends. Its log records are logged
here. Threads answer its calls to the node (``compute.node_calls``). Messages are pickled between these two
processes only.
"""

from __future__ import annotations

import logging
import os
import pickle
import queue
import signal
import subprocess
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import Any, Protocol

from assay.compute.node_calls import Home
from assay.compute.orders import Cancelled, DeviceLost, Order, WorkerConfig
from assay.compute.pool import CANCEL_S, UNKNOWN, Progress, Usage, WorkerGone
from assay.program.compiled.process import command
from assay.protocol.errors import AssayError

log = logging.getLogger(__name__)

_LOOK_S = 0.1
"""Seconds between checks whether a running order is to be cancelled."""
_ENDS_S = 2.0
_CALLS = 8
"""Maximum number of calls of one worker that are answered in parallel."""
SECRET = "ASSAY_", "ETH_"
"""Prefixes of environment variables that hold passwords, keys and URLs; workers do not get them."""


@dataclass(frozen=True)
class Stepped:
    """Progress: steps done and in all."""

    done: int
    total: int
    usage: Usage = UNKNOWN


@dataclass(frozen=True)
class Logged:
    """A log record."""

    name: str
    level: int
    text: str


@dataclass(frozen=True)
class Asked:
    """A call to the node (``compute.node_calls``)."""

    number: int
    whose: str
    name: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class Told:
    """Result of a call."""

    number: int
    result: Any
    error: Exception | None


@dataclass(frozen=True)
class Answer:
    """Result of an order."""

    result: Any
    error: Exception | None
    usage: Usage = UNKNOWN

    def given(self) -> Any:
        """Returns the result. Raises the order's error, and WorkerGone if the device is lost."""
        if isinstance(self.error, DeviceLost):
            raise WorkerGone(f"its device is lost: {self.error.message}") from self.error
        if self.error is not None:
            raise self.error
        return self.result


def sendable(error: Exception) -> Exception:
    """Converts an error to one that the other process can unpickle without the libraries that define it."""
    if isinstance(error, AssayError):
        return error
    if isinstance(error, OSError):
        return OSError(error.errno, str(error))
    return RuntimeError("".join(traceback.format_exception(error)).strip())


class Link(Protocol):
    """A worker's process and the connection to it."""

    def send(self, message: object) -> None:
        """Sends a message. Raises OSError if the process is gone. Thread-safe."""
        ...

    def recv(self) -> Any:
        """Receives the next message. Raises EOFError or OSError if the process is gone. For one thread."""
        ...

    def kill(self) -> None:
        """Kills the process."""
        ...

    def how_ended(self) -> str:
        """Ends the process and says why it is gone."""
        ...


@dataclass
class _Running:
    """A started process and its messages."""

    link: Link
    inbox: queue.SimpleQueue[Answer | Stepped | None] = field(default_factory=queue.SimpleQueue)
    """Received messages; None: the connection is gone."""
    heard: bool = True
    """True if the node's books accept its messages."""


class LinkWorker:
    """`compute.pool.Worker` over links: starts a process at the first order, and a new one after each that
    ends."""

    def __init__(self, config: WorkerConfig, open_link: Callable[[], Link], home: Home | None) -> None:
        """`home`: answers its orders' calls; None if they make none."""
        self.config, self._open, self._home = config, open_link, home
        self._lock = threading.Lock()
        self._running: _Running | None = None
        self._hold: AbstractContextManager[Any] = nullcontext()
        self._callers: ThreadPoolExecutor | None = None
        self._telling = threading.Lock()
        """Held while the node's books handle a message."""
        self._closed = False
        self._told = UNKNOWN
        self.ended = 0
        """See `compute.pool.Worker`."""

    @property
    def device(self) -> str:
        """The device of its `WorkerConfig`."""
        return self.config.device

    @property
    def usage(self) -> Usage:
        """As last reported by the process."""
        return self._told

    def run(self, order: Order[Any], progress: Progress, cancelled: threading.Event) -> Any:
        """See `compute.pool.Worker`."""
        running = self._started()
        self._hold = self._home.held() if self._home is not None and order.held else nullcontext()
        try:
            running.link.send(order)
            answer = self._answered(running, progress, cancelled)
        except OSError as error:
            raise WorkerGone(self._ended()) from error
        except BaseException:  # what comes next on the line is not known
            self.end()
            raise
        if isinstance(answer.error, DeviceLost):
            self.end()
        return answer.given()

    def _answered(self, running: _Running, progress: Progress, cancelled: threading.Event) -> Answer:
        killed_at_s: float | None = None
        while True:
            try:
                message = running.inbox.get(timeout=_LOOK_S)
            except queue.Empty:
                if cancelled.is_set() and killed_at_s is None:
                    running.link.send(None)
                    killed_at_s = time.monotonic() + CANCEL_S
                elif killed_at_s is not None and time.monotonic() > killed_at_s:
                    self.end()
                    raise Cancelled(
                        "the order was cancelled, and its worker killed", hint="order it again"
                    ) from None
                continue
            if message is None:
                raise OSError("the line is gone")
            self._told = message.usage
            if isinstance(message, Answer):
                return message
            progress(message.done, message.total)

    def _read(self, running: _Running) -> None:
        """Receives messages until the connection is gone or a message cannot be read."""
        try:
            while True:
                message = running.link.recv()
                if isinstance(message, Asked):
                    self._caller().submit(self._answer, running, message)
                elif isinstance(message, Logged):
                    logging.getLogger(message.name).log(message.level, "%s", message.text)
                else:
                    running.inbox.put(message)
        except (EOFError, OSError):
            pass
        except Exception:  # whatever unpickling raises: whoever waits for the answer must not wait for ever
            log.exception("what the worker of %s says cannot be read", self.device)
        with self._telling:
            self.ended, running.heard = self.ended + 1, False
        running.inbox.put(None)

    def _caller(self) -> ThreadPoolExecutor:
        if self._callers is None:
            self._callers = ThreadPoolExecutor(_CALLS, thread_name_prefix=f"home-{self.device}")
        return self._callers

    def _answer(self, running: _Running, asked: Asked) -> None:
        with self._telling if asked.whose == "books" else nullcontext():
            if not running.heard:
                return
            told = self._answer_to(asked)
        with suppress(OSError):  # it has ended meanwhile
            try:
                running.link.send(told)
            except (AttributeError, TypeError, pickle.PicklingError) as error:  # it waits for an answer
                unsent = RuntimeError(f"the answer to {asked.name} cannot be sent: {error}")
                running.link.send(Told(asked.number, None, unsent))

    def _answer_to(self, asked: Asked) -> Told:
        try:
            if self._home is None:
                raise ValueError("this worker's orders ask nothing of its node")
            with self._hold:
                return Told(asked.number, self._home.call(asked.whose, asked.name, asked.arguments), None)
        except Exception as error:  # noqa: BLE001 - it is raised by whoever has asked
            return Told(asked.number, None, sendable(error))

    def _started(self) -> _Running:
        with self._lock:
            if self._closed:
                raise WorkerGone("the pool is closed")
            if self._running is None:
                self._running = _Running(self._open())
                self._running.link.send(self.config)
                reader = threading.Thread(
                    target=self._read, args=(self._running,), name=f"line-{self.device}", daemon=True
                )
                reader.start()
            return self._running

    def _ended(self) -> str:
        """Ends a process whose connection is gone and says why."""
        running = self._running
        why = "it was ended" if running is None else running.link.how_ended()
        self.end()
        return why

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """See `compute.pool.Worker`."""
        with self._lock:
            running, self._running = self._running, None
            self._told = Usage(seconds_a_step=self._told.seconds_a_step)
            if running is not None:
                running.link.kill()
                with self._telling:
                    running.heard = False
            yield

    def end(self) -> None:
        """Ends the process; the next order starts another one."""
        with self.stopped():
            pass

    def close(self) -> None:
        """See `compute.pool.Worker`."""
        self._closed = True
        running = self._running
        if running is not None:
            running.link.kill()  # `run` sees its end, where one is under way
        if self._callers is not None:
            self._callers.shutdown(wait=False, cancel_futures=True)


class ProcessLink:
    """A process on this machine."""

    def __init__(self) -> None:
        self._line, theirs = Pipe()
        self._lock = threading.Lock()
        with theirs:
            self.process = subprocess.Popen(
                command("assay.compute.worker", str(theirs.fileno())),
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={k: v for k, v in os.environ.items() if not k.startswith(SECRET)},
                start_new_session=True,
            )

    def send(self, message: object) -> None:
        """See `Link`."""
        with self._lock:
            self._line.send(message)

    def recv(self) -> Any:
        """See `Link`."""
        return self._line.recv()

    def kill(self) -> None:
        """See `Link`."""
        self.process.kill()
        self.process.wait()

    def how_ended(self) -> str:
        """See `Link`."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_ENDS_S)
        status = self.process.poll()
        self.kill()
        if status is None:
            return "its process did not answer"
        by = f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
        return f"its process ended {by}"


class ProcessWorker(LinkWorker):
    """A worker in a process on this machine."""

    def __init__(self, config: WorkerConfig, home: Home | None = None) -> None:
        super().__init__(config, ProcessLink, home)

    @property
    def pid(self) -> int | None:
        """Process id; None if none runs."""
        running = self._running
        return running.link.process.pid if running and isinstance(running.link, ProcessLink) else None

    @property
    def usage(self) -> Usage:
        """See `compute.pool.Worker`; resident memory is read now."""
        pid = self.pid
        return replace(self._told, resident_bytes=0 if pid is None else resident_bytes(pid))


def resident_bytes(pid: int) -> int:
    """Resident memory of a process in bytes; 0 if it has ended or the system does not say."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
