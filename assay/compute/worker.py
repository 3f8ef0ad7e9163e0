"""Entry point of the process that runs orders (``compute.process``).

Contract: it runs one order after the other until its connection closes, also during an order. Exceptions of
an order are sent back; a lost device ends the process after that.
"""

from __future__ import annotations

import logging
import os
import pickle
import queue
import select
import signal
import sys
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from itertools import count
from multiprocessing.connection import Connection
from typing import Any, Protocol

from assay.blocks.blockstore import BlockStore
from assay.compute.node_calls import RemoteNode
from assay.compute.orders import Cancelled, DeviceLost, Order, OutOfMemory, WorkerConfig, WorkerContext
from assay.compute.pool import Usage
from assay.compute.process import Answer, Asked, Logged, Stepped, Told, sendable
from assay.numerics import slow_paths

_TELL_S = 0.2
"""Minimum seconds between progress reports."""
_LOST = ("CUDA error", "no CUDA-capable device", "HIP error", "device-side assert")
"""Texts with which PyTorch says that this process can no longer use a device."""


class Messages(Protocol):
    """The connection to the node: a `Connection` or a substitute."""

    def send(self, message: Any, /) -> None: ...
    def recv(self) -> Any: ...


class Line:
    """This process's end of the connection. Thread-safe."""

    def __init__(self, connection: Messages) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._numbers = count()
        self._asked: dict[int, Future[Any]] = {}
        self.orders: queue.SimpleQueue[Order[Any] | None] = queue.SimpleQueue()
        """None: the node is gone."""
        self.cancelled = threading.Event()

    def send(self, message: object) -> None:
        with self._lock:
            self._connection.send(message)

    def call(self, whose: str, name: str, arguments: tuple[Any, ...]) -> Any:
        """Calls the node. Raises what the call raises there."""
        number, told = next(self._numbers), Future[Any]()
        self._asked[number] = told
        self.send(Asked(number, whose, name, arguments))
        return told.result()

    def hear(self) -> None:
        """Receives the node's messages until it is gone.

        An unreadable message ends the process, because an order may wait for it.
        """
        try:
            while True:
                message = self._connection.recv()
                if isinstance(message, Told):
                    asked = self._asked.pop(message.number)
                    if message.error is None:
                        asked.set_result(message.result)
                    else:
                        asked.set_exception(message.error)
                elif message is None:
                    self.cancelled.set()
                else:
                    self.cancelled.clear()  # of an order that was over by then
                    self.orders.put(message)
        except (EOFError, OSError):
            self.orders.put(None)
        except Exception:  # whatever unpickling raises: nobody can tell which order waits for it
            logging.getLogger(__name__).exception("what the node says cannot be read")
            os._exit(1)


class _Log(logging.Handler):
    def __init__(self, line: Line) -> None:
        super().__init__(logging.INFO)
        self._line = line

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):
            self._line.send(Logged(record.name, record.levelno, record.getMessage()))


def serve(connection: Messages) -> None:
    """Runs orders until the node is gone. Raises OSError if that happens during an order."""
    config: WorkerConfig = connection.recv()
    line = Line(connection)
    root = logging.getLogger()
    root.addHandler(_Log(line))
    root.setLevel(logging.INFO)
    store = None if config.store is None else BlockStore(config.store, sweep=False)
    context = WorkerContext(config, desk=RemoteNode(line.call, config.me, store))
    if config.threads:  # before PyTorch is imported, which the first order may do
        os.environ["OMP_NUM_THREADS"] = str(config.threads)
    threading.Thread(target=line.hear, name="line", daemon=True).start()
    context.progress = told = _Told(line, context)
    while (order := line.orders.get()) is not None:
        answer = replace(answered(order, context), usage=told.usage())
        try:
            line.send(answer)
        except (AttributeError, TypeError, pickle.PicklingError) as error:
            unsent = RuntimeError(f"the result of {order.name} cannot be sent: {error}")
            line.send(replace(answer, result=None, error=unsent))
        if isinstance(answer.error, DeviceLost):
            return


def answered(order: Order[Any], context: WorkerContext) -> Answer:
    """Runs an order and returns its result or exception as an answer."""
    try:
        return Answer(order.run(context), None)
    except Exception as error:  # noqa: BLE001 - raised by whoever waits for the order
        return Answer(None, _shown(error, context))


def device_bytes(device: str) -> int:
    """GPU memory that this process uses, in bytes; 0 if it has used none."""
    torch = sys.modules.get("torch")
    if torch is None or not device.startswith("cuda") or not torch.cuda.is_initialized():
        return 0
    try:
        return int(torch.cuda.memory_reserved(device))
    except RuntimeError:  # the device is lost, which the order's own error says
        return 0


class _Told:
    """Reports progress, and raises Cancelled if the node asked for it."""

    def __init__(self, line: Line, context: WorkerContext) -> None:
        self._line, self._context, self._next_s = line, context, 0.0
        self._waited = False
        self._first, self._last, self._since_s = 0, -1, 0.0
        self._step_s = 0.0

    def usage(self) -> Usage:
        """Current GPU memory, duration of the latest steps, slow paths in use, and a crew member's times."""
        taken = device_bytes(self._context.config.device)
        return Usage(0, taken, self._step_s, slow_paths.noted(), self._context.crew)

    def _pace(self, done: int) -> None:
        """Updates the step duration; a count that shrinks means that another run of steps has begun."""
        now_s = time.monotonic()
        if self._last < 0 or done < self._last:
            self._first, self._since_s = done, now_s
        elif done > self._last:
            self._step_s = (now_s - self._since_s) / (done - self._first)
        self._last = done

    def __call__(self, done: int, total: int) -> None:
        self._pace(done)
        if self._line.cancelled.is_set():
            self._line.cancelled.clear()
            raise Cancelled("the order was cancelled, and nothing of it is kept", hint="order it again")
        waits = bool(self._context.crew.get("wait"))
        if time.monotonic() >= self._next_s or done == total or waits != self._waited:
            self._waited = waits
            self._next_s = time.monotonic() + _TELL_S
            self._line.send(Stepped(done, total, self.usage()))


def _shown(error: Exception, context: WorkerContext) -> Exception:
    """The exception to send to the node."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # PyTorch's, of a GPU
        context.cache.clear()
        return OutOfMemory(
            f"{context.config.device} has not enough memory for this order, so it was not done ({error})",
            hint="give the worker a device with more memory, or take smaller jobs (--memory)",
        )
    if isinstance(error, RuntimeError) and any(sign in str(error) for sign in _LOST):
        said = f"{context.config.device} does not answer: {str(error).splitlines()[0]}"
        return DeviceLost(said, hint="check the device, and its driver's log")
    return sendable(error)


def _end_with(descriptor: int) -> None:
    """Exits this process when the other end of this descriptor closes."""
    poll = select.poll()
    poll.register(descriptor, 0)
    poll.poll()
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Runs the process; its argument is the descriptor of the connection."""
    descriptor = int(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(descriptor,), daemon=True).start()
    with suppress(EOFError, OSError), Connection(descriptor) as line:
        serve(line)


if __name__ == "__main__":
    main()
