"""Expresses strided nodes as ordinary views where possible.

Contract: `strided` gives out[i] = x_flat[offset + sum of i_d * stride_d] for every valid attribute.
Transposes, slices, repetitions and reversals become reshape, narrow, permute, expand and flip, which a
compiler fuses; only overlapping windows and diagonals are read by address. Not guaranteed: a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Digits:
    """x_flat seen as x.reshape(sizes): the view takes [start, start + length) of each and orders them."""

    sizes: tuple[int, ...]
    starts: tuple[int, ...]
    lengths: tuple[int, ...]
    dims: tuple[int | None, ...]
    """Output dimension that walks along each size; None for a size that is only selected from."""


def digits(elements: int, shape: Sequence[int], offset: int, strides: Sequence[int]) -> Digits | None:
    """Decomposes the flat index by positive strides; None if impossible."""
    walked = sorted(
        ((s, n, d) for d, (s, n) in enumerate(zip(strides, shape, strict=True)) if s and n > 1), reverse=True
    )
    sizes: list[int] = []
    starts: list[int] = []
    lengths: list[int] = []
    dims: list[int | None] = []
    room, rest = elements, offset
    for stride, length, dim in walked:
        if room % stride:
            return None
        sizes.append(room // stride)
        starts.append(rest // stride)
        lengths.append(length)
        dims.append(dim)
        if starts[-1] + length > sizes[-1]:
            return None
        room, rest = stride, rest % stride
    if room > 1:
        sizes, starts, lengths, dims = [*sizes, room], [*starts, rest], [*lengths, 1], [*dims, None]
    return Digits(tuple(sizes), tuple(starts), tuple(lengths), tuple(dims))


def strided(x: Tensor, shape: Sequence[int], offset: int, strides: Sequence[int]) -> Tensor:
    """The view of x that a strided node describes."""
    backward = [d for d, s in enumerate(strides) if s < 0]
    start = offset + sum((shape[d] - 1) * strides[d] for d in backward)
    forward = [abs(s) for s in strides]
    found = digits(x.numel(), shape, start, forward)
    if found is None:
        view = x.contiguous().view(-1).as_strided(list(shape), forward, start)
    else:
        view = _view(x, found, shape)
    return view.flip(backward) if backward else view


def _view(x: Tensor, found: Digits, shape: Sequence[int]) -> Tensor:
    x = x.reshape(found.sizes)
    for dim, (start, length, size) in enumerate(zip(found.starts, found.lengths, found.sizes, strict=True)):
        if length != size:
            x = x.narrow(dim, start, length)
    order = [found.dims.index(d) for d in range(len(shape)) if d in found.dims]
    selected = [i for i, d in enumerate(found.dims) if d is None]
    x = x.permute([*order, *selected])
    x = x.reshape(x.shape[: len(order)]) if selected else x
    kept = [shape[d] if d in found.dims else 1 for d in range(len(shape))]
    return x.view(kept).expand(list(shape)) if _splittable(x, kept) else x.reshape(kept).expand(list(shape))


def _splittable(x: Tensor, kept: Sequence[int]) -> bool:
    return list(x.shape) == [n for n in kept if n != 1] or torch.Size(kept) == x.shape
