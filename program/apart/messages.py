"""What a process that computes is told, and what it answers (``program.apart.executor``).

Contract: pickled between two processes of one program in the same version; never read from anybody else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from assay.program.execute import Executor
from assay.program.isa import Program


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
    """Compute steps. `records` are those of the dataset that they read, by index, of `record_count`. Followed
    by the descriptor of memory with the state, unless it is the latest one."""

    number: int
    seed: bytes
    shard: int
    first_step: int
    steps: int
    record_count: int
    records: dict[int, bytes]
    latest: bool


@dataclass(frozen=True)
class Logged:
    """A record of the log."""

    name: str
    level: int
    text: str


@dataclass(frozen=True)
class Done:
    """A run is over. `same`: for each slot the one before that it is the same tensor as, or None. Followed by
    the descriptor of memory with the others."""

    same: tuple[int | None, ...]
    logged: tuple[Logged, ...]


@dataclass(frozen=True)
class Failed:
    """A run has failed."""

    error: Exception
    logged: tuple[Logged, ...]
