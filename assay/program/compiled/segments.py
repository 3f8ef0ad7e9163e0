"""Cuts a large program into segments so that equal ones, such as a deep model's layers, are compiled once.

Contract: `plan` lists distinct `Part`s and the segments that run them in order. Together they compute every
node that is neither a source nor a move exactly once, in program order, so that memory is freed as early as
in the whole program. Constants, comparisons of constants (a mask) and moves (strided, reshape) are repeated
in each part that reads them, except slices (`slice_of`). Not guaranteed: the fewest parts, or any part that
occurs twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from assay.program.compiled.softmaxes import scores_of
from assay.program.isa import Family, Input, Node, Op, Program, Shape

WHOLE_NODES = 2_500
"""Maximum nodes of a program that is compiled whole: nothing is fused across segments."""
_GIVEN = (Op.STATE, Op.DATA, Op.STEP, Op.SHARD)
_CONSTANT = (Op.CONST, Op.IOTA)
_MOVES = (Op.STRIDED, Op.RESHAPE)
_WINDOW = 12
"""Number of equal consecutive nodes that suggests a repetition."""
_CANDIDATES = 24
_MOVED_ELEMENTS = 1 << 16
"""Maximum elements of a tensor that is moved, and so copied, to slice it."""
_MERGED_NODES = 400
_LEAST_SAVED = 48
"""Minimum number of nodes that a repetition must save."""


@dataclass(frozen=True)
class Part(Program):
    """A sequence of nodes that occurs in one or more places. Its state is its inputs, its outputs what others
    read."""

    reads: int = 0
    softmaxes: frozenset[int] = frozenset()
    """Inputs that are a softmax up to the diagonal (``program.compiled.softmaxes``)."""

    @property
    def slots(self) -> int:
        return self.reads


class Given(NamedTuple):
    """An input of a segment: a node's output, or `length` adjacent elements of it from `start`.

    Only a slice's node may be a move.
    """

    ref: int
    start: int = 0
    length: int = 0
    """0: the whole tensor in its shape."""


def slice_of(program: Program, ref: int) -> Given | None:
    """The adjacent elements that a strided node reads, if fewer than all.

    Passed to a part as they lie, so that chunks of a long tensor share one part.
    """
    node = program.nodes[ref]
    if node.op is not Op.STRIDED or not node.shape or min(node.attrs[1:]) < 0:
        return None
    steps = [(s, n) for s, n in zip(node.attrs[1:], node.shape, strict=True) if s and n > 1]
    length = 1 + sum(s * (n - 1) for s, n in steps)
    widest = max((s for s, _ in steps), default=1)
    if length % widest or length == node.inputs[0].elements:
        return None
    below = node.inputs[0].ref
    while program.nodes[below].op is Op.RESHAPE:
        below = program.nodes[below].inputs[0].ref
    moved = program.nodes[below].op in _MOVES
    if moved and program.nodes[below].elements > _MOVED_ELEMENTS:
        return None
    return Given(below, node.attrs[0], length)


@dataclass(frozen=True)
class Segment:
    """One occurrence of a part."""

    part: int
    inputs: tuple[Given, ...]
    outputs: tuple[int, ...]
    """Nodes of the program that it computes."""
    dead: tuple[int, ...]
    """Nodes of the program that nothing reads after it."""


@dataclass(frozen=True)
class Plan:
    """Segments of a program, and their parts."""

    parts: tuple[Part, ...]
    segments: tuple[Segment, ...]

    @property
    def nodes(self) -> int:
        """Number of nodes to compile."""
        return sum(len(part.nodes) for part in self.parts)


def plan(program: Program, whole_nodes: int = WHOLE_NODES) -> Plan | None:
    """Plans the segments; None for a program that is compiled whole."""
    if len(program.nodes) <= whole_nodes or any(node.op is Op.RECORD for node in program.nodes):
        return None
    computed = [
        i for i, node in enumerate(program.nodes) if node.op not in _GIVEN and _is_base(program, node)
    ]
    cuts = sorted(_Cuts(program, computed).found())
    pieces = [computed[a:b] for a, b in zip(cuts, [*cuts[1:], len(computed)], strict=True)]
    return _joined(program, pieces)


class _Cuts:
    """Finds cuts between the computed nodes, as indices into them."""

    def __init__(self, program: Program, computed: Sequence[int]) -> None:
        self._program = program
        kinds: dict[object, int] = {}
        self._kinds = [kinds.setdefault(_kind(program.nodes[i]), len(kinds)) for i in computed]
        self._alive = _bytes_between(program, computed)

    def found(self) -> set[int]:
        cuts = {0}
        pending = [(0, len(self._kinds))]
        while pending:
            begin, end = pending.pop()
            best = self._repetition(begin, end)
            if best is None:
                cuts.add(begin)
                continue
            first, period, copies = best
            last = first + copies * period
            cuts.update(range(first, last, period))
            cuts.update(x for x in (begin, last) if x < len(self._kinds))
            pending += [(a, b) for a, b in ((begin, first), (last, end)) if b - a > _WINDOW]
        return cuts

    def _repetition(self, begin: int, end: int) -> tuple[int, int, int] | None:
        """(first, period, copies) of the repetition that saves most nodes."""
        best, most = None, _LEAST_SAVED
        for period in self._periods(begin, end):
            for first, length in self._runs(begin, end, period):
                copies = (length + period) // period
                if copies >= 2 and (copies - 1) * period > most:
                    best, most = (first, length, period, copies), (copies - 1) * period
        if best is None:
            return None
        first, length, period, copies = best
        spare = (length + period) % period
        shift = min(range(spare + 1), key=lambda s: self._alive[first + s + period])
        return first + shift, period, copies

    def _periods(self, begin: int, end: int) -> list[int]:
        """The most frequent distances between equal windows."""
        seen: dict[tuple[int, ...], int] = {}
        gaps: Counter[int] = Counter()
        for i in range(begin, end - _WINDOW + 1):
            window = tuple(self._kinds[i : i + _WINDOW])
            if (before := seen.get(window)) is not None:
                gaps[i - before] += 1
            seen[window] = i
        return [gap for gap, _ in gaps.most_common(_CANDIDATES)]

    def _runs(self, begin: int, end: int, period: int) -> Iterator[tuple[int, int]]:
        """(first, length) of runs in which node i equals node i + period."""
        first = begin
        for i in range(begin, end - period + 1):
            if i == end - period or self._kinds[i] != self._kinds[i + period]:
                if i > first:
                    yield first, i - first
                first = i + 1


def _kind(node: Node) -> object:
    return node.op, node.dtype, node.shape, node.attrs, tuple((x.dtype, x.shape) for x in node.inputs)


def bases(program: Program, ref: int) -> Iterator[int]:
    """Nodes below moves; none for a constant and a comparison of constants."""
    ref = _below_moves(program, ref)
    if _is_base(program, program.nodes[ref]):
        yield ref


def _below_moves(program: Program, ref: int) -> int:
    while program.nodes[ref].op in _MOVES:
        ref = program.nodes[ref].inputs[0].ref
    return ref


def _is_base(program: Program, node: Node) -> bool:
    if node.op.row.family is Family.COMPARISON:
        below = (program.nodes[_below_moves(program, x.ref)] for x in node.inputs)
        return any(x.op not in _CONSTANT for x in below)
    return node.op not in (*_CONSTANT, *_MOVES)


def _bytes_between(program: Program, computed: Sequence[int]) -> list[int]:
    """Bytes of computed nodes that are alive before the i-th of them."""
    place = {index: i for i, index in enumerate(computed)}
    last = dict.fromkeys(computed, 0)
    for i, index in enumerate(computed):
        for x in program.nodes[index].inputs:
            last.update((base, i) for base in bases(program, x.ref) if base in place)
    change = [0] * (len(computed) + 2)
    for i, index in enumerate(computed):
        change[i + 1] += program.nodes[index].bytes
        change[max(last[index], i) + 1] -= program.nodes[index].bytes
    alive, total = [], 0
    for step in change:
        total += step
        alive.append(total)
    return alive


class _Body:
    """Nodes of one piece, with inputs numbered in order of first use."""

    def __init__(self, program: Program, softmaxes: Collection[int], piece: Sequence[int]) -> None:
        self._program = program
        self._softmaxes = softmaxes
        self.piece = piece
        self._own = set(piece)
        self.inputs: list[Given] = []
        self._read: dict[Given, int] = {}
        self._made: list[tuple[Node, tuple[int, ...]]] = []
        """Nodes with their inputs: >= 0 is one of these nodes, < 0 the input -1 - i."""
        self._at: dict[int, int] = {}
        for index in piece:
            self._place(index)
        self.place = {index: self._at[index] for index in piece}

    def joined(self, other: _Body) -> _Body:
        return _Body(self._program, self._softmaxes, [*self.piece, *other.piece])

    def _given(self, given: Given) -> int:
        if given not in self._read:
            self.inputs.append(given)
            self._read[given] = -len(self.inputs)
        return self._read[given]

    def _place(self, ref: int) -> int:
        if ref in self._at:
            return self._at[ref]
        node = self._program.nodes[ref]
        base = next(bases(self._program, ref), None)
        outside = base is not None and base not in self._own
        if outside and node.op not in _MOVES:
            at = self._given(Given(ref))
        elif outside and (part := slice_of(self._program, ref)) is not None:
            near = Node(node.op, node.dtype, node.shape, node.inputs, (0, *node.attrs[1:]))
            at = self._make(near, (self._given(part),))
        else:
            at = self._make(node, tuple(self._place(x.ref) for x in node.inputs))
        self._at[ref] = at
        return at

    def _make(self, node: Node, read: tuple[int, ...]) -> int:
        self._made.append((node, read))
        return len(self._made) - 1

    def _shape(self, given: Given) -> Shape:
        return (given.length,) if given.length else self._program.nodes[given.ref].shape

    def _softmax_inputs(self) -> frozenset[int]:
        return frozenset(
            slot for slot, x in enumerate(self.inputs) if x == Given(x.ref) and x.ref in self._softmaxes
        )

    @property
    def key(self) -> object:
        """Equal for pieces that can share a part, whatever their outputs."""
        given = tuple((self._program.nodes[x.ref].dtype, self._shape(x)) for x in self.inputs)
        return (
            given,
            self._softmax_inputs(),
            tuple((node.op, node.dtype, node.shape, node.attrs, at) for node, at in self._made),
        )

    def part(self, outputs: Sequence[int]) -> Part:
        """These nodes as a program of their own with these outputs."""
        reads = len(self.inputs)
        nodes = [
            Node(Op.STATE, self._program.nodes[x.ref].dtype, self._shape(x), (), (slot,))
            for slot, x in enumerate(self.inputs)
        ]
        for node, read in self._made:
            at = [-1 - x if x < 0 else reads + x for x in read]
            inputs = tuple(Input(place, nodes[place].dtype, nodes[place].shape) for place in at)
            nodes.append(Node(node.op, node.dtype, node.shape, inputs, node.attrs))
        return Part(tuple(nodes), tuple(reads + x for x in outputs), 0, 0, reads, self._softmax_inputs())


def _merged(found: Sequence[_Body]) -> list[_Body]:
    """Merges small adjacent pieces that occur once, so that they can be fused."""
    times = Counter(body.key for body in found)
    merged: list[_Body] = []
    single = False
    for body in found:
        alone = times[body.key] == 1
        if alone and single and len(merged[-1].piece) + len(body.piece) <= _MERGED_NODES:
            merged[-1] = merged[-1].joined(body)
        else:
            merged.append(body)
        single = alone
    return merged


def _joined(program: Program, pieces: Sequence[Sequence[int]]) -> Plan:
    softmaxes = {ref for ref in range(len(program.nodes)) if scores_of(program, ref) is not None}
    bodies = _merged([_Body(program, softmaxes, piece) for piece in pieces])
    wanted = {base for ref in program.outputs for base in bases(program, ref)}
    wanted.update(base for body in bodies for x in body.inputs for base in bases(program, x.ref))
    numbers: dict[object, int] = {}
    part_of = [numbers.setdefault(body.key, len(numbers)) for body in bodies]
    given: list[set[int]] = [set() for _ in numbers]
    for body, part in zip(bodies, part_of, strict=True):
        given[part] |= {at for ref, at in body.place.items() if ref in wanted}
    first: dict[int, _Body] = {}
    for body, part in zip(bodies, part_of, strict=True):
        first.setdefault(part, body)
    outputs = [sorted(places) for places in given]
    segments = []
    for body, part in zip(bodies, part_of, strict=True):
        at = {place: ref for ref, place in body.place.items()}
        made = tuple(at[place] for place in outputs[part])
        segments.append(Segment(part, tuple(body.inputs), made, ()))
    return Plan(tuple(first[i].part(outputs[i]) for i in range(len(first))), _with_deaths(program, segments))


def _with_deaths(program: Program, segments: Sequence[Segment]) -> tuple[Segment, ...]:
    kept = {base for ref in program.outputs for base in bases(program, ref)}
    last: dict[int, int] = {}
    for number, segment in enumerate(segments):
        read = (base for given in segment.inputs for base in bases(program, given.ref))
        last.update(dict.fromkeys((*segment.outputs, *read), number))
    dying: dict[int, list[int]] = {}
    for ref, number in last.items():
        if ref not in kept:
            dying.setdefault(number, []).append(ref)
    return tuple(
        Segment(s.part, s.inputs, s.outputs, tuple(dying.get(number, ())))
        for number, s in enumerate(segments)
    )
