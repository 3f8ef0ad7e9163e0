"""Tensors in memory that two processes of this machine share.

Contract: `placed` writes tensors into new memory, which `found` maps in another process: the same bytes, and
of large tensors no copy of them. Each of these has memory of its own, which is the kernel's until the last
process has let the tensor go, and counts once; small ones are copied out. Descriptors are their receiver's to
close; tensors need them no longer. What memory there is is taken at once, or refused with OSError. Not
guaranteed: that this system has such memory (`available`; Linux has, as far as a container lets it).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from math import prod

import torch
from torch import Tensor

from assay.program.execute import own

LARGE_BYTES = 1 << 20
MOST_ALONE = 200
"""Tensors that have memory of their own, at most: so many descriptors go into one message."""
_ALIGNED = 64

Kinds = Sequence[tuple[torch.dtype, tuple[int, ...]]]
"""Dtypes and shapes of some tensors, in order."""


@cache
def available() -> bool:
    """Whether this process can have such memory."""
    if not hasattr(os, "memfd_create"):
        return False
    x = torch.arange(LARGE_BYTES // 4, dtype=torch.int32)
    try:
        with held(placed([x])) as descriptors:
            return torch.equal(found(descriptors, [(x.dtype, tuple(x.shape))])[0], x)
    except OSError:
        return False


@contextmanager
def held(descriptors: Sequence[int]) -> Iterator[Sequence[int]]:
    """A `with` block that closes them; tensors there stay."""
    try:
        yield descriptors
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def placed(tensors: Sequence[Tensor]) -> list[int]:
    """Descriptors of new memory with these tensors' bytes. Raises OSError where there is none to be had."""
    kinds = [(x.dtype, tuple(x.shape)) for x in tensors]
    with ExitStack() as stack:
        descriptors: list[int] = []
        for group in _groups(kinds):
            descriptor = os.memfd_create("assay-state")
            stack.callback(os.close, descriptor)
            descriptors.append(descriptor)
            *places, end = _places([kinds[i] for i in group])
            os.ftruncate(descriptor, max(end, 1))
            for i, at in zip(group, places, strict=True):
                _write(descriptor, tensors[i], at)
        stack.pop_all()
    return descriptors


def _write(descriptor: int, x: Tensor, at: int) -> None:
    rest = x.contiguous().view(-1).view(torch.uint8).numpy().data
    while rest:
        done = os.pwrite(descriptor, rest, at)
        rest, at = rest[done:], at + done


def found(descriptors: Sequence[int], kinds: Kinds) -> list[Tensor]:
    """The tensors in memory that `placed` has filled with such ones. Raises OSError."""
    there = {i: own(x) for i, x in _mapped(descriptors, kinds)}
    return [there[i] for i in range(len(kinds))]


def _mapped(descriptors: Sequence[int], kinds: Kinds) -> Iterator[tuple[int, Tensor]]:
    """Each tensor's number, and the tensor where it lies."""
    for descriptor, group in zip(descriptors, _groups(kinds), strict=True):
        inside = [kinds[i] for i in group]
        # not Python's mmap, which would keep a descriptor open for each
        *places, end = _places(inside)
        path, length = f"/proc/self/fd/{descriptor}", max(end, 1)
        try:
            memory = torch.from_file(path, shared=True, size=length, dtype=torch.uint8)
        except RuntimeError as error:
            raise OSError(errno.ENOMEM, f"memory that was written cannot be mapped: {error}") from error
        for i, at, (dtype, shape) in zip(group, places, inside, strict=True):
            yield i, memory[at : at + prod(shape) * dtype.itemsize].view(dtype).view(shape)


def _groups(kinds: Kinds) -> list[list[int]]:
    """Which tensors share memory: each large one has its own, all others have some together."""
    sizes = [prod(shape) * dtype.itemsize for dtype, shape in kinds]
    largest = sorted(range(len(kinds)), key=lambda i: -sizes[i])[:MOST_ALONE]
    alone = sorted(i for i in largest if sizes[i] >= LARGE_BYTES)
    together = [i for i in range(len(kinds)) if i not in set(alone)]
    return [*([i] for i in alone), *([together] if together else [])]


def _places(kinds: Kinds) -> Iterator[int]:
    """Where each begins, and where the last one ends."""
    at = end = 0
    for dtype, shape in kinds:
        at = -(-end // _ALIGNED) * _ALIGNED
        yield at
        end = at + prod(shape) * dtype.itemsize
    yield end
