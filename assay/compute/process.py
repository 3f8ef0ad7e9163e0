"""A worker that is a process of this machine.

Contract: the process gets orders and nothing else: its environment has no variable of this program's, its
standard input is empty, and it ends when this one does, however that ends. What it logs is logged here.
Messages are pickled between these two processes alone.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from typing import Any

from assay.compute.orders import Cancelled, DeviceLost, Order, WorkerConfig
from assay.compute.pool import CANCEL_S, Progress, WorkerGone
from assay.program.compiled.process import command

_LOOK_S = 0.1
"""How often it is seen whether an order that runs is to be cancelled."""
_ENDS_S = 2.0
SECRET = "ASSAY_", "ETH_"
"""Beginnings of the names of variables that a worker does not get, which hold passwords, keys and URLs."""


@dataclass(frozen=True)
class Stepped:
    """Steps done, and in all."""

    done: int
    total: int


@dataclass(frozen=True)
class Logged:
    """A record of the log."""

    name: str
    level: int
    text: str


@dataclass(frozen=True)
class Answer:
    """An order is over."""

    result: Any
    error: Exception | None

    def given(self) -> Any:
        """The result. Raises the error, and WorkerGone where the device is lost."""
        if isinstance(self.error, DeviceLost):
            raise WorkerGone(f"its device is lost: {self.error.message}") from self.error
        if self.error is not None:
            raise self.error
        return self.result


class ProcessWorker:
    """Starts its process at the first order, and another one after each that ends."""

    def __init__(self, config: WorkerConfig) -> None:
        self.config = config
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._line: Connection | None = None
        self._closed = False

    @property
    def device(self) -> str:
        """As `WorkerConfig` has it."""
        return self.config.device

    @property
    def pid(self) -> int | None:
        """Id of the process; None where none runs."""
        process = self._process
        return None if process is None else process.pid

    def run(self, order: Order[Any], progress: Progress, cancelled: threading.Event) -> Any:
        """See `compute.pool.Worker`."""
        line = self._started()
        try:
            line.send(order)
            answer = self._answered(line, progress, cancelled)
        except (EOFError, OSError) as error:
            raise WorkerGone(self._ended()) from error
        except BaseException:  # what comes next on the line is not known
            self._end()
            raise
        if isinstance(answer.error, DeviceLost):
            self._end()
        return answer.given()

    def _answered(self, line: Connection, progress: Progress, cancelled: threading.Event) -> Answer:
        killed_at_s: float | None = None
        while True:
            if not line.poll(_LOOK_S):
                if cancelled.is_set() and killed_at_s is None:
                    line.send(None)
                    killed_at_s = time.monotonic() + CANCEL_S
                elif killed_at_s is not None and time.monotonic() > killed_at_s:
                    self._end()
                    raise Cancelled("the order was cancelled, and its worker killed", hint="order it again")
                continue
            message = line.recv()
            if isinstance(message, Answer):
                return message
            if isinstance(message, Stepped):
                progress(message.done, message.total)
            elif isinstance(message, Logged):
                logging.getLogger(message.name).log(message.level, "%s", message.text)

    def _started(self) -> Connection:
        with self._lock:
            if self._closed:
                raise WorkerGone("the pool is closed")
            if self._line is None:
                line, theirs = Pipe()
                with theirs:
                    self._process = subprocess.Popen(
                        command("assay.compute.worker", str(theirs.fileno())),
                        stdin=subprocess.DEVNULL,
                        pass_fds=[theirs.fileno()],
                        env={k: v for k, v in os.environ.items() if not k.startswith(SECRET)},
                        start_new_session=True,
                    )
                line.send(self.config)
                self._line = line
            return self._line

    def _ended(self) -> str:
        """End the process whose line is gone; how it ended, for people."""
        process = self._process
        if process is not None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_ENDS_S)
        status = None if process is None else process.poll()
        self._end()
        if status is None:
            return "its process did not answer"
        by = f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
        return f"its process ended {by}"

    def _end(self) -> None:
        with self._lock:
            line, process, self._line, self._process = self._line, self._process, None, None
        if process is not None:
            process.kill()
            process.wait()
        if line is not None:
            line.close()

    def close(self) -> None:
        """See `compute.pool.Worker`."""
        self._closed = True
        process = self._process
        if process is not None:
            process.kill()  # `run` sees its end, where one is under way
        if self._lock.acquire(timeout=_ENDS_S):
            self._lock.release()
