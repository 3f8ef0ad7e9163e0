"""Reimplements PyTorch's resampling, padding, window and pooling functions from operations that can be
lowered.

Contract: that of ``program.lowering.rewrites``, whose table includes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from assay.program.lowering.rewrites import rewrites

# Resampling


def _sources(length: int, size: int, align: bool, scale: float | None) -> Tensor:
    """Source coordinate of each of `size` outputs in an input of `length`."""
    place = torch.arange(size).float()
    if align:
        return place * ((length - 1) / (size - 1) if size > 1 else 0.0)
    return (place + 0.5) * (1 / scale if scale else length / size) - 0.5


def _linear(x: Tensor, dim: int, source: Tensor) -> Tensor:
    length = x.shape[dim]
    source = source.clamp(0, length - 1)
    low = source.floor()
    shape = [-1 if d == dim else 1 for d in range(x.dim())]
    weight = (source - low).view(shape)
    first = x.index_select(dim, low.int())
    second = x.index_select(dim, (low + 1).clamp(max=length - 1).int())
    return first * (1 - weight) + second * weight


def _cubic(x: Tensor, dim: int, source: Tensor) -> Tensor:
    """Keys' kernel with a = -0.75, as PyTorch's."""
    length, a = x.shape[dim], -0.75
    low = source.floor()
    shape = [-1 if d == dim else 1 for d in range(x.dim())]
    t = (source - low).view(shape)
    near = [(t, 1 - t), (t + 1, 2 - t)]
    inner = [((a + 2) * u - (a + 3)) * u * u + 1 for u in near[0]]
    outer = [((a * u - 5 * a) * u + 8 * a) * u - 4 * a for u in near[1]]
    total = None
    for shift, weight in ((-1, outer[0]), (0, inner[0]), (1, inner[1]), (2, outer[1])):
        part = x.index_select(dim, (low + shift).clamp(0, length - 1).int()) * weight
        total = part if total is None else total + part
    assert total is not None
    return total


def _nearest(x: Tensor, dim: int, size: int, scale: float | None, exact: bool) -> Tensor:
    length = x.shape[dim]
    step = 1 / scale if scale else length / size
    chosen = [min(int(((i + 0.5) if exact else i) * step), length - 1) for i in range(size)]
    if size % length == 0 and chosen == [i * length // size for i in range(size)]:
        return x.repeat_interleave(size // length, dim)
    return torch.cat([x.narrow(dim, i, 1) for i in chosen], dim)


@rewrites(functional.interpolate)
def interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Any:
    rank = input.dim() - 2
    if antialias:
        return NotImplemented
    given = scale_factor if isinstance(scale_factor, Sequence) else [scale_factor] * rank
    if size is None:
        sizes = [math.floor(n * s) for n, s in zip(input.shape[2:], given, strict=True)]
    else:
        sizes, given = list(size) if isinstance(size, Sequence) else [size] * rank, [None] * rank
    if recompute_scale_factor:
        given = [None] * rank
    if mode == "area":
        return _adaptive(input, sizes, rank, lambda x, dim: x.mean(dim, keepdim=True))
    whole = all(m % n == 0 for n, m in zip(input.shape[2:], sizes, strict=True))
    if mode == "nearest" and rank == 2 and whole:
        return NotImplemented
    x = input
    for d in range(rank):
        if mode.startswith("nearest"):
            x = _nearest(x, 2 + d, sizes[d], given[d], mode == "nearest-exact")
            continue
        source = _sources(x.shape[2 + d], sizes[d], bool(align_corners), given[d])
        x = (_cubic if mode == "bicubic" else _linear)(x, 2 + d, source)
    return x


@rewrites(functional.grid_sample)
def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Any:
    """Samples planes at the grid's coordinates, [-1, 1] from edge to edge."""
    if input.dim() != 4 or mode not in ("bilinear", "nearest") or padding_mode not in ("zeros", "border"):
        return NotImplemented
    batch, channels, height, width = input.shape
    places = []
    for d, length in ((0, width), (1, height)):
        at = (grid[..., d] + 1) / 2
        at = at * (length - 1) if align_corners else at * length - 0.5
        places.append(at.clamp(0, length - 1) if padding_mode == "border" else at)
    flat = input.reshape(batch, channels, height * width)

    def taken(column: Tensor, row: Tensor) -> Tensor:
        inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
        index = row.clamp(0, height - 1) * width + column.clamp(0, width - 1)
        index = index.int().reshape(batch, 1, -1).expand(-1, channels, -1).long()
        found = flat.gather(2, index).reshape(batch, channels, *column.shape[1:])
        return torch.where(inside.unsqueeze(1), found, 0.0)

    if mode == "nearest":
        return taken(*(at.round() for at in places))
    low = [at.floor() for at in places]
    part = [at - below for at, below in zip(places, low, strict=True)]
    total = torch.zeros(())
    for right, down in product((0, 1), (0, 1)):
        weight = (part[0] if right else 1 - part[0]) * (part[1] if down else 1 - part[1])
        total = total + taken(low[0] + right, low[1] + down) * weight.unsqueeze(1)
    return total


# Padding, windows and pooling


@rewrites(functional.pad)
def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Any:
    """Circular, reflected and replicated padding by concatenation.

    Sizes are (before, after) of the last dimension, then of the one before it, ...; negative ones crop.
    Raises ValueError if a side is longer than what it repeats.
    """
    if mode == "constant":
        return NotImplemented
    x = input
    for at in range(0, len(pad), 2):
        x = _around(x, x.dim() - 1 - at // 2, pad[at], pad[at + 1], mode)
    return x


def _around(x: Tensor, dim: int, before: int, after: int, mode: str) -> Tensor:
    length = x.shape[dim]
    most = length - 1 if mode == "reflect" else length
    if mode != "replicate" and max(before, after) > most:
        raise ValueError(f"{mode} padding of {max(before, after)} is longer than the {most} it repeats")
    x = x.narrow(dim, max(-before, 0), length - max(-before, 0) - max(-after, 0))
    n = x.shape[dim]
    parts = [x]
    for count, first in ((before, True), (after, False)):
        if count <= 0:
            continue
        if mode == "circular":
            side = x.narrow(dim, n - count if first else 0, count)
        elif mode == "reflect":
            side = x.narrow(dim, 1 if first else n - 1 - count, count).flip(dim)
        else:
            edge = x.narrow(dim, 0 if first else n - 1, 1)
            side = edge.expand([count if d == dim else -1 for d in range(x.dim())])
        parts = [side, *parts] if first else [*parts, side]
    return torch.cat(parts, dim) if len(parts) > 1 else x


def _each(value: Any, rank: int) -> list[int]:
    return [int(value)] * rank if isinstance(value, int) else [int(v) for v in value]


def _taps(
    x: Tensor, size: Sequence[int], stride: Sequence[int], dilation: Sequence[int], places: Sequence[int]
) -> Iterator[Tensor]:
    """For every window position, its values: padded x [.., X..] -> [.., Y..]."""
    first = x.dim() - len(size)
    for tap in product(*(range(k) for k in size)):
        seen = x
        for d, (at, step, gap, count) in enumerate(zip(tap, stride, dilation, places, strict=True)):
            start = at * gap
            index = [slice(None)] * (first + d) + [slice(start, start + (count - 1) * step + 1, step)]
            seen = seen[tuple(index)]
        yield seen


@rewrites(functional.unfold)
def unfold(input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Tensor:
    size, gap, side, step = (_each(v, 2) for v in (kernel_size, dilation, padding, stride))
    x = functional.pad(input, [side[1], side[1], side[0], side[0]])
    places = [
        (n - g * (k - 1) - 1) // s + 1 for n, g, k, s in zip(x.shape[-2:], gap, size, step, strict=True)
    ]
    seen = torch.stack(list(_taps(x, size, step, gap, places)), -3)
    return seen.reshape(*input.shape[:-3], -1, places[0] * places[1])


@rewrites(functional.fold)
def fold(
    input: Tensor, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Tensor:
    """Transpose of `unfold`: adds every window's elements where they came from."""
    shape, size, gap, side, step = (
        _each(v, 2) for v in (output_size, kernel_size, dilation, padding, stride)
    )
    full = [n + 2 * s for n, s in zip(shape, side, strict=True)]
    places = [(n - g * (k - 1) - 1) // s + 1 for n, g, k, s in zip(full, gap, size, step, strict=True)]
    planes = input.reshape(*input.shape[:-2], -1, size[0] * size[1], *places)
    total: Tensor | None = None
    for number, tap in enumerate(product(*(range(k) for k in size))):
        part = planes.select(-3, number)
        for d in range(2):
            dim = part.dim() - 2 + d
            wide = functional.pad(part.unsqueeze(dim + 1), [0, 0] * (1 - d) + [0, step[d] - 1])
            part = wide.flatten(dim, dim + 1)
            length = (places[d] - 1) * step[d] + 1
            part = part.narrow(dim, 0, length)
            start = tap[d] * gap[d]
            part = functional.pad(part, [0, 0] * (1 - d) + [start, full[d] - start - length])
        total = part if total is None else total + part
    assert total is not None
    return total[..., side[0] : side[0] + shape[0], side[1] : side[1] + shape[1]]


def _pooled_places(
    lengths: Sequence[int], size: Sequence[int], step: Sequence[int], side: Sequence[int], up: bool
) -> list[int]:
    made = []
    for n, k, s, p in zip(lengths, size, step, side, strict=True):
        count = -(-(n + 2 * p - k) // s) + 1 if up else (n + 2 * p - k) // s + 1
        made.append(count - 1 if up and (count - 1) * s >= n + p else count)
    return made


def _padded_for(
    x: Tensor,
    size: Sequence[int],
    step: Sequence[int],
    side: Sequence[int],
    places: Sequence[int],
    value: float,
) -> Tensor:
    sides: list[int] = []
    rank = len(size)
    for d in reversed(range(rank)):
        n = x.shape[x.dim() - rank + d]
        end = (places[d] - 1) * step[d] + size[d]
        sides += [side[d], max(side[d], end - n - side[d])]
    return functional.pad(x, sides, value=value)


def _averages(rank: int) -> Callable[..., Any]:
    def pooled(
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        size, side = _each(kernel_size, rank), _each(padding, rank)
        step = size if stride is None or stride == () else _each(stride, rank)
        plain = not ceil_mode and divisor_override is None and (count_include_pad or not any(side))
        if plain and not any(side) and size == list(input.shape[-rank:]):
            return input.mean(list(range(-rank, 0)), keepdim=True)
        if plain and rank < 3:
            return NotImplemented
        lengths = input.shape[-rank:]
        places = _pooled_places(lengths, size, step, side, ceil_mode)
        seen = _taps(_padded_for(input, size, step, side, places, 0.0), size, step, [1] * rank, places)
        total = torch.stack(list(seen), 0).sum(0)
        if divisor_override is not None:
            return total / divisor_override
        for d in range(rank):
            inside = [
                0 if count_include_pad else side[d],
                side[d] + lengths[d] + (side[d] if count_include_pad else 0),
            ]
            counts = []
            for i in range(places[d]):
                start = max(i * step[d], inside[0])
                counts.append(float(max(1, min(i * step[d] + size[d], inside[1]) - start)))
            if len(set(counts)) == 1:
                total = total / counts[0]
                continue
            dim = total.dim() - rank + d
            cut = [total.narrow(dim, i, 1) / count for i, count in enumerate(counts)]
            total = torch.cat(cut, dim)
        return total

    return pooled


rewrites(functional.avg_pool1d, torch.avg_pool1d)(_averages(1))
rewrites(functional.avg_pool2d)(_averages(2))
rewrites(functional.avg_pool3d)(_averages(3))


@rewrites(functional.max_pool3d, functional.__dict__["_max_pool3d"], torch.max_pool3d)
def max_pool3d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    if return_indices or _each(dilation, 3) != [1, 1, 1]:
        return NotImplemented
    size, side = _each(kernel_size, 3), _each(padding, 3)
    step = size if stride is None or stride == () else _each(stride, 3)
    places = _pooled_places(input.shape[-3:], size, step, side, ceil_mode)
    x = _padded_for(input, size, step, side, places, -math.inf)
    return torch.stack(list(_taps(x, size, step, [1] * 3, places)), 0).amax(0)


def _adaptive(x: Tensor, size: Any, rank: int, reduce: Callable[[Tensor, int], Tensor]) -> Any:
    wanted = [size] * rank if isinstance(size, int) or size is None else list(size)
    for d, count in enumerate(wanted):
        dim = x.dim() - rank + d
        length = x.shape[dim]
        count = length if count is None else count
        spans = [(i * length // count, -(-(i + 1) * length // count)) for i in range(count)]
        x = torch.cat([reduce(x.narrow(dim, a, b - a), dim) for a, b in spans], dim)
    return x


def _adaptives(rank: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def averaged(input: Tensor, output_size: Any) -> Any:
        wanted = [output_size] * rank if isinstance(output_size, int) else list(output_size)
        lengths = input.shape[-rank:]
        if rank < 3 and all(m is not None and n % m == 0 for n, m in zip(lengths, wanted, strict=True)):
            return NotImplemented
        return _adaptive(input, output_size, rank, lambda x, dim: x.mean(dim, keepdim=True))

    def largest(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
        if return_indices:
            return NotImplemented
        return _adaptive(input, output_size, rank, lambda x, dim: x.amax(dim, keepdim=True))

    return averaged, largest


for _rank in (1, 2, 3):
    _mean, _most = _adaptives(_rank)
    rewrites(getattr(functional, f"adaptive_avg_pool{_rank}d"))(_mean)
    rewrites(
        getattr(functional, f"adaptive_max_pool{_rank}d"), getattr(functional, f"_adaptive_max_pool{_rank}d")
    )(_most)
