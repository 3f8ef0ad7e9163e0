"""Replaying segments of a claim at the same time: in other processes here, or on a Ray cluster.

Contract: an `Order` holds all that a segment's replay needs, so whoever replays it needs no files, keys or
chain; `Replays.run` gives what each order comes to, in order, with the bits of a replay in this process. A
process that dies costs the segment that it was at, which is replayed again; one that dies of the same segment
`TRIES` times is `ReplayLost`. Orders are taken as they can be used, so that few states are in memory at once.
Not guaranteed: that a cluster's machines compute right; they are the operator's, as this one is.

Source: docs/decisions/0041-one-step-on-several-processes.md.
"""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import lru_cache
from queue import SimpleQueue
from typing import TypeVar

import torch

from assay.dispute.replay import Replay
from assay.program.excerpt import Steps, steps_of
from assay.program.execute import Executor
from assay.program.isa import decode, encode
from assay.program.kernels import FAST
from assay.program.state import load_state, state_bytes
from assay.protocol.errors import Retry

TRIES = 3
T = TypeVar("T")


class ReplayLost(Retry):
    """The processes that replayed a segment have died of it, one after another."""

    code = "replay-lost"


@dataclass(frozen=True)
class Order:
    """A segment to be replayed."""

    program: bytes
    state: bytes
    steps: Steps
    key: bytes | None
    """Of the trace of the last step; None if that is not asked for."""


@dataclass(frozen=True)
class Replayed:
    """State root at the segment's end, and the keyed trace root of its last step, empty if not asked for."""

    root: bytes
    trace: bytes


def order_of(replay: Replay, steps: int, key: bytes | None) -> Order:
    """What another process needs for the first `steps` steps of an honest replay."""
    program = replay.program
    read = steps_of(program, replay.context(0), steps)
    return Order(encode(program), bytes(state_bytes(replay.state(0))), read, key)


@lru_cache(maxsize=4)
def _executor(encoded: bytes) -> Executor:
    return Executor(decode(encoded), "cpu", FAST)


def replayed(order: Order) -> Replayed:
    """Replay a segment in this process."""
    executor = _executor(order.program)
    program = executor.program
    state, context = load_state(program, order.state), order.steps.context(program)
    place = context.seed, context.shard, context.step
    replay = Replay(program, state, context.dataset, *place, executor=executor)
    trace = b"" if order.key is None else replay.trace(order.steps.number - 1, order.key).root
    return Replayed(replay.root(order.steps.number), trace)


class Replays:
    """Replays orders at the same time, `width` of them."""

    width: int

    def submit(self, order: Order) -> Callable[[], Replayed]:
        """Begin a replay; what is given back waits for it. Raises ReplayLost there."""
        raise NotImplementedError

    def run(self, items: Iterable[Order | T]) -> Iterator[Replayed | T]:
        """What each item comes to, in order: an order what it replays to, anything else itself."""
        pending: deque[Callable[[], Replayed | T]] = deque()
        for item in items:
            pending.append(self.submit(item) if isinstance(item, Order) else _given(item))
            if len(pending) > self.width:
                yield pending.popleft()()
        while pending:
            yield pending.popleft()()

    def close(self) -> None:
        """End all that was started."""


def _given(item: T) -> Callable[[], T]:
    return lambda: item


class LocalReplays(Replays):
    """Replays in processes of this machine, one thread each, which start when they are first needed."""

    def __init__(self, width: int) -> None:
        """`width` processes, at least 1."""
        self.width = width
        self._threads = ThreadPoolExecutor(width, thread_name_prefix="replaying")
        self._idle: SimpleQueue[ProcessPoolExecutor] = SimpleQueue()
        for _ in range(width):
            self._idle.put(_process())

    def submit(self, order: Order) -> Callable[[], Replayed]:
        future: Future[Replayed] = self._threads.submit(self._replayed, order)
        return future.result

    def _replayed(self, order: Order) -> Replayed:
        process = self._idle.get()
        try:
            for _ in range(TRIES):
                try:
                    return process.submit(replayed, order).result()
                except BrokenProcessPool:
                    process.shutdown(wait=False)
                    process = _process()
        finally:
            self._idle.put(process)
        raise ReplayLost(
            f"{TRIES} processes that replayed the segment from step {order.steps.first} have died, so nothing"
            " is known of it",
            hint="see whether this machine has memory for so many replays at once",
        )

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)
        while not self._idle.empty():
            self._idle.get().shutdown()


def _process() -> ProcessPoolExecutor:
    """A process of its own, so that its death breaks nothing of others."""
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=_begin)


def _begin() -> None:
    torch.set_num_threads(1)
