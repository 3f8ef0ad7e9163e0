"""A part of a dataset: the records that some steps read, for whoever computes these steps elsewhere.

Contract: an `Excerpt` stands for the whole dataset in a step that reads none but its records; any other
record is a KeyError.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor

from assay.program.execute import Records, StepContext
from assay.program.isa import Op, Program


class Excerpt(Records):
    """Some records of a dataset, in their places."""

    def __init__(self, count: int, size: int, records: dict[int, bytes]) -> None:
        """`count`: records of the whole dataset."""
        super().__init__(b"".join(records.values()), size)
        self._count = count
        self._places = {index: place for place, index in enumerate(records)}

    def __len__(self) -> int:
        return self._count

    def record(self, index: int) -> memoryview:
        """Bytes of one record. Raises KeyError for one that is not here."""
        return super().record(self._places[index])

    def gather(self, indices: Sequence[int], offset: int, length: int) -> Tensor:
        """See `Records.gather`. Raises KeyError for a record that is not here."""
        return super().gather([self._places[i] for i in indices], offset, length)


def chooses_records(program: Program) -> bool:
    """Whether a step computes which records it reads, so that this is known only when it runs."""
    return any(node.op is Op.RECORD for node in program.nodes)


def records_of(program: Program, contexts: Iterable[StepContext]) -> dict[int, bytes]:
    """Records that steps may read, by index: those of their rows, and all where a step chooses some."""
    found: dict[int, bytes] = {}
    for context in contexts:
        if (dataset := context.dataset) is None:
            continue
        for index in _indices(program, dataset, context):
            if index not in found:
                found[index] = bytes(dataset.record(index))
    return found


def _indices(program: Program, dataset: Records, context: StepContext) -> Iterable[int]:
    if chooses_records(program):
        return range(len(dataset))
    nodes = [node for node in program.nodes if node.op is Op.DATA]
    rows = {node.attrs[1] + row for node in nodes for row in range(node.shape[0])}
    return [dataset.index(context.seed, context.shard, context.step, row) for row in sorted(rows)]
