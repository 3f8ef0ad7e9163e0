"""The process that runs orders (``compute.process``).

Contract: it runs order after order until the other end of its line closes, in the midst of one too. What an
order raises is answered; a device that is lost ends the process after the answer.
"""

from __future__ import annotations

import logging
import os
import pickle
import select
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from assay.compute.orders import Bench, Cancelled, DeviceLost, Order, OutOfMemory, WorkerConfig
from assay.compute.process import Answer, Logged, Stepped
from assay.protocol.errors import AssayError

_TELL_S = 0.2
"""Progress is told no more often."""
_LOST = ("CUDA error", "no CUDA-capable device", "HIP error", "device-side assert")
"""By which PyTorch says that a device cannot be used any more by this process."""


class _Log(logging.Handler):
    def __init__(self, line: Connection) -> None:
        super().__init__(logging.INFO)
        self._line = line

    def emit(self, record: logging.LogRecord) -> None:
        self._line.send(Logged(record.name, record.levelno, record.getMessage()))


def serve(line: Connection) -> None:
    """Run what is ordered. Raises EOFError or OSError where the other end is gone."""
    config: WorkerConfig = line.recv()
    root = logging.getLogger()
    root.addHandler(_Log(line))
    root.setLevel(logging.INFO)
    bench = Bench(config)
    if config.threads:  # before PyTorch is imported, which the first order may do
        os.environ["OMP_NUM_THREADS"] = str(config.threads)
    while True:
        order: Order[object] | None = line.recv()
        if order is None:  # a cancellation that came too late
            continue
        bench.progress = _Told(line)
        answer = answered(order, bench)
        try:
            line.send(answer)
        except (AttributeError, TypeError, pickle.PicklingError) as error:
            line.send(Answer(None, RuntimeError(f"the result of {order.name} cannot be sent: {error}")))
        if isinstance(answer.error, DeviceLost):
            return


def answered(order: Order[Any], bench: Bench) -> Answer:
    """What an order comes to, whatever it raises."""
    try:
        return Answer(order.run(bench), None)
    except Exception as error:  # noqa: BLE001 - raised by whoever waits for the order
        return Answer(None, _shown(error, bench))


class _Told:
    """Tells of steps, and raises Cancelled where the other end has said so."""

    def __init__(self, line: Connection) -> None:
        self._line, self._next_s = line, 0.0

    def __call__(self, done: int, total: int) -> None:
        if self._line.poll():
            self._line.recv()
            raise Cancelled("the order was cancelled, and nothing of it is kept", hint="order it again")
        if time.monotonic() >= self._next_s or done == total:
            self._next_s = time.monotonic() + _TELL_S
            self._line.send(Stepped(done, total))


def _shown(error: Exception, bench: Bench) -> Exception:
    """What is raised at the other end, where classes of libraries may not be known."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # PyTorch's, of a GPU
        bench.cache.clear()
        return OutOfMemory(
            f"{bench.config.device} has not enough memory for this order, so it was not done ({error})",
            hint="give the worker a device with more memory, or take smaller jobs (--memory)",
        )
    if isinstance(error, AssayError):
        return error
    if isinstance(error, OSError):
        return OSError(error.errno, str(error))
    text = str(error)
    if isinstance(error, RuntimeError) and any(sign in text for sign in _LOST):
        said = f"{bench.config.device} does not answer: {text.splitlines()[0]}"
        return DeviceLost(said, hint="check the device, and its driver's log")
    return RuntimeError("".join(traceback.format_exception(error)).strip())


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
