"""Executing a step with other ranks: the bits of ``program.execute``, each rank computing its rows.

Contract: a `RankExecutor` is the first rank's `Executor`. A plain step is computed by all ranks of its group,
and its result is whole on each; observing, patching or stopping early is done by the first rank alone. The
others `serve`: they hold no files and no keys, and get the program, the state where it is not what they have,
and each step's data from the first. A step that another rank leaves raises RankLost; after one that ended in
any error, its group is of no more use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from assay.numerics import FAST, ranks
from assay.program.execute import (
    TORCH_DTYPES,
    Executor,
    StepContext,
    guarded,
    own,
    prepared,
    read_data,
    read_records,
)
from assay.program.isa import Node, Op, Program, decode, encode
from assay.program.ranks.group import Group, RankLost
from assay.program.ranks.rows import Rows
from assay.program.ranks.split import RankProgram, split
from assay.program.validate import last_uses

_PROGRAM, _STATE, _STEP, _END = 1, 2, 3, 4
"""Orders; an order is i64 [3]: which, the bytes of a program or a step's counter, and the shard."""

Compute = Callable[[Sequence[Tensor | None]], Tensor]


class RankStep:
    """What one rank does in a step."""

    def __init__(self, program: Program, part: RankProgram, group: Group) -> None:
        """`part` is this rank's of `program`. Nothing is exchanged yet."""
        self.whole, self.part, self._group = program, part, group
        self.data = [node for node in program.nodes if node.op is Op.DATA]
        nodes = part.program.nodes
        dying: list[list[int]] = [[] for _ in range(len(nodes) + 1)]
        for index, last in enumerate(last_uses(part.program)):
            dying[last].append(index)
        with torch.inference_mode():
            self._plan = [
                (index, self._compute(index, node), tuple(dying[index]))
                for index, node in enumerate(nodes)
                if node.op not in (Op.STATE, Op.DATA)
            ]

    def _compute(self, index: int, node: Node) -> Callable[[StepContext, list[Tensor]], Tensor]:
        rows = self.part.shared.get(index)
        if rows is None:
            return prepared(node, FAST, torch.device("cpu"))
        refs = [ref.ref for ref in node.inputs]
        if node.op is Op.RECORD:
            return lambda context, tensors: _read(node, tensors[refs[0]], context, self._group)
        together = _together(node, rows, self._group)
        return lambda context, tensors: together(*(tensors[i] for i in refs))

    def run(self, state: Sequence[Tensor], data: Sequence[Tensor], context: StepContext) -> list[Tensor]:
        """The next state, whole. `data` are the whole outputs of the data nodes; the first rank's context has
        the dataset."""
        tensors: list[Tensor | None] = [None] * len(self.part.program.nodes)
        tensors[: len(state)] = state
        rank = self._group.rank
        for at, rows, x in zip(self.part.data, self.part.data_rows, data, strict=True):
            tensors[at] = x if rows is None else x[rows.start(rank) : rows.start(rank) + rows.count(rank)]
        for index, compute, dead in self._plan:
            tensors[index] = compute(context, tensors)  # type: ignore[arg-type]
            for gone in dead:
                tensors[gone] = None
        return [own(tensors[ref]) for ref in self.part.program.outputs]  # type: ignore[arg-type]


def _read(node: Node, numbers: Tensor, context: StepContext, group: Group) -> Tensor:
    """The records of these numbers, which the first rank reads for all."""
    if group.rank:
        return group.hear(node.shape, TORCH_DTYPES[node.dtype])
    found = read_records(node, numbers, context)
    group.tell(found)
    return found


def _together(node: Node, rows: Rows, group: Group) -> Callable[..., Tensor]:
    """What computes a shared node from this rank's part of its inputs."""
    length = rows.cuts[-1]
    if node.op is Op.CONCAT:
        sizes = [rows.count(rank) for rank in range(group.size)]
        return lambda x: group.joined(x, rows.dim, sizes)
    if node.op is Op.SUM:
        return partial(ranks.sum, group, length=length)
    if node.op is Op.SCATTER_SUM:
        return partial(ranks.scatter_sum, group, V=node.shape[-1], length=length)
    alone: dict[Op, Callable[..., Tensor]] = {
        Op.EXPONENT: ranks.exponent,
        Op.AMAX: ranks.amax,
        Op.PRODUCT: ranks.product,
    }
    return partial(alone[node.op], group)


class RankExecutor(Executor):
    """The first rank's executor, of `size`; `join` gives the group each time that it is needed."""

    def __init__(self, program: Program, size: int, join: Callable[[], Group]) -> None:
        """Raises CannotSplit where several ranks would be of no use."""
        super().__init__(program, "cpu", FAST)
        self._join = join
        split(program, size, 0).check(size)
        self._group: Group | None = None
        self._mine: RankStep | None = None
        self._latest: list[Tensor] = []
        """The state that all ranks have."""

    def plain(self, state: Sequence[Tensor], context: StepContext) -> list[Tensor]:
        """See `Executor.plain`."""
        self.check_state(state)
        with guarded(self.program, self.device), torch.inference_mode():
            data = [read_data(n, self.device, context) for n in self.program.nodes if n.op is Op.DATA]
            group = self._join()
            try:
                return self._step(group, state, data, context)
            except BaseException:  # the others are at another place now
                group.broken = True
                raise

    def _step(
        self, group: Group, state: Sequence[Tensor], data: Sequence[Tensor], context: StepContext
    ) -> list[Tensor]:
        if group is not self._group or group.user is not self:
            self._begin(group)
        assert self._mine is not None
        if len(state) != len(self._latest) or any(
            a is not b for a, b in zip(state, self._latest, strict=True)
        ):
            _order(group, _STATE, 0)
            for x in state:
                group.tell(x)
        self._latest = []
        _order(group, _STEP, context.step, context.shard)
        for x in data:
            group.tell(x)
        after = self._mine.run(state, data, context)
        self._latest = list(after)
        return after

    def _begin(self, group: Group) -> None:
        """Have the group's ranks prepare this program."""
        self._mine, self._latest = RankStep(self.program, split(self.program, group.size, 0), group), []
        encoded = torch.frombuffer(bytearray(encode(self.program)), dtype=torch.uint8)
        _order(group, _PROGRAM, len(encoded))
        group.tell(encoded)
        self._group, group.user = group, self


def _order(group: Group, what: int, number: int, shard: int = 0) -> None:
    group.tell(torch.tensor([what, number, shard], dtype=torch.int64))


def end(group: Group) -> None:
    """Let the other ranks go. Raises RankLost where they have gone already."""
    _order(group, _END, 0)


def serve(group: Group) -> None:
    """Compute a rank's part of whatever the first one orders, until it says so or ends. Raises RankLost from
    within a step."""
    mine: RankStep | None = None
    state: list[Tensor] = []
    with torch.inference_mode():
        while True:
            try:
                what, number, shard = group.hear((3,), torch.int64).tolist()
            except RankLost:
                return
            if what == _END:
                return
            if what == _PROGRAM:
                program = decode(bytes(group.hear((number,), torch.uint8).numpy()))
                mine, state = RankStep(program, split(program, group.size, group.rank), group), []
                continue
            assert mine is not None
            nodes = mine.whole.state if what == _STATE else mine.data
            told = [group.hear(node.shape, TORCH_DTYPES[node.dtype]) for node in nodes]
            context = StepContext(None, b"", shard, number)
            state = told if what == _STATE else mine.run(state, told, context)
