"""What a rank has of a view or of another shape is what the whole one has in that rank's rows."""

from __future__ import annotations

import random
from math import prod

import pytest
import torch
from torch import Tensor

from assay.program.ranks.rows import Rows, dealt, local_view, reshaped, viewed
from assay.program.rules import contiguous, strided_bounds


def part(x: Tensor, rows: Rows, rank: int) -> Tensor:
    """A rank's rows, by index."""
    starts = range(0, rows.outer * rows.size, rows.size)
    mine = [start + i for start in starts for i in range(rows.cuts[rank], rows.cuts[rank + 1])]
    return x.index_select(rows.dim, torch.tensor(mine)).contiguous()


def random_rows(rng: random.Random, shape: tuple[int, ...]) -> Rows | None:
    dim = rng.randrange(len(shape))
    outer = rng.choice([n for n in (1, 1, 2, 3) if shape[dim] % n == 0])
    size = shape[dim] // outer
    if size < 2:
        return None
    ranks = rng.randint(2, min(size, 4))
    cuts = [0, *sorted(rng.sample(range(1, size), ranks - 1)), size]
    return (
        rng.choice([dealt(dim, size, ranks), Rows(dim, tuple(cuts))])
        if outer == 1
        else Rows(dim, tuple(cuts), outer)
    )


def factored(rng: random.Random, number: int) -> tuple[int, ...]:
    """A shape of so many elements."""
    dims = []
    while number > 1:
        factor = rng.choice([n for n in range(1, number + 1) if number % n == 0])
        dims.append(factor)
        number //= factor
    return tuple(dims) or (1,)


def shapes(rng: random.Random) -> tuple[int, ...]:
    return tuple(rng.choice((1, 2, 3, 4, 6, 8)) for _ in range(rng.randint(1, 4)))


def test_another_shape_keeps_each_ranks_elements() -> None:
    rng, found = random.Random(1), 0
    for _ in range(3_000):
        shape = shapes(rng)
        rows = random_rows(rng, shape)
        after = factored(rng, prod(shape))
        moved = rows and reshaped(rows, shape, after)
        if rows is None or moved is None:
            continue
        found += 1
        x = torch.arange(prod(shape)).view(shape)
        for rank in range(len(rows.cuts) - 1):
            local = part(x, rows, rank)
            assert local.shape == rows.local(shape, rank)
            assert torch.equal(local.view(moved.local(after, rank)), part(x.view(after), moved, rank))
    assert found > 600


def random_view(rng: random.Random, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A view's shape and attributes: dimensions split, permuted, reversed, repeated, cut or fixed."""
    split = [
        (n, s)
        for whole, stride in zip(shape, contiguous(shape), strict=True)
        for n, s in _split(rng, whole, stride)
    ]
    rng.shuffle(split)
    offset, dims = 0, []
    for n, s in split:
        kind = rng.random()
        if kind < 0.1:
            offset += rng.randrange(n) * s
        elif kind < 0.2:
            offset, n, s = offset + (n - 1) * s, n, -s
            dims.append((n, s))
        elif kind < 0.3 and n > 1:
            offset += s
            dims.append((n - 1, s))
        else:
            dims.append((n, s))
    if rng.random() < 0.2:
        dims.insert(rng.randint(0, len(dims)), (3, 0))
    return tuple(n for n, _ in dims), (offset, *(s for _, s in dims))


def _split(rng: random.Random, size: int, stride: int) -> list[tuple[int, int]]:
    factors = [n for n in range(2, size) if size % n == 0]
    if not factors or rng.random() < 0.6:
        return [(size, stride)]
    inner = rng.choice(factors)
    return [(size // inner, inner * stride), (inner, stride)]


def strided(x: Tensor, shape: tuple[int, ...], attrs: tuple[int, ...]) -> Tensor:
    index = torch.full(shape, attrs[0])
    for dim, stride in enumerate(attrs[1:]):
        line = torch.arange(shape[dim]) * stride
        index = index + line.view([-1 if d == dim else 1 for d in range(len(shape))])
    return x.reshape(-1)[index]


@pytest.mark.long
def test_a_view_keeps_each_ranks_elements() -> None:
    rng, found = random.Random(2), 0
    for _ in range(6_000):
        shape = shapes(rng)
        rows = random_rows(rng, shape)
        after, attrs = random_view(rng, shape)
        low, high = strided_bounds(after, attrs[0], attrs[1:])
        assert 0 <= low <= high < prod(shape)
        moved = rows and viewed(rows, shape, after, attrs)
        if rows is None or moved is None:
            continue
        found += 1
        x = torch.arange(prod(shape)).view(shape)
        for rank in range(len(rows.cuts) - 1):
            mine = strided(
                part(x, rows, rank), moved.local(after, rank), local_view(rows, shape, attrs, rank)
            )
            assert torch.equal(mine, part(strided(x, after, attrs), moved, rank)), (shape, rows, after, attrs)
    assert found > 600


@pytest.mark.parametrize("size, ranks", [(5, 2), (7, 4), (4, 4), (9, 3)])
def test_rows_are_dealt_out_evenly_and_wholly(size: int, ranks: int) -> None:
    rows = dealt(0, size, ranks)
    counts = [rows.count(rank) for rank in range(ranks)]
    assert sum(counts) == size and max(counts) - min(counts) <= 1 and min(counts) >= 1


def test_a_view_of_a_few_rows_is_no_view_of_every_ranks_rows() -> None:
    rows = dealt(0, 8, 2)
    assert viewed(rows, (8, 3), (4, 3), (0, 3, 1)) is None
    assert viewed(rows, (8, 3), (8, 3), (21, -3, 1)) is None
    assert viewed(rows, (8, 3), (3,), (6, 1)) is None
