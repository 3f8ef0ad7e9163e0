"""Runs the model in native PyTorch to find errors that a program cannot report.

Contract: a program clamps an out-of-range index, and keeps 31 bits of an integer; PyTorch raises an error and
keeps 63. `check_indices` runs the model without an update on records with the minimum or maximum of each
column of inputs and targets (of a tensor with more than `COLUMNS` columns, of all columns), and refuses what
PyTorch refuses, with the line. `first_loss` is the reference of a rehearsal. Attributes and tensors of the
model and PyTorch's random state are restored. Not guaranteed: finding an index computed from several columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.fx import GraphModule
from torch.utils._pytree import tree_leaves

from assay.program.execute import Records
from assay.program.lowering.determinism import Kept
from assay.program.lowering.tracing import failure_line
from assay.protocol.errors import Stop
from assay.training.datasets import Dataset, Layout

COLUMNS = 64
_CHUNK = 4096
_OUT_OF_RANGE = re.compile(r"out of (bounds|range)|[Cc]lass values must be|between 0 and 1")

NativeLoss = Callable[[Tensor], Tensor]
"""u8 [B, record size] → the loss of these records."""


@contextmanager
def natively(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Native PyTorch for a `with` block; restores the modules and the random state."""
    kept = Kept(modules)
    try:
        with torch.random.fork_rng(devices=[]), torch.compiler.set_stance("force_eager"):
            yield
    finally:
        kept.put_back()


def _columns(batch: Tensor, layout: Layout) -> Tensor:
    """f64 [records, n]: the numbers of inputs and targets; for a wide tensor its minimum and maximum."""
    found = []
    for x in tree_leaves(layout.split(batch)):
        if isinstance(x, Tensor) and x.numel() and x.shape[:1] == batch.shape[:1]:
            flat = x.detach().reshape(len(x), -1).double()
            wide = flat.shape[1] > COLUMNS
            found.append(torch.stack([flat.amin(1), flat.amax(1)], 1) if wide else flat)
    return torch.cat(found, 1) if found else torch.zeros(len(batch), 0, dtype=torch.float64)


def _rows(data: bytes | memoryview, size: int) -> Tensor:
    """u8 [n, size]."""
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).view(-1, size)


def extreme_records(dataset: Dataset) -> Tensor:
    """u8 [n, record size]: records with the minimum or maximum of a column."""
    size, records = dataset.layout.record_size, memoryview(dataset.records)
    best: dict[int, tuple[float, int]] = {}
    for first in range(0, len(records) // size, _CHUNK):
        some = _rows(records[first * size : (first + _CHUNK) * size], size)
        columns = _columns(some, dataset.layout)
        both = torch.cat([columns, -columns], 1)
        if both.shape[1]:
            numbers, places = both.max(0)
            for column, (number, place) in enumerate(zip(numbers.tolist(), places.tolist(), strict=True)):
                if column not in best or number > best[column][0]:
                    best[column] = number, first + place
    chosen = sorted({record for _, record in best.values()})
    return _rows(b"".join(records[i * size : (i + 1) * size] for i in chosen), size)


def draws(graph: GraphModule) -> bool:
    """True if a traced step draws random numbers, which differ from PyTorch's."""
    nodes = (node.target for node in graph.graph.nodes if node.op == "call_function")
    return any(torch.Tag.nondeterministic_seeded in getattr(target, "tags", ()) for target in nodes)


def first_loss(
    loss: NativeLoss, records: Records, batch: int, accumulate: int, modules: Sequence[nn.Module]
) -> Callable[[bytes], float]:
    """Function from a job's seed to the loss of shard 0's first step, of `accumulate` batches."""

    def of(seed: bytes) -> float:
        drawn = [records.index(seed, 0, 0, row) for row in range(batch * accumulate)]
        rows = records.gather(drawn, 0, records.record_size)
        with natively(modules):
            return sum(float(loss(part)) for part in rows.chunk(accumulate)) / accumulate

    return of


def check_indices(loss: NativeLoss, dataset: Dataset, batch: int, modules: Sequence[nn.Module]) -> None:
    """Raises Stop with the user's line if PyTorch finds an index or label out of range in some record.

    `batch`: number of records per call of `loss`.
    """
    rows = extreme_records(dataset)
    with natively(modules):
        for first in range(0, len(rows), batch):
            some = rows[first : first + batch]
            whole = some[torch.arange(batch) % len(some)]
            try:
                loss(whole)
            except (IndexError, RuntimeError) as error:
                said = (str(error).strip().splitlines() or [""])[0]
                if isinstance(error, IndexError) or _OUT_OF_RANGE.search(said):
                    raise Stop(
                        "some records of the dataset have a number that is out of range at"
                        f" {failure_line(error)}: {said.rstrip('.')}. A program would use the nearest number"
                        " in range without an error",
                        hint="correct these records, or make room for the number: a larger table, more"
                        " classes",
                        code="out-of-range",
                    ) from error
                return  # only PyTorch's own kernels lack what the trace had
