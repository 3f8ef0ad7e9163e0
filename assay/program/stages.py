"""Cuts a program into pipeline stages, each a program, for members who train one state together.

Contract: run in any order that gives each stage what it receives, the stages compute the same bits for every
slot as the whole program. Every node that depends on the state has one owner; others compute it again where
that is cheaper than to receive it. Every slot is owned by its writer. A stage's state is the slots that it
owns, then what it receives, then what it sends; so claims and games on a stage are ordinary ones.
Deterministic by program and number of stages. Not guaranteed: the best cut; members' speeds are not
considered.

Forward, backward and update of a parameter fall into one stage by reachability alone: a node of the forward
pass of layer i reads parameters up to i and affects all later ones, one of its backward pass reads them all
and affects those up to i. So the smaller of the two is i.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from math import inf

from assay.program.isa import MAX_SLOTS, Input, Node, Op, Program
from assay.program.pipeline import pipelined
from assay.program.validate import last_uses, measure, operations
from assay.protocol import trees
from assay.protocol.crew import MAX_MEMBERS
from assay.protocol.errors import Stop

SLACK = 1.2
"""Accepted weight of the heaviest stage, relative to the best cut, in return for less traffic."""
IDLE = 0.5
"""Accepted weight of any stage, relative to the same, if there is such a cut."""


class NoCut(Stop):
    """The program cannot be cut into so many stages; nothing was computed."""

    code = "no-cut"


@dataclass(frozen=True)
class Stage:
    """One member's part. `slots`, `received` and `sent` are numbered as in the whole program."""

    program: Program
    """Its nodes are in the order in which the member computes them (``program.pipeline``)."""
    slots: tuple[int, ...]
    """Slots that it owns: the first slots of `program`, in order."""
    received: tuple[int, ...]
    """Nodes of other members that it reads: the next slots of `program`."""
    sent: tuple[int, ...]
    """Own nodes that other members read, in the order of sending: the last slots of `program`."""

    @property
    def received_bytes(self) -> int:
        """Bytes received in a step."""
        first = len(self.slots)
        return sum(node.bytes for node in self.program.nodes[first : first + len(self.received)])


@dataclass(frozen=True)
class Plan:
    """A program cut into stages."""

    whole: Program
    owners: tuple[int, ...]
    """Owner of each node. A node that each reader computes itself (`sources_of`) has one too, in vain."""
    slot_owners: tuple[int, ...]
    stages: tuple[Stage, ...]

    def readers(self, member: int, node: int) -> tuple[int, ...]:
        """Members to whom `member` sends a node's output."""
        return tuple(i for i, stage in enumerate(self.stages) if i != member and node in stage.received)

    @cached_property
    def root(self) -> bytes:
        """The Merkle root over the stages' program roots, on which members agree."""
        return trees.root([stage.program.root for stage in self.stages])


def cut(program: Program, members: int) -> Plan:
    """Cuts a program into stages for this many members. Raises NoCut if there is no cut."""
    if not 2 <= members <= MAX_MEMBERS:
        raise NoCut(
            f"a crew has 2 to {MAX_MEMBERS} members, not {members}", hint="give --members another number"
        )
    graph = _Graph(program)
    ends = _ends(graph.weights(), graph.crossing(), members)
    stage_of = [next(i for i, end in enumerate(ends) if key < end) for key in range(len(graph.ranked))]
    slot_owners = [
        stage_of[graph.ranks[slot] if graph.local[ref] or ref < program.slots else graph.keys[ref]]
        for slot, ref in enumerate(program.outputs)
    ]
    owners = [*slot_owners, *(stage_of[key] for key in graph.keys[program.slots :])]
    slots = [[slot for slot, owner in enumerate(slot_owners) if owner == i] for i in range(members)]
    own = [_own(graph, owners, member) for member in range(members)]
    wanted = [[*(program.outputs[slot] for slot in slots[i]), *own[i]] for i in range(members)]
    received = [_received(graph, owners, member, wanted[member]) for member in range(members)]
    sent = frozenset[int]().union(*received)
    stages = [
        _stage(program, own[i], slots[i], received[i], frozenset(n for n in sent if owners[n] == i))
        for i in range(members)
    ]
    return Plan(program, tuple(owners), tuple(slot_owners), pipelined(stages))


class _Graph:
    """The properties of a program that decide its cut. A key is a parameter's place in the order of first
    reads; every slot and node has one."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.sources = sources_of(program)
        self.local = [index not in sources for index, sources in enumerate(self.sources)]
        self.ranked = _first_read(program)
        if not self.ranked:
            raise NoCut(
                "the program reads no parameters, so it has no layers", hint="train it on one machine"
            )
        rank = {slot: place for place, slot in enumerate(self.ranked)}
        reach = self._reach(
            {ref: place for slot, place in rank.items() if (ref := program.outputs[slot]) != slot}
        )
        last = len(self.ranked) - 1
        self.ranks = [
            rank.get(slot, last if reach[slot] < 0 else reach[slot]) for slot in range(program.slots)
        ]
        self.keys = self._keys(reach, last)

    def _reach(self, outputs: dict[int, int]) -> list[int]:
        """For each node, the greatest rank of a parameter whose next value depends on it; -1: none."""
        reach = [outputs.get(index, -1) for index in range(len(self.program.nodes))]
        for index in range(len(reach) - 1, -1, -1):
            for x in self.program.nodes[index].inputs:
                reach[x.ref] = max(reach[x.ref], reach[index])
        return reach

    def _keys(self, reach: Sequence[int], last: int) -> list[int]:
        read: list[int] = []
        for index, node in enumerate(self.program.nodes):
            own = self.ranks[index] if node.op is Op.STATE else -1
            read.append(max([own, *(read[x.ref] for x in node.inputs)]))
        pairs = zip(read, reach, strict=True)
        return [max(0, min(before, last if after < 0 else after)) for before, after in pairs]

    def weights(self) -> tuple[list[float], list[float]]:
        """Each key's share of the operations, and of the memory."""
        whole, alive = measure(self.program), _at_peak(self.program)
        work, memory = [0] * len(self.ranked), [0] * len(self.ranked)
        for index, node in enumerate(self.program.nodes):
            key = self.ranks[index] if node.op is Op.STATE else self.keys[index]
            work[key] += 0 if node.op is Op.STATE else operations(node)
            memory[key] += node.bytes if index in alive else 0
        held = sum(memory)
        return [n / whole.operations for n in work], [n / held for n in memory]

    def crossing(self) -> list[int]:
        """Bytes that cross each border between neighbouring keys, in a step."""
        first, last = list(self.keys), list(self.keys)
        first[: self.program.slots] = last[: self.program.slots] = self.ranks
        for index, node in enumerate(self.program.nodes):
            for source in frozenset().union(*(self.sources[x.ref] for x in node.inputs)):
                first[source] = min(first[source], self.keys[index])
                last[source] = max(last[source], self.keys[index])
        steps = [0] * (len(self.ranked) + 1)
        for index, (low, high) in enumerate(zip(first, last, strict=True)):
            if not self.local[index]:
                steps[low] += self.program.nodes[index].bytes
                steps[high] -= self.program.nodes[index].bytes
        return list(accumulate(steps))


def sources_of(program: Program, there: Container[int] = ()) -> list[frozenset[int]]:
    """For each node, the nodes that a reader needs from other members: that node, or, where each reader
    computes it itself, those that its inputs need. `there`: nodes that the reader has anyway.

    A reader computes what does not depend on the state, and quantised operands, which a product may read only
    in the program that quantises them. It also computes what is more bytes than it is made of, such as a
    repeated number, codes that are decoded, or a normalised tensor beside the tensor itself.
    """
    sources: list[frozenset[int]] = []
    free: list[bool] = []
    quantised: list[bool] = []
    for index, node in enumerate(program.nodes):
        below = frozenset[int]().union(*(sources[x.ref] for x in node.inputs if x.ref not in there))
        moved = [quantised[x.ref] for x in node.inputs if x.dtype is node.dtype]
        free.append(node.op is not Op.STATE and all(free[x.ref] for x in node.inputs))
        quantised.append(node.op is Op.QUANTISE or (node.op.moves and bool(moved) and all(moved)))
        cheap = node.op.elementwise or (node.op.moves and bool(node.inputs))
        grown = cheap and sum(program.nodes[source].bytes for source in below) < node.bytes
        sources.append(below if free[-1] or quantised[-1] or grown else frozenset({index}))
    return sources


def _first_read(program: Program) -> list[int]:
    """Parameters that are read, in the order of their first readers."""
    order: dict[int, None] = {}
    for node in program.nodes:
        order.update((x.ref, None) for x in node.inputs if x.ref < program.params)
    return list(order)


def _at_peak(program: Program) -> set[int]:
    """Nodes whose outputs are alive at peak memory."""
    last = last_uses(program)
    dying: list[list[int]] = [[] for _ in range(len(program.nodes) + 1)]
    for index, end in enumerate(last):
        dying[end].append(index)
    alive = peak = program.state_bytes
    at = program.slots
    for index, node in enumerate(program.nodes):
        alive += 0 if node.op is Op.STATE else node.bytes
        if alive > peak:
            peak, at = alive, index
        alive -= sum(program.nodes[i].bytes for i in dying[index] if program.nodes[i].op is not Op.STATE)
    return {i for i, end in enumerate(last) if i < program.slots or i <= at <= end}


def _ends(weights: tuple[list[float], list[float]], crossing: Sequence[int], parts: int) -> list[int]:
    """End of each part of the keys. The heaviest part is at most `SLACK` times the lightest possible, and
    every part at least `IDLE` times that where it can be; under these bounds the fewest bytes cross."""
    count = len(crossing) - 1
    if count < parts:
        raise NoCut(
            f"the program reads {count} parameters, too few for {parts} members",
            hint="give --members a smaller number",
        )
    work, memory = ([0.0, *accumulate(shares)] for shares in weights)

    def weight(start: int, end: int) -> float:
        return max(work[end] - work[start], memory[end] - memory[start])

    lightest, _ = _best(count, parts, lambda value, start, end: max(value, weight(start, end)))

    def fewest_bytes(least: float) -> tuple[float, list[int]]:
        def bytes_in(value: float, start: int, end: int) -> float:
            return value + crossing[end - 1] if least <= weight(start, end) <= SLACK * lightest else inf

        return _best(count, parts, bytes_in)

    crossed, ends = fewest_bytes(IDLE * lightest)
    return ends if crossed < inf else fewest_bytes(0.0)[1]


def _best(count: int, parts: int, extended: Callable[[float, int, int], float]) -> tuple[float, list[int]]:
    """The least value of `count` keys in `parts` parts, and the parts' ends. `extended`: value of parts with
    a given value when the keys from `start` to `end` are appended as one more part."""
    best: list[tuple[float, list[int]]] = [(0.0, []), *[(inf, [])] * count]
    for part in range(parts):
        following: list[tuple[float, list[int]]] = [(inf, [])] * (count + 1)
        for end in range(part + 1, count + 1):
            start = min(range(part, end), key=lambda at: extended(best[at][0], at, end))
            following[end] = (extended(best[start][0], start, end), [*best[start][1], end])
        best = following
    return best[count]


def _stage(
    program: Program,
    own: Sequence[int],
    slots: Sequence[int],
    received: frozenset[int],
    sent: frozenset[int],
) -> Stage:
    """Builds one member's stage. `own`: nodes that it has to compute. Raises NoCut for too many slots."""
    outputs = [program.outputs[slot] for slot in slots]
    kept = sorted(node for node in _needed(program, [*outputs, *own], received) if node >= program.slots)
    state = [*slots, *sorted(received), *sorted(sent)]
    if len(state) > MAX_SLOTS:
        raise NoCut(
            f"a member would hold, receive and send {len(state)} tensors, over {MAX_SLOTS}",
            hint="give --members a smaller number",
        )
    place = {node: at for at, node in enumerate([*slots, *sorted(received)])}
    place.update((node, len(state) + at) for at, node in enumerate(kept))
    heads = [
        Node(Op.STATE, program.nodes[node].dtype, program.nodes[node].shape, (), (at,))
        for at, node in enumerate(state)
    ]
    body = [
        replace(
            program.nodes[index],
            inputs=tuple(Input(place[x.ref], x.dtype, x.shape) for x in program.nodes[index].inputs),
        )
        for index in kept
    ]
    after = tuple(place[node] for node in (*outputs, *sorted(received), *sorted(sent)))
    params = sum(slot < program.params for slot in slots)
    reads = any(node.op.reads_records for node in body)
    made = Program((*heads, *body), after, params, program.record_size if reads else 0)
    return Stage(made, tuple(slots), tuple(sorted(received)), tuple(sorted(sent)))


def _needed(program: Program, wanted: Sequence[int], received: Container[int]) -> set[int]:
    """Nodes that are computed for others, from what is received."""
    found = {node for node in wanted if node not in received}
    pending = list(found)
    while pending:
        new = {x.ref for x in program.nodes[pending.pop()].inputs if x.ref not in received} - found
        found |= new
        pending.extend(new)
    return found


def _own(graph: _Graph, owners: Sequence[int], member: int) -> list[int]:
    """Nodes that a member has to compute."""
    nodes = range(graph.program.slots, len(owners))
    return [node for node in nodes if owners[node] == member and not graph.local[node]]


def _received(graph: _Graph, owners: Sequence[int], member: int, wanted: Sequence[int]) -> frozenset[int]:
    """Nodes of others that a member receives to compute its own."""
    nodes = graph.program.nodes
    theirs = {i for i, owner in enumerate(owners) if owner != member and not graph.local[i]}
    read = {x.ref for node in _needed(graph.program, wanted, theirs) for x in nodes[node].inputs}
    crossing = theirs & read.union(wanted)
    sources = sources_of(graph.program, crossing)
    return frozenset().union(*(sources[node] for node in crossing)) & theirs


def boundaries(plan: Plan) -> list[tuple[int, int]]:
    """Bytes that each member sends and receives in a step."""
    return [
        (
            sum(plan.whole.nodes[node].bytes * len(plan.readers(member, node)) for node in stage.sent),
            stage.received_bytes,
        )
        for member, stage in enumerate(plan.stages)
    ]
