"""Tensors in memory that two processes of this machine share.

Contract: `placed` copies tensors into new memory, which `found` maps in another process: the same bytes, and
no copy of them. The memory is the kernel's until the last tensor of every process that mapped it is gone, and
counts once. A descriptor is its receiver's to close; tensors need it no longer. Not guaranteed: that this
system has such memory (`AVAILABLE`; Linux has).
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from math import prod

import torch
from torch import Tensor

AVAILABLE = hasattr(os, "memfd_create")
_ALIGNED = 64

Kinds = Sequence[tuple[torch.dtype, tuple[int, ...]]]
"""Dtypes and shapes of some tensors, in order."""


def placed(tensors: Sequence[Tensor]) -> tuple[int, list[Tensor]]:
    """A descriptor of new memory with these tensors' bytes, and the tensors there. Raises OSError where there
    is none to be had."""
    kinds = [(x.dtype, tuple(x.shape)) for x in tensors]
    descriptor = os.memfd_create("assay-state")
    try:
        os.ftruncate(descriptor, _length(kinds))
        there = found(descriptor, kinds)
    except BaseException:
        os.close(descriptor)
        raise
    for x, y in zip(tensors, there, strict=True):
        y.copy_(x)
    return descriptor, there


def found(descriptor: int, kinds: Kinds) -> list[Tensor]:
    """The tensors in memory that `placed` has filled with such ones. Raises OSError."""
    memory = mmap.mmap(descriptor, _length(kinds))
    return [
        torch.frombuffer(memory, dtype=dtype, count=prod(shape), offset=at).view(shape)
        if prod(shape)
        else torch.empty(shape, dtype=dtype)
        for at, (dtype, shape) in zip(_places(kinds), kinds, strict=True)
    ]


def _places(kinds: Kinds) -> Iterator[int]:
    at = 0
    for dtype, shape in kinds:
        yield at
        at += -(-prod(shape) * dtype.itemsize // _ALIGNED) * _ALIGNED


def _length(kinds: Kinds) -> int:
    *_, last = _places([*kinds, (torch.uint8, ())])
    return max(last, 1)
