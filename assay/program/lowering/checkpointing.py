"""Follows activation checkpointing: values dropped in the forward pass are recomputed.

Contract: inside `regions_marked` both forms of ``torch.utils.checkpoint`` run as the non-reentrant one, and
every traced operation has a `Place`. Nodes of a period above 0 are shared with no earlier ones, so that a
program keeps exactly what a checkpoint keeps. Recomputed random numbers equal the first draw. Calls may be
nested. Not guaranteed: selective checkpointing (``context_fn``); all of a call is recomputed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from unittest.mock import patch

import torch
from torch.utils import checkpoint


@dataclass(frozen=True)
class Place:
    """Position of an operation in the runs of checkpointed calls."""

    period: int = 0
    """0, or a unique number for each recomputation of a call."""
    draw: int = 0
    """Number of the random tensor; 0 for other operations."""


@dataclass
class _Run:
    draws: list[int]
    """Draws of the call's first run, in order."""
    period: int = 0
    cursor: int = 0


@dataclass
class _Trace:
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    runs: list[_Run] = field(default_factory=list)
    """Active runs, innermost last."""


_TRACE: ContextVar[_Trace | None] = ContextVar("trace", default=None)


def place(func: Any) -> Place:
    """Place of the operation being traced; call it once per operation."""
    trace = _TRACE.get()
    if trace is None:
        return Place()
    again = next((run for run in reversed(trace.runs) if run.period), None)
    period = 0 if again is None else again.period
    if torch.Tag.nondeterministic_seeded not in getattr(func, "tags", ()):
        return Place(period)
    if again is None:
        draw = next(trace.numbers)
    else:
        draw = again.draws[again.cursor]
        again.cursor += 1
    for run in trace.runs:
        if not run.period:
            run.draws.append(draw)
    return Place(period, draw)


@contextmanager
def _running(trace: _Trace, run: _Run) -> Iterator[None]:
    trace.runs.append(run)
    try:
        yield
    finally:
        trace.runs.remove(run)


@contextmanager
def regions_marked() -> Iterator[None]:
    """Applies to the `with` block of one trace."""
    plain = contextmanager(checkpoint._checkpoint_without_reentrant_generator)
    trace = _Trace()

    def marked(
        fn: Callable[..., Any],
        _keep_rng: bool,
        _contexts: Any,
        _check: str,
        _debug: bool,
        early_stop: bool,
        *args: Any,
        **kwargs: Any,
    ) -> Iterator[None]:
        first = _Run([])

        def again(*inputs: Any, **named: Any) -> Any:
            with _running(trace, _Run(first.draws, next(trace.numbers))):
                return fn(*inputs, **named)

        kept = plain(again, False, checkpoint.noop_context_fn, "none", False, early_stop, *args, **kwargs)
        with kept, _running(trace, first):
            yield

    class Called:
        """Replaces the reentrant form."""

        @staticmethod
        def apply(fn: Callable[..., Any], _keep_rng: bool, *args: Any) -> Any:
            return checkpoint.checkpoint(fn, *args, use_reentrant=False)

    token = _TRACE.set(trace)
    try:
        with (
            patch.object(checkpoint, "_checkpoint_without_reentrant_generator", marked),
            patch.object(checkpoint, "CheckpointFunction", Called),
        ):
            yield
    finally:
        _TRACE.reset(token)
