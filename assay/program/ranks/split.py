"""A program split over ranks: the part of it that one rank executes.

Contract: `split` gives every rank a list of nodes of the same length and kinds, with shapes of its own. A
node in `shared` is computed by all ranks together, and its output is whole on each: a contraction of the
dimension that is dealt out, which is of integers and so has the same bits however it is dealt (A50 of
docs/arithmetic.md), or a concatenation of the ranks' rows. All other nodes a rank computes by itself. The
batch's rows are dealt out where data enter, and the records that the first rank reads by number for all; what
follows from them stays dealt out as long as an operation's own rules let it, and is gathered where they do
not, so that every program can be split; `share` says how much of the work that saves. Outputs are whole on
every rank.

Source: docs/decisions/0041-one-step-on-several-processes.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from assay.program.isa import Input, Node, Op, Program, Shape
from assay.program.ranks.rows import Rows, dealt, local_view, reshaped, viewed
from assay.program.rules import contiguous
from assay.protocol.errors import Ask

LEAST_SHARE = 0.5
"""Of the work of a step that must be dealt out for several ranks to be of any use."""


class CannotSplit(Ask):
    """A program of which several ranks would all compute most."""

    code = "cannot-split"


@dataclass(frozen=True)
class RankProgram:
    """What one rank executes. `program` is valid but for its shared nodes, whose inputs are a part only."""

    program: Program
    shared: Mapping[int, Rows]
    """Nodes that all ranks compute together, and how what they contract or join is dealt out."""
    data: tuple[int, ...]
    """The data nodes, in the order of the whole program's."""
    data_rows: tuple[Rows | None, ...]
    """Rows that a rank reads of each."""
    share: float
    """Part of the multiplications of all products that is dealt out; 0 in a program without products."""

    def check(self, ranks: int) -> None:
        """Raises CannotSplit where several ranks would save little."""
        if self.share < LEAST_SHARE:
            rows = max((self.program.nodes[i].shape[0] for i in self.data), default=0)
            batch = f"its batch has {rows} rows" if rows else "it reads no data"
            raise CannotSplit(
                f"{self.share:.0%} of this program's work could be dealt out to {ranks} ranks ({batch}), so"
                " one computes it alone",
                hint="use fewer ranks, at most one for each row of the batch",
            )


Placed = Rows | None
"""How a node's output lies: dealt out, or whole on every rank."""


@dataclass(frozen=True)
class Rule:
    """How a node is computed: how its inputs have to lie, and how its output then does."""

    inputs: tuple[Placed, ...]
    output: Placed
    shared: Rows | None = None


def split(program: Program, ranks: int, rank: int, also: Mapping[int, Rows] | None = None) -> RankProgram:
    """The part of a validated program that `rank` of `ranks` executes. `also` deals out whole outputs of
    other nodes than data too."""
    return _Splitting(program, ranks, rank, dict(also or {})).made()


@dataclass
class _Splitting:
    program: Program
    ranks: int
    rank: int
    also: dict[int, Rows]
    nodes: list[Node] = field(default_factory=list)
    shared: dict[int, Rows] = field(default_factory=dict)
    placed: list[tuple[int, Placed]] = field(default_factory=list)
    """Of each node of the program: where its output is among `nodes`, and how it lies."""
    memo: dict[tuple[int, Placed], int] = field(default_factory=dict)
    work: int = 0
    dealt_work: int = 0

    def made(self) -> RankProgram:
        for index, node in enumerate(self.program.nodes):
            self._add(index, node)
        outputs = [self._lying(ref, None) for ref in self.program.outputs]
        data = [(*self.placed[i], n) for i, n in enumerate(self.program.nodes) if n.op is Op.DATA]
        kept = _needed(self.nodes, [*outputs, *range(self.program.slots), *(at for at, _, _ in data)])
        place = {old: new for new, old in enumerate(kept)}
        nodes = [
            replace(n, inputs=tuple(replace(r, ref=place[r.ref]) for r in n.inputs))
            for n in (self.nodes[old] for old in kept)
        ]
        return RankProgram(
            replace(self.program, nodes=tuple(nodes), outputs=tuple(place[ref] for ref in outputs)),
            {place[old]: rows for old, rows in self.shared.items() if old in place},
            tuple(place[at] for at, _, _ in data),
            tuple(rows for _, rows, _ in data),
            self.dealt_work / max(self.work, 1),
        )

    def _add(self, index: int, node: Node) -> None:
        if node.op is Op.DATA and node.shape[0] >= self.ranks:
            rows = dealt(0, node.shape[0], self.ranks)
            self.placed.append((self._append(self._data(node, rows)), rows))
            return
        rule = self._rule(node)
        inputs = [self._lying(ref.ref, want) for ref, want in zip(node.inputs, rule.inputs, strict=True)]
        at = self._append(self._local(node, rule, inputs))
        self._weigh(node, rule)
        if rule.shared is not None:
            self.shared[at] = rule.shared
        if node.op is Op.RECORD:
            self._read(index, node, at)
            return
        self.placed.append((at, rule.output))
        if index == self.program.slots - 1:  # the state's nodes stay the first ones
            for slot in range(self.program.slots):
                self._deal(slot)
        elif index >= self.program.slots:
            self._deal(index)

    def _read(self, index: int, node: Node, at: int) -> None:
        """The first rank reads records for all; each goes on with its rows."""
        self.shared[at] = Rows(0, (0, node.shape[0]))
        self.placed.append((at, None))
        if node.shape[0] >= self.ranks:
            rows = dealt(0, node.shape[0], self.ranks)
            self.placed[index] = (self._narrowed(index, rows), rows)

    def _deal(self, index: int) -> None:
        rows = self.also.get(index)
        if rows is not None and self.placed[index][1] is None:
            self.placed[index] = (self._narrowed(index, rows), rows)

    def _weigh(self, node: Node, rule: Rule) -> None:
        if node.op is Op.PRODUCT:
            operations = node.elements * node.inputs[0].shape[-1]
            self.work += operations
            self.dealt_work += operations * (rule.output is not None or rule.shared is not None)

    def _append(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _input(self, at: int) -> Input:
        node = self.nodes[at]
        return Input(at, node.dtype, node.shape)

    def _data(self, node: Node, rows: Rows) -> Node:
        offset, first = node.attrs
        return replace(
            node, shape=rows.local(node.shape, self.rank), attrs=(offset, first + rows.start(self.rank))
        )

    # How outputs are brought to lie

    def _lying(self, ref: int, want: Placed) -> int:
        """The node that has the program's node `ref` as wanted."""
        at, have = self.placed[ref]
        if have == want:
            return at
        if want is not None and have is None:
            return self._narrowed(ref, want)
        if (ref, want) not in self.memo:
            whole = self._gathered(ref)
            self.memo[ref, want] = whole if want is None else self._cut(whole, want)
        return self.memo[ref, want]

    def _gathered(self, ref: int) -> int:
        at, rows = self.placed[ref]
        if rows is None:
            return at
        if (ref, None) not in self.memo:
            node, dim = self.program.nodes[ref], rows.dim + 1
            apart = self._reshaped(at, rows.apart(self.nodes[at].shape, rows.count(self.rank)))
            shape = rows.apart(node.shape, rows.size)
            joined = self._append(Node(Op.CONCAT, node.dtype, shape, (self._input(apart),), (dim,)))
            self.shared[joined] = Rows(dim, rows.cuts)
            self.memo[ref, None] = self._reshaped(joined, node.shape)
        return self.memo[ref, None]

    def _reshaped(self, at: int, shape: Shape) -> int:
        return self._append(Node(Op.RESHAPE, self.nodes[at].dtype, shape, (self._input(at),)))

    def _cut(self, whole: int, rows: Rows) -> int:
        """A rank's rows of a node that is whole."""
        node = self.nodes[whole]
        strides = contiguous(rows.apart(node.shape, rows.size))
        attrs = (rows.start(self.rank) * strides[rows.dim + 1], *strides)
        shape = rows.apart(node.shape, rows.count(self.rank))
        cut = self._append(Node(Op.STRIDED, node.dtype, shape, (self._input(whole),), attrs))
        return self._reshaped(cut, rows.local(node.shape, self.rank))

    def _narrowed(self, ref: int, rows: Rows) -> int:
        """A rank's rows of an output that is whole: computed for these alone where that is as easy."""
        if (ref, rows) not in self.memo:
            self.memo[ref, rows] = self._narrow(ref, rows)
        return self.memo[ref, rows]

    def _narrow(self, ref: int, rows: Rows) -> int:
        node, shape = self.program.nodes[ref], rows.local(self.program.nodes[ref].shape, self.rank)
        if node.op is Op.CONST or (node.op is Op.IOTA and node.attrs[0] != rows.dim):
            return self._append(replace(node, shape=shape))
        if all(self.placed[i.ref][1] is None for i in node.inputs):
            if node.op.elementwise:
                inputs = [self._operand(i, node, rows) for i in node.inputs]
                return self._append(self._again(node, shape, inputs))
            if node.op is Op.STRIDED and rows.outer == 1:
                offset = node.attrs[0] + rows.start(self.rank) * node.attrs[1 + rows.dim]
                inputs = [self._lying(node.inputs[0].ref, None)]
                return self._append(self._again(node, shape, inputs, (offset, *node.attrs[1:])))
            if node.op is Op.RESHAPE and (before := reshaped(rows, node.shape, node.inputs[0].shape)):
                inputs = [self._narrowed(node.inputs[0].ref, before)]
                return self._append(self._again(node, shape, inputs))
        return self._cut(self.placed[ref][0], rows)

    def _operand(self, ref: Input, node: Node, rows: Rows) -> int:
        """A whole operand of an element-wise node, of which these rows are computed."""
        dim = rows.dim - len(node.shape) + len(ref.shape)
        if dim < 0 or ref.shape[dim] == 1:
            return self._lying(ref.ref, None)
        return self._narrowed(ref.ref, rows.at(dim))

    def _again(self, node: Node, shape: Shape, at: list[int], attrs: tuple[int, ...] = ()) -> Node:
        return replace(node, shape=shape, inputs=tuple(self._input(i) for i in at), attrs=attrs or node.attrs)

    def _local(self, node: Node, rule: Rule, inputs: list[int]) -> Node:
        """The node as a rank computes it; its shape is the whole one where it is shared."""
        shape = node.shape if rule.output is None else rule.output.local(node.shape, self.rank)
        attrs = node.attrs
        if node.op is Op.STRIDED and rule.inputs[0] is not None:
            attrs = local_view(rule.inputs[0], node.inputs[0].shape, attrs, self.rank)
        return self._again(node, shape, inputs, attrs)

    # Rules

    def _rule(self, node: Node) -> Rule:
        have = [self.placed[ref.ref][1] for ref in node.inputs]
        whole = Rule((None,) * len(have), None)
        if all(rows is None for rows in have):
            return whole
        if node.op.elementwise:
            return _elementwise(node, have)
        if node.op is Op.RECORD:
            return whole
        return _RULES[node.op](node, have) or whole


def _elementwise(node: Node, have: list[Placed]) -> Rule:
    """By rows of the largest operand that is dealt out."""
    _, chosen = max((node.inputs[i].elements, -i) for i, rows in enumerate(have) if rows is not None)
    ref, rows = node.inputs[-chosen], have[-chosen]
    assert rows is not None
    out = rows.at(rows.dim + len(node.shape) - len(ref.shape))
    wanted: list[Placed] = []
    for i in node.inputs:
        dim = out.dim - len(node.shape) + len(i.shape)
        wanted.append(out.at(dim) if dim >= 0 and i.shape[dim] > 1 else None)
    return Rule(tuple(wanted), out)


def _reduction(node: Node, have: list[Placed]) -> Rule | None:
    rows = have[0]
    assert rows is not None
    if rows.dim < len(node.shape):
        return Rule((rows,), rows)
    return None if node.op is Op.ARGMAX else Rule((rows,), None, rows)


def _quantise(node: Node, have: list[Placed]) -> Rule | None:
    rows = have[0] or have[1]
    assert rows is not None
    return Rule((rows, rows if rows.dim < len(node.shape) - 1 else None), rows)


def _product(node: Node, have: list[Placed]) -> Rule | None:
    last = len(node.shape) - 1
    a, b = have[0] or have[1], have[2] or have[3]
    for rows in (a, b):
        if rows is not None and rows.dim < last - 1:
            return Rule((rows,) * 4, rows)
    if a is not None and b is not None and a != b:  # the smaller one is gathered
        a, b = (a, None) if node.inputs[0].elements >= node.inputs[2].elements else (None, b)
    for rows in (a, b):
        if rows is not None and rows.dim == last:
            return Rule((rows, None, rows, None), None, rows)
    if a is not None and b is not None:  # rows of both, alike
        a, b = (a, None) if node.inputs[0].elements >= node.inputs[2].elements else (None, b)
    if a is not None:
        return Rule((a, a, None, None), a)
    assert b is not None
    return Rule((None, None, b, b), b.at(last))


def _scatter_sum(node: Node, have: list[Placed]) -> Rule | None:
    x, index = have
    apart = len(node.inputs[1].shape) == 2  # each row has indices of its own
    rows = x or (index if apart or index is None else index.at(1))
    assert rows is not None
    if rows.dim == 0:
        return Rule((rows, rows if apart else None), rows)
    return Rule((rows, rows if apart else rows.at(0)), None, rows)


def _strided(node: Node, have: list[Placed]) -> Rule | None:
    rows = have[0]
    assert rows is not None
    after = viewed(rows, node.inputs[0].shape, node.shape, node.attrs)
    return None if after is None else Rule((rows,), after)


def _reshape(node: Node, have: list[Placed]) -> Rule | None:
    rows = have[0]
    assert rows is not None
    after = reshaped(rows, node.inputs[0].shape, node.shape)
    return None if after is None else Rule((rows,), after)


def _concat(node: Node, have: list[Placed]) -> Rule | None:
    rows = next(r for r in have if r is not None)
    if rows.dim != node.attrs[0]:
        return Rule((rows,) * len(have), rows)
    along = [r for r in have if r is not None and (r.dim, r.cuts) == (rows.dim, rows.cuts)]
    if len(along) < len(have):
        return None
    return Rule(tuple(along), replace(rows, outer=sum(r.outer for r in along)))


def _take(node: Node, have: list[Placed]) -> Rule | None:
    table, index = have
    if index is not None:
        return Rule((None, index), index)
    assert table is not None
    if table.dim == 0:
        return None
    return Rule((table, None), table.at(table.dim - 1 + len(node.inputs[1].shape)))


def _pick(node: Node, have: list[Placed]) -> Rule | None:
    rows = have[0] or have[1]
    assert rows is not None
    return Rule((rows, rows), rows) if rows.dim < len(node.shape) else None


_RULES = {
    Op.SUM: _reduction,
    Op.AMAX: _reduction,
    Op.EXPONENT: _reduction,
    Op.ARGMAX: _reduction,
    Op.QUANTISE: _quantise,
    Op.PRODUCT: _product,
    Op.SCATTER_SUM: _scatter_sum,
    Op.STRIDED: _strided,
    Op.RESHAPE: _reshape,
    Op.CONCAT: _concat,
    Op.TAKE: _take,
    Op.PICK: _pick,
}


def _needed(nodes: list[Node], roots: list[int]) -> list[int]:
    """Nodes that these follow from, in order."""
    needed = set(roots)
    for index in reversed(range(len(nodes))):
        if index in needed:
            needed |= {ref.ref for ref in nodes[index].inputs}
    return sorted(needed)
