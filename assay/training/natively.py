"""The model as PyTorch itself computes it, on the job's own records: what a program cannot refuse as it runs.

Contract: a program clamps an index that is out of range, and keeps 31 bits of a whole number. PyTorch raises
an error at the one and has 63 bits for the other. `check_indices` runs the model, without an update, on the
records in which some column of the inputs or the targets is the least or the largest (of a tensor of more
than `COLUMNS` columns the least and the largest number of all), and refuses what PyTorch refuses, with the
line. `first_loss` is what a rehearsal compares its own with. Attributes and tensors of the model and
PyTorch's random numbers are as before. Not guaranteed: that an index is found that is computed of several
columns.
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
from assay.program.lowering.repeated import Kept
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
    """PyTorch as it is, whose traces in the modules and in its random numbers are put back."""
    kept = Kept(modules)
    try:
        with torch.random.fork_rng(devices=[]), torch.compiler.set_stance("force_eager"):
            yield
    finally:
        kept.put_back()


def _columns(batch: Tensor, layout: Layout) -> Tensor:
    """f64 [records, n]: the numbers of inputs and targets, or of a wide tensor its least and largest ones."""
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
    """u8 [n, record size]: the records in which a column is the least or the largest."""
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
    """Whether a traced step draws random numbers, which PyTorch's own are not."""
    nodes = (node.target for node in graph.graph.nodes if node.op == "call_function")
    return any(torch.Tag.nondeterministic_seeded in getattr(target, "tags", ()) for target in nodes)


def first_loss(
    loss: NativeLoss, records: Records, batch: int, accumulate: int, modules: Sequence[nn.Module]
) -> Callable[[bytes], float]:
    """From a job's seed to the loss of shard 0's first step, of `accumulate` batches, by `loss`."""

    def of(seed: bytes) -> float:
        drawn = [records.index(seed, 0, 0, row) for row in range(batch * accumulate)]
        rows = records.gather(drawn, 0, records.record_size)
        with natively(modules):
            return sum(float(loss(part)) for part in rows.chunk(accumulate)) / accumulate

    return of


def check_indices(loss: NativeLoss, dataset: Dataset, batch: int, modules: Sequence[nn.Module]) -> None:
    """Raises Stop with the user's line where PyTorch finds an index or a label out of range in some record;
    `batch`: with how many records at once `loss` is called."""
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
                        f"some records of the dataset have a number that is out of range at"
                        f" {failure_line(error)}: {said.rstrip('.')}. A program takes the nearest"
                        " in range there, without a word",
                        hint="mend these records, or make room for the number: a larger table, more classes",
                        code="out-of-range",
                    ) from error
                return  # only PyTorch's own kernels lack what the trace had
