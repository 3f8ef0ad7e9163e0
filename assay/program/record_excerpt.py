"""Extracts the dataset records that some steps read, so that another process can compute them.

Contract: an `Excerpt` replaces the dataset in steps that read only its records; any other record is a
KeyError. `Steps` can be pickled, and hold only records that their steps may read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from assay.program.execute import Records, StepContext
from assay.program.isa import Op, Program


class Excerpt(Records):
    """Some records of a dataset, under their indices."""

    def __init__(self, count: int, size: int, records: dict[int, bytes]) -> None:
        """`count`: number of records in the whole dataset."""
        super().__init__(b"".join(records.values()), size)
        self._count = count
        self._places = {index: place for place, index in enumerate(records)}

    def __len__(self) -> int:
        return self._count

    def record(self, index: int) -> memoryview:
        """Bytes of one record. Raises KeyError if it is not included."""
        return super().record(self._places[index])

    def gather(self, indices: Sequence[int], offset: int, length: int) -> Tensor:
        """See `Records.gather`. Raises KeyError for a record that is not included."""
        return super().gather([self._places[i] for i in indices], offset, length)


def chooses_records(program: Program) -> bool:
    """True if a step computes which records it reads, so that they are only known when it runs."""
    return any(node.op is Op.RECORD for node in program.nodes)


@dataclass(frozen=True)
class Steps:
    """A number of steps from `first`. `records`: those they may read, by index, of `record_count`."""

    seed: bytes
    shard: int
    first: int
    number: int
    record_count: int
    records: dict[int, bytes]

    def context(self, program: Program) -> StepContext:
        """Context of the first step."""
        excerpt = Excerpt(self.record_count, program.record_size, self.records) if self.records else None
        return StepContext(excerpt, self.seed, self.shard, self.first)


def steps_of(program: Program, context: StepContext, number: int) -> Steps:
    """The next `number` steps of a program from this context."""
    dataset, place = context.dataset, (context.seed, context.shard, context.step)
    if dataset is None:
        return Steps(*place, number, 0, {})
    read = {
        index
        for step in range(number)
        for index in _indices(program, dataset, replace(context, step=context.step + step))
    }
    return Steps(*place, number, len(dataset), {index: bytes(dataset.record(index)) for index in read})


def _indices(program: Program, dataset: Records, context: StepContext) -> Iterable[int]:
    """Indices of records that a step may read: those of its rows, or all if it computes them."""
    if chooses_records(program):
        return range(len(dataset))
    nodes = [node for node in program.nodes if node.op is Op.DATA]
    rows = {node.attrs[1] + row for node in nodes for row in range(node.shape[0])}
    return [dataset.index(context.seed, context.shard, context.step, row) for row in sorted(rows)]
