"""Compares tensors bit by bit.

Contract: `patterns` are zero-extended, and every NaN of an f32 tensor is 0x7fc00000 (docs/arithmetic.md, A3),
so two tensors are equal exactly if their patterns are. Not guaranteed: anything about dtypes without bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from assay.numerics.encoding import ITEM_BYTES, to_bytes

_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32}


@dataclass(frozen=True)
class Difference:
    """One differing element; `index` counts in row-major order."""

    index: int
    got: int
    want: int

    def __str__(self) -> str:
        return f"[{self.index}] 0x{self.got:08x}, not 0x{self.want:08x}"


def patterns(x: Tensor) -> np.ndarray:
    """Unsigned bit patterns of all elements, flat."""
    return np.frombuffer(to_bytes(x), dtype=_UNSIGNED[ITEM_BYTES[x.dtype]])


def differences(got: Tensor, want: Tensor, limit: int = 8) -> tuple[int, list[Difference]]:
    """(number of differing elements, the first `limit` of them).

    Raises ValueError if shapes or dtypes differ.
    """
    if got.shape != want.shape or got.dtype != want.dtype:
        raise ValueError(f"{got.dtype} {tuple(got.shape)} is compared with {want.dtype} {tuple(want.shape)}")
    a, b = patterns(got), patterns(want)
    wrong = np.flatnonzero(a != b)
    return len(wrong), [Difference(int(i), int(a[i]), int(b[i])) for i in wrong[:limit]]
