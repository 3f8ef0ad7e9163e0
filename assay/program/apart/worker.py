"""The process that computes what another one orders.

Contract: `serve` computes run after run until the other end closes or ends, in the midst of a step too. An
error of a run is answered, and costs the state that this process had; the next run brings one.
"""

from __future__ import annotations

import gc
import logging
import os
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection

import torch
from torch import Tensor

from assay.program.apart import memory
from assay.program.apart.messages import Done, Failed, Forget, Logged, Prepare, Run, receive, send
from assay.program.execute import Executor
from assay.program.isa import Program, decode
from assay.program.kernels import TORCH_DTYPES
from assay.protocol.errors import AssayError, Retry

_OFTEN = 700, 10, 10
"""How often unused cycles are looked for: Python's own numbers."""


class _Log(logging.Handler):
    """Keeps what is logged until it is told."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._kept: list[Logged] = []

    def emit(self, record: logging.LogRecord) -> None:
        self._kept.append(Logged(record.name, record.levelno, record.getMessage()))

    def taken(self) -> tuple[Logged, ...]:
        """What was logged since the last time."""
        kept, self._kept = self._kept, []
        return tuple(kept)


class _Computing:
    """Executors by number, and the latest state."""

    def __init__(self) -> None:
        self._told: dict[int, tuple[bytes, Callable[[Program], Executor]]] = {}
        self._executors: dict[int, Executor] = {}
        self._user = -1
        self._latest: list[Tensor] = []
        """The state that the user's last run gave."""

    def prepare(self, order: Prepare) -> None:
        """Make the executor at its first run."""
        self._told[order.number] = order.program, order.make

    def forget(self, order: Forget) -> None:
        """Let executors go."""
        for number in order.numbers:
            self._told.pop(number, None)
            self._executors.pop(number, None)
        if self._user in order.numbers:
            self._user, self._latest = -1, []

    def _executor(self, number: int) -> Executor:
        if number not in self._executors:
            encoded, make = self._told[number]
            self._executors[number] = make(decode(encoded))
        return self._executors[number]

    def run(self, order: Run, descriptors: Sequence[int]) -> tuple[tuple[int | None, ...], list[int]]:
        """Which slots are the same as before, and descriptors of memory with the others."""
        user, before, self._user, self._latest = self._user, self._latest, -1, []
        executor = self._executor(order.number)
        program = executor.program
        if not order.latest:
            before = memory.found(descriptors, [(TORCH_DTYPES[n.dtype], n.shape) for n in program.state])
        elif user != order.number:
            raise Retry("the process that computes has not the state to go on from", hint="it is sent again")
        after = executor.run(before, order.steps.context(program), order.steps.number)
        same = _same(before, after)
        placed = memory.placed([x for x, known in zip(after, same, strict=True) if known is None])
        self._user, self._latest = order.number, after
        return same, placed


def _same(before: Sequence[Tensor], after: Sequence[Tensor]) -> tuple[int | None, ...]:
    """For each tensor the one before that it is, if it is one of them."""
    places = {id(x): i for i, x in reversed(list(enumerate(before)))}
    return tuple(places.get(id(x)) for x in after)


def serve(line: Connection) -> None:
    """Compute what is ordered. Raises EOFError or OSError where the other end is gone."""
    computing, log = _Computing(), _Log()
    root = logging.getLogger()
    root.addHandler(log)
    root.setLevel(logging.INFO)
    while True:
        order: Prepare | Forget | Run = line.recv()
        if isinstance(order, Prepare):
            computing.prepare(order)
        elif isinstance(order, Forget):
            computing.forget(order)
        else:
            _answer(line, computing, log, order)


def _answer(line: Connection, computing: _Computing, log: _Log, order: Run) -> None:
    with memory.held(receive(line, order.descriptors)) as given:
        try:
            same, placed = computing.run(order, given)
        except Exception as error:  # noqa: BLE001 - raised by whoever ordered the run
            line.send(Failed(_told(error), log.taken()))
            return
    with memory.held(placed):
        line.send(Done(same, len(placed), log.taken()))
        send(line, placed)


def _told(error: Exception) -> Exception:
    """What is raised at the other end: an error that may not be known there only says what it was."""
    if isinstance(error, AssayError):
        return error
    if isinstance(error, MemoryError | OSError):  # as ``node.shortage`` knows them
        return MemoryError() if isinstance(error, MemoryError) else OSError(error.errno, str(error))
    return RuntimeError("".join(traceback.format_exception(error)).strip())


def _end_with(descriptor: int) -> None:
    """End this process once nobody is at the other end."""
    poll = select.poll()
    poll.register(descriptor, 0)
    poll.poll()
    os.kill(os.getpid(), signal.SIGTERM)


def _end(*_: object) -> None:
    """End in order, so that a compiler that was started ends too."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit()


def main() -> None:
    """The process: descriptor of its line, threads."""
    descriptor, threads = map(int, sys.argv[1:])
    signal.signal(signal.SIGTERM, _end)
    threading.Thread(target=_end_with, args=(descriptor,), daemon=True).start()
    torch.set_num_threads(threads)
    gc.set_threshold(*_OFTEN)  # it was started with few looks, as one that soon ends
    with suppress(EOFError, OSError), Connection(descriptor) as line:
        serve(line)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
