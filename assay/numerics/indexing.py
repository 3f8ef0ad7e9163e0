"""Row and element selection by an i32 index (docs/arithmetic.md, A40, A41).

Contract: bits are copied, indices are clamped into the valid range, so both are total. The other index
operations (strided, reshape, concat, const, iota) belong to the program's executor.
"""

from __future__ import annotations

import torch
from torch import Tensor


def take(table: Tensor, idx: Tensor) -> Tensor:
    """Rows of a table: (any[V, D...], i32[...]) -> any[..., D...], index clamped to [0, V-1] (A40)."""
    rows = idx.clamp(0, table.shape[0] - 1).reshape(-1)
    return torch.index_select(table, 0, rows).reshape((*idx.shape, *table.shape[1:]))


def pick(x: Tensor, idx: Tensor) -> Tensor:
    """One element of each row: (any[..., V], i32[...]) -> any[...], index clamped to [0, V-1] (A41)."""
    place = idx.clamp(0, x.shape[-1] - 1).to(torch.int64).unsqueeze(-1)
    return torch.gather(x, -1, place).squeeze(-1)
