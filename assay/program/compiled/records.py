"""Lets a compiled form read dataset records by computed indices.

Contract: while a dataset is `opened`, a graph reads rows of it with `assay::records`. The graph knows its
handle, an i32 scalar, and not its size, so one form serves any dataset. Not guaranteed: anything for a closed
handle; the graph's step then fails with KeyError.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from assay.program.execute import Records

_OPEN: dict[int, Records] = {}
_NUMBERS = itertools.count(1)


@contextmanager
def opened(dataset: Records | None, device: torch.device) -> Iterator[Tensor]:
    """Opens a dataset for a `with` block and yields its handle."""
    number = next(_NUMBERS) % (1 << 31)
    if dataset is not None:
        _OPEN[number] = dataset
    try:
        yield torch.tensor(number, dtype=torch.int32, device=device)
    finally:
        _OPEN.pop(number, None)


def _records(handle: Tensor, index: Tensor, offset: int, length: int) -> Tensor:
    """u8 [B, length] of an open dataset (``program.execute.read_records``)."""
    dataset = _OPEN[int(handle)]
    numbers = index.clamp(0, len(dataset) - 1).tolist()
    return dataset.gather(numbers, offset, length).to(index.device)


_LIBRARY = torch.library.Library("assay", "FRAGMENT")
_LIBRARY.define("records(Tensor handle, Tensor index, int offset, int length) -> Tensor")
_LIBRARY.impl("records", _records, "CompositeExplicitAutograd")
torch.library.register_fake(
    "assay::records",
    lambda handle, index, offset, length: index.new_empty((*index.shape, length), dtype=torch.uint8),
    lib=_LIBRARY,
)
read_records = torch.ops.assay.records
"""(handle, i32 [B], offset, length) -> u8 [B, length]; indices are clamped to the records."""
