"""The process that runs orders (``compute.process``).

Contract: it runs order after order until the other end of its line closes, in the midst of one too. What an
order raises is answered; a device that is lost ends the process after the answer.
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
from assay.compute.home import RemoteDesk
from assay.compute.orders import Bench, Cancelled, DeviceLost, Order, OutOfMemory, WorkerConfig
from assay.compute.pool import Usage
from assay.compute.process import Answer, Asked, Logged, Stepped, Told, sendable
from assay.numerics import slower

_TELL_S = 0.2
"""Progress is told no more often."""
_LOST = ("CUDA error", "no CUDA-capable device", "HIP error", "device-side assert")
"""By which PyTorch says that a device cannot be used any more by this process."""


class Messages(Protocol):
    """Where messages go and come: a `Connection`, or what stands for one."""

    def send(self, message: Any, /) -> None: ...
    def recv(self) -> Any: ...


class Line:
    """This process's end of the line. Thread-safe."""

    def __init__(self, connection: Messages) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._numbers = count()
        self._asked: dict[int, Future[Any]] = {}
        self.orders: queue.SimpleQueue[Order[Any] | None] = queue.SimpleQueue()
        """None: the other end is gone."""
        self.cancelled = threading.Event()

    def send(self, message: object) -> None:
        with self._lock:
            self._connection.send(message)

    def call(self, whose: str, name: str, arguments: tuple[Any, ...]) -> Any:
        """A call of the node's. Raises what it raises there."""
        number, told = next(self._numbers), Future[Any]()
        self._asked[number] = told
        self.send(Asked(number, whose, name, arguments))
        return told.result()

    def hear(self) -> None:
        """Take in what the node sends, until it is gone. The process ends where that cannot be read: an
        order may wait for it."""
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
    """Run what is ordered until the other end is gone. Raises OSError where it goes in the midst of one."""
    config: WorkerConfig = connection.recv()
    line = Line(connection)
    root = logging.getLogger()
    root.addHandler(_Log(line))
    root.setLevel(logging.INFO)
    store = None if config.store is None else BlockStore(config.store, sweep=False)
    bench = Bench(config, desk=RemoteDesk(line.call, config.me, store))
    if config.threads:  # before PyTorch is imported, which the first order may do
        os.environ["OMP_NUM_THREADS"] = str(config.threads)
    threading.Thread(target=line.hear, name="line", daemon=True).start()
    bench.progress = told = _Told(line, config.device)
    while (order := line.orders.get()) is not None:
        answer = replace(answered(order, bench), usage=told.usage())
        try:
            line.send(answer)
        except (AttributeError, TypeError, pickle.PicklingError) as error:
            unsent = RuntimeError(f"the result of {order.name} cannot be sent: {error}")
            line.send(replace(answer, result=None, error=unsent))
        if isinstance(answer.error, DeviceLost):
            return


def answered(order: Order[Any], bench: Bench) -> Answer:
    """What an order comes to, whatever it raises."""
    try:
        return Answer(order.run(bench), None)
    except Exception as error:  # noqa: BLE001 - raised by whoever waits for the order
        return Answer(None, _shown(error, bench))


def device_bytes(device: str) -> int:
    """What this process has taken of a GPU; 0 where it has used none."""
    torch = sys.modules.get("torch")
    if torch is None or not device.startswith("cuda") or not torch.cuda.is_initialized():
        return 0
    try:
        return int(torch.cuda.memory_reserved(device))
    except RuntimeError:  # the device is lost, which the order's own error says
        return 0


class _Told:
    """Tells of steps, and raises Cancelled where the other end has said so."""

    def __init__(self, line: Line, device: str) -> None:
        self._line, self._device, self._next_s = line, device, 0.0
        self._first, self._last, self._since_s = 0, -1, 0.0
        self._step_s = 0.0

    def usage(self) -> Usage:
        """What this process takes of its GPU, how long a step takes of the steps that were told last, and
        what is slower than it could be."""
        return Usage(0, device_bytes(self._device), self._step_s, slower.noted())

    def _pace(self, done: int) -> None:
        """Take in that `done` steps are done: where they are no more than before, others have begun."""
        now_s = time.monotonic()
        if self._last < 0 or done <= self._last:
            self._first, self._since_s = done, now_s
        else:
            self._step_s = (now_s - self._since_s) / (done - self._first)
        self._last = done

    def __call__(self, done: int, total: int) -> None:
        self._pace(done)
        if self._line.cancelled.is_set():
            self._line.cancelled.clear()
            raise Cancelled("the order was cancelled, and nothing of it is kept", hint="order it again")
        if time.monotonic() >= self._next_s or done == total:
            self._next_s = time.monotonic() + _TELL_S
            self._line.send(Stepped(done, total, self.usage()))


def _shown(error: Exception, bench: Bench) -> Exception:
    """What is raised at the other end."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # PyTorch's, of a GPU
        bench.cache.clear()
        return OutOfMemory(
            f"{bench.config.device} has not enough memory for this order, so it was not done ({error})",
            hint="give the worker a device with more memory, or take smaller jobs (--memory)",
        )
    if isinstance(error, RuntimeError) and any(sign in str(error) for sign in _LOST):
        said = f"{bench.config.device} does not answer: {str(error).splitlines()[0]}"
        return DeviceLost(said, hint="check the device, and its driver's log")
    return sendable(error)


def _end_with(descriptor: int) -> None:
    """End this process once nobody is at the other end."""
    poll = select.poll()
    poll.register(descriptor, 0)
    poll.poll()
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """The process: the descriptor of its line."""
    descriptor = int(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(descriptor,), daemon=True).start()
    with suppress(EOFError, OSError), Connection(descriptor) as line:
        serve(line)


if __name__ == "__main__":
    main()
