"""Replaying a segment of a claim in a worker.

Contract: a `ReplaySegment` holds all that the replay needs, so its worker needs no files; it gives the bits
of a replay in this process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import TypeVar

from assay.compute.orders import Bench, Order, Priority
from assay.compute.pool import Pool
from assay.dispute.replay import Replay
from assay.program.excerpt import Steps, steps_of
from assay.program.execute import Executor
from assay.program.isa import decode, encode
from assay.program.kernels import FAST
from assay.program.state import load_state, state_bytes

T = TypeVar("T")


@dataclass(frozen=True)
class Replayed:
    """State root at the segment's end, and the keyed trace root of its last step, empty if not asked for."""

    root: bytes
    trace: bytes


@dataclass(frozen=True)
class ReplaySegment(Order[Replayed]):
    """A segment to be replayed."""

    program: bytes
    state: bytes
    steps: Steps
    key: bytes | None
    """Of the trace of the last step; None if that is not asked for."""

    @property
    def affinity(self) -> str:
        return sha256(self.program).hexdigest()

    def run(self, bench: Bench) -> Replayed:
        kept = bench.cache.get("executor")
        if kept is None or kept[0] != self.program:
            kept = self.program, Executor(decode(self.program), bench.config.device, FAST)
            bench.cache["executor"] = kept
        executor: Executor = kept[1]
        program, count = executor.program, self.steps.number
        state, context = load_state(program, self.state), self.steps.context(program)
        place = context.seed, context.shard, context.step
        replay = Replay(program, state, context.dataset, *place, executor=executor)
        for done in range(count):
            bench.progress(done, count)
            replay.state(done)
        trace = b"" if self.key is None else replay.trace(count - 1, self.key).root
        return Replayed(replay.root(count), trace)


def order_of(replay: Replay, steps: int, key: bytes | None) -> ReplaySegment:
    """The order for the first `steps` steps of an honest replay."""
    program = replay.program
    read = steps_of(program, replay.context(0), steps)
    return ReplaySegment(encode(program), bytes(state_bytes(replay.state(0))), read, key)


def replayed(pool: Pool, items: Iterable[ReplaySegment | T]) -> Iterator[Replayed | T]:
    """What each item comes to, in order: an order what it replays to, anything else itself. Items are taken
    as workers can use them, so that few states are in memory at once. Raises what an order raised."""
    pending: deque[Callable[[], Replayed | T]] = deque()
    for item in items:
        if isinstance(item, ReplaySegment):
            pending.append(pool.submit(item, Priority.VOTE).result)
        else:
            pending.append(_given(item))
        if len(pending) > pool.width:
            yield pending.popleft()()
    while pending:
        yield pending.popleft()()


def _given(item: T) -> Callable[[], T]:
    return lambda: item
