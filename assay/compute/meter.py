"""Measures how a member of a crew spends its steps, and for whom it waits now.

Contract: all of a step's time is either a wait for one of the others or counts as computing, hashing and
saving included. A member's own numbers are measured; those of the others are what they report after each
step. Not guaranteed: that another member's numbers are true. One thread uses a meter.
"""

from __future__ import annotations

import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from assay.compute.peers import Crew

TELL_S = 1.0
"""Seconds of a wait after which it is told, and then told again."""
LAST = 16
"""Steps over which the numbers of a member are averaged."""
_MICRO = 1e6


@dataclass(frozen=True)
class StepTimes:
    """How a member has spent a step. Times are in seconds."""

    seconds: float
    waited: tuple[float, ...]
    """For tensors and reports, by the member that sends them."""
    blocked: tuple[float, ...]
    """With a full queue, by the member to whom it goes."""
    sent: tuple[int, ...]
    """Bytes, by the member to whom they went."""

    def pack(self) -> bytes:
        """Whole microseconds and bytes, as unsigned 64-bit integers."""
        times = [round(_MICRO * x) for x in (self.seconds, *self.waited, *self.blocked)]
        return _packing(len(self.sent)).pack(*times, *self.sent)


def packed_size(members: int) -> int:
    """Bytes of packed `StepTimes`."""
    return _packing(members).size


def unpack(data: bytes, members: int) -> StepTimes:
    """Reads what `StepTimes.pack` wrote."""
    seconds, *rest = _packing(members).unpack(data)
    waited, blocked = (
        tuple(x / _MICRO for x in rest[at : at + members]) for at in range(0, 2 * members, members)
    )
    return StepTimes(seconds / _MICRO, waited, blocked, tuple(rest[2 * members :]))


def _packing(members: int) -> struct.Struct:
    return struct.Struct(f">{1 + 3 * members}Q")


def mean(steps: Sequence[StepTimes]) -> StepTimes | None:
    """The mean over steps; None if there are none."""
    if not steps:
        return None
    count = len(steps)
    waited, blocked, sent = (
        tuple(sum(column) / count for column in zip(*rows, strict=True))
        for rows in zip(*((step.waited, step.blocked, step.sent) for step in steps), strict=True)
    )
    return StepTimes(sum(step.seconds for step in steps) / count, waited, blocked, tuple(map(round, sent)))


@dataclass(frozen=True)
class Wait:
    """A wait for a member. `what`: connection, tensor, or queue, which is full of frames to it."""

    what: str
    member: int
    step: int = 0
    node: int = 0
    """Of the whole program."""


def no_steps(crew: Crew) -> list[deque[StepTimes]]:
    """Room for the last steps of each member."""
    return [deque(maxlen=LAST) for _ in crew.peers]


class Meter:
    """The meter of one member. `nodes`: of the whole program; `tell` is called while it waits, and may raise
    to end the wait; `known`: each member's last steps (`no_steps`), which an earlier meter has noted."""

    def __init__(
        self,
        crew: Crew,
        nodes: int = 0,
        tell: Callable[[Meter], object] = lambda meter: None,
        now: Callable[[], float] = time.monotonic,
        known: list[deque[StepTimes]] | None = None,
    ) -> None:
        self._crew, self._nodes, self._tell, self._now = crew, nodes, tell, now
        count = len(crew.peers)
        self._steps = no_steps(crew) if known is None else known
        self._begun_s: float | None = None
        self._waited, self._blocked, self._sent = [0.0] * count, [0.0] * count, [0] * count
        self._wait: tuple[Wait, float] | None = None
        """What this member waits for now, and since when; only waits that are told."""
        self.step, self.segment = 0, 0

    def begin(self, step: int, segment: int, sent: Sequence[int]) -> None:
        """Ends the measure of a step, if one has begun, and begins another. `sent`: bytes so far, by
        member."""
        now_s = self._now()
        if self._begun_s is not None:
            out = tuple(after - before for after, before in zip(sent, self._sent, strict=True))
            took_s = now_s - self._begun_s
            self._steps[self._crew.member].append(
                StepTimes(took_s, tuple(self._waited), tuple(self._blocked), out)
            )
        self._begun_s, self._sent = now_s, list(sent)
        self._waited, self._blocked = [0.0] * len(sent), [0.0] * len(sent)
        self.step, self.segment = step, segment

    def report(self) -> bytes:
        """This member's last whole step, for the others; zeros before that."""
        own, none = self._steps[self._crew.member], (0,) * len(self._steps)
        return (own[-1] if own else StepTimes(0.0, none, none, none)).pack()

    def heard(self, member: int, data: bytes) -> None:
        """Notes another member's report."""
        step = unpack(data, len(self._steps))
        if step.seconds:
            self._steps[member].append(step)

    def wait(
        self,
        change: threading.Condition,
        until: Callable[[], object],
        wait: Wait,
        most_s: float = float("inf"),
    ) -> None:
        """Waits until a condition holds, or for `most_s`."""
        begun_s, there = self._now(), False
        while not there and (left_s := begun_s + most_s - self._now()) > 0:
            with change:
                there = bool(change.wait_for(until, min(TELL_S, left_s)))
            if not there:
                self.waits(wait, begun_s)
        times = self._blocked if wait.what == "queue" else self._waited
        times[wait.member] += self._now() - begun_s
        if self._wait is not None:
            self.waits(None)

    def waits(self, wait: Wait | None, since_s: float = 0.0) -> None:
        """Tells what this member waits for now, and since when."""
        self._wait = None if wait is None else (wait, since_s)
        self._tell(self)

    def shown(self) -> dict[str, Any]:
        """All of it as JSON's types: means over the last steps by member, and the present wait."""
        found = [mean(steps) for steps in self._steps]
        own, wait = found[self._crew.member], dict[str, Any]()
        if self._wait is not None:
            waits, since_s = self._wait
            what = waits.what
            if what == "tensor" and waits.node >= self._nodes:
                what = "report" if waits.node == self._nodes else "state"
            wait = asdict(waits) | {"what": what, "seconds": round(self._now() - since_s, 1)}
        return {
            "member": self._crew.member,
            "names": [peer.name for peer in self._crew.peers],
            "step": self.step,
            "segment": self.segment,
            "patience_s": self._crew.patience_s,
            "utilisation": 0.0 if own is None else round(utilisation(own), 4),
            "wait": wait,
            "members": [None if times is None else asdict(times) for times in found],
        }


def utilisation(times: StepTimes) -> float:
    """The part of a step in which a member waits for nobody, from 0 to 1."""
    waits = sum(times.waited) + sum(times.blocked)
    return min(max(1 - waits / times.seconds, 0.0), 1.0) if times.seconds else 0.0
