"""Orders the nodes of stages so that members work at the same time, on different passes of a step (1F1B).

Contract: a stage computes the same values as before, in another order. All members' orders are parts of one
order in which a node follows its inputs, whoever computes those. So members who each keep to theirs, receive
a tensor when they first read it and send one as soon as it is computed cannot deadlock. Deterministic. Time
is counted in operations. Not guaranteed: that members are equally fast, or that sending takes no time.

A member computes the first of its nodes that has its inputs. It looks ahead of its oldest node that is not
computed by a window at most, since what it computes early stays in memory. The first member's window is the
widest and the last has none: the last gets every pass's gradient at once, the first waits for it longest.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from assay.program.isa import Input
from assay.program.validate import operations

if TYPE_CHECKING:
    from assay.program.stages import Stage

WIDTHS = 32
"""Windows that are tried, as parts of the first stage's nodes."""
SLACK = 1 / 64
"""Accepted loss of time, relative to no window, in return for memory."""


@dataclass(frozen=True)
class Schedule:
    """When members compute their nodes, if each computes one operation a unit of time."""

    orders: tuple[tuple[int, ...], ...]
    """By member, the nodes of its stage's program in order."""
    end: float
    busy: tuple[int, ...]
    """By member, its operations."""

    @property
    def utilisation(self) -> float:
        """Mean over members of the part of the time in which one computes."""
        return sum(self.busy) / (len(self.busy) * self.end)


@dataclass(frozen=True)
class Link:
    """A member's connection to the others, in operations that it computes meanwhile."""

    byte: float
    """For a byte to go out; one follows another."""
    delay: float
    """For a tensor to arrive after that."""


def pipelined(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """The stages, each with its nodes in the order in which its member shall compute them."""
    widest = schedule(stages, WIDTHS).end * (1 + SLACK)
    width = bisect_left(range(WIDTHS), True, key=lambda width: schedule(stages, width).end <= widest)
    orders = schedule(stages, width).orders
    return tuple(reordered(stage, order) for stage, order in zip(stages, orders, strict=True))


def schedule(stages: Sequence[Stage], width: int = 0, link: Link | None = None) -> Schedule:
    """Simulates a step with a window. 0: every member computes in the order of its program. `link`: of each
    member to the others; None: a tensor is there at once."""
    count, scale = len(stages), WIDTHS * (len(stages) - 1)
    members = [_Member(stage, width * (count - 1 - i)) for i, stage in enumerate(stages)]
    readers: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for number, stage in enumerate(stages):
        for at, node in enumerate(stage.received, len(stage.slots)):
            readers[node].append((number, at))
    now, events, busy_until = 0.0, list[tuple[float, int, int]](), [0.0] * count

    def send(sender: int, node: int, size: int) -> None:
        for reader, at in readers[node]:
            if link is None:
                members[reader].arrive(at)
                continue
            busy_until[sender] = max(busy_until[sender], now) + size * link.byte
            heappush(events, (busy_until[sender] + link.delay, count + reader, at))

    for number, member in enumerate(members):
        for at, node in member.sent_slots:
            send(number, node, member.program.nodes[at].bytes)
    while True:
        for number, member in enumerate(members):
            if (begun := member.begin(scale)) is not None:
                heappush(events, (now + operations(member.program.nodes[begun]), number, begun))
        if not events:
            break
        now, number, at = heappop(events)
        if number >= count:
            members[number - count].arrive(at)
            continue
        members[number].finish(at)
        if (sent := members[number].sent.get(at)) is not None:
            send(number, sent, members[number].program.nodes[at].bytes)
    orders = tuple(tuple(member.order) for member in members)
    busy = (sum(operations(x.program.nodes[at]) for at in x.order) for x in members)
    return Schedule(orders, now, tuple(busy))


class _Member:
    """A member in the simulation."""

    def __init__(self, stage: Stage, window: int) -> None:
        self.stage, self.program, self._window = stage, stage.program, window
        nodes, own = self.program.nodes, len(stage.slots)
        sent = zip(self.program.outputs[own + len(stage.received) :], stage.sent, strict=True)
        self.sent = dict(sent)
        self.sent_slots = [(at, node) for at, node in self.sent.items() if at < own]
        self.order: list[int] = []
        self._readers: dict[int, list[int]] = defaultdict(list)
        self._missing = [0] * len(nodes)
        for at, node in enumerate(nodes):
            for ref in {x.ref for x in node.inputs if x.ref >= own}:
                self._missing[at] += 1
                self._readers[ref].append(at)
        self._oldest = self.program.slots
        self._ready = [at for at in range(self._oldest, len(nodes)) if not self._missing[at]]
        self._done = [False] * len(nodes)
        self._busy = False

    def arrive(self, at: int) -> None:
        """Makes an input available to its readers."""
        for reader in self._readers[at]:
            self._missing[reader] -= 1
            if not self._missing[reader]:
                heappush(self._ready, reader)

    def begin(self, scale: int) -> int | None:
        """Begins a node, if there is one that it may compute now."""
        body = len(self.program.nodes) - self.program.slots
        if self._busy or not self._ready or (self._ready[0] - self._oldest) * scale > self._window * body:
            return None
        self._busy = True
        self.order.append(heappop(self._ready))
        return self.order[-1]

    def finish(self, at: int) -> None:
        """Ends the node that it began."""
        self._busy, self._done[at] = False, True
        while self._oldest < len(self._done) and self._done[self._oldest]:
            self._oldest += 1
        self.arrive(at)


def reordered(stage: Stage, order: Sequence[int]) -> Stage:
    """A stage with the nodes of its program in another order, and what it sends in the order of sending."""
    program, kept = stage.program, len(stage.slots) + len(stage.received)
    outputs, sent = list(program.outputs[:kept]), program.outputs[kept:]
    place = {at: at for at in range(program.slots)}
    place.update((at, program.slots + i) for i, at in enumerate(order))
    turn = sorted(range(len(sent)), key=lambda i: place[sent[i]])
    heads = [
        *program.nodes[:kept],
        *(replace(program.nodes[kept + i], attrs=(kept + to,)) for to, i in enumerate(turn)),
    ]
    body = [
        replace(node, inputs=tuple(Input(place[x.ref], x.dtype, x.shape) for x in node.inputs))
        for node in (program.nodes[at] for at in order)
    ]
    outputs = [*outputs, *(sent[i] for i in turn)]
    made = replace(program, nodes=(*heads, *body), outputs=tuple(place[ref] for ref in outputs))
    return replace(stage, program=made, sent=tuple(stage.sent[i] for i in turn))
