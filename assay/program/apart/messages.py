"""What a process that computes is told, and what it answers (``program.apart.executor``).

Contract: pickled between two processes of one program in the same version; never read from anybody else.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

from assay.program.apart.memory import held
from assay.program.excerpt import Steps
from assay.program.execute import Executor
from assay.program.isa import Program

_MARK = b"+"


@dataclass(frozen=True)
class Prepare:
    """Make an executor, under a number. No answer: what goes wrong is that of the first run."""

    number: int
    program: bytes
    make: Callable[[Program], Executor]


@dataclass(frozen=True)
class Forget:
    """Let executors go, and the state of theirs. No answer."""

    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Run:
    """Compute steps. Followed by `descriptors` of memory with the state, unless it is the latest one."""

    number: int
    steps: Steps
    latest: bool
    descriptors: int


@dataclass(frozen=True)
class Logged:
    """A record of the log."""

    name: str
    level: int
    text: str


@dataclass(frozen=True)
class Done:
    """A run is over. `same`: for each slot the one before that it is the same tensor as, or None. Followed by
    `descriptors` of memory with the others."""

    same: tuple[int | None, ...]
    descriptors: int
    logged: tuple[Logged, ...]


@dataclass(frozen=True)
class Failed:
    """A run has failed."""

    error: Exception
    logged: tuple[Logged, ...]


def send(line: Connection, descriptors: Sequence[int]) -> None:
    """Give descriptors to the other end, which waits for so many. Raises OSError."""
    if descriptors:
        with socket.socket(fileno=os.dup(line.fileno())) as end:
            socket.send_fds(end, [_MARK], list(descriptors))


def receive(line: Connection, count: int) -> list[int]:
    """So many descriptors that the other end gives. Raises EOFError or OSError where it does not."""
    if not count:
        return []
    with socket.socket(fileno=os.dup(line.fileno())) as end:
        data, descriptors, _, _ = socket.recv_fds(end, len(_MARK), count)
    if data != _MARK or len(descriptors) != count:
        with held(descriptors):
            raise EOFError
    return descriptors
