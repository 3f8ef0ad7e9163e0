"""Contractions over ranks have the bits of those on the whole dimension, for all kinds of numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from assay.numerics import contraction, ranks
from assay.numerics.bits import differences
from assay.numerics.hard_products import hard_pairs
from assay.program.ranks.group import Group
from tests.fakes.ranks import on_all


def dealt(x: Tensor, group: Group) -> Tensor:
    """A rank's part of the last dimension: as uneven as can be."""
    cuts = [0, *(1 + rank for rank in range(group.size - 1)), x.shape[-1]]
    return x[..., cuts[group.rank] : cuts[group.rank + 1]]


def hard_rows(length: int) -> Tensor:
    """f32 [.., length]: any bits, sums that cancel, and infinities and NaN on one rank or on several."""
    x = next(x for x, _, _, _ in hard_pairs(40, 9, length)).clone()
    x[:8] = torch.linspace(-3.0, 3.0, 8 * length).view(8, length) * 10.0 ** torch.arange(
        -20, 20, 5
    ).unsqueeze(1)
    x[8:12] = torch.tensor([1.0, -1.0]).repeat(length)[:length]
    x[12:22] = 1.0
    x[13, 0], x[14, -1], x[15, 0], x[15, -1] = torch.inf, -torch.inf, torch.inf, -torch.inf
    x[16, 0], x[17, -1], x[18, 0], x[18, -1] = torch.nan, torch.nan, torch.inf, torch.nan
    x[19], x[20], x[21, 1:] = 0.0, -0.0, 0.0
    return x


def assert_same(got: list[Tensor], want: Tensor) -> None:
    for x in got:
        count, first = differences(x, want)
        assert not count, first


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("length", [7, 300])
@pytest.mark.parametrize("name", ["exponent", "amax", "sum"])
def test_a_reduction_over_ranks_is_the_whole_one(name: str, length: int, size: int) -> None:
    x = hard_rows(length)
    options = {"length": length} if name == "sum" else {}
    made: Callable[..., Tensor] = getattr(ranks, name)
    assert_same(on_all(size, lambda g: made(g, dealt(x, g), **options)), getattr(contraction, name)(x))


@pytest.mark.parametrize("size", [2, 4])
def test_a_product_over_ranks_is_the_whole_one(size: int) -> None:
    for x, ex, y, ey in hard_pairs(17, 33, 64):
        qx, qy = contraction.quantise(x, ex), contraction.quantise(y, ey)

        def mine(g: Group, qx: Tensor = qx, ex: Tensor = ex, qy: Tensor = qy, ey: Tensor = ey) -> Tensor:
            return ranks.product(g, dealt(qx, g), ex, dealt(qy, g), ey)

        assert_same(on_all(size, mine), contraction.product(qx, ex, qy, ey))


def test_products_of_the_largest_integers_over_ranks_are_exact() -> None:
    q = torch.full((3, 4096), 8192, dtype=torch.int16)
    e = torch.tensor([0, 20, 129])
    got = on_all(2, lambda g: ranks.product(g, dealt(q, g), e, dealt(-q, g), e))
    assert_same(got, contraction.product(q, e, -q, e))


@pytest.mark.parametrize("size", [2, 4])
def test_sums_by_index_over_ranks_are_the_whole_ones(size: int) -> None:
    x = hard_rows(300)
    idx = (torch.arange(300) * 7 % 11 - 1).to(torch.int32)
    got = on_all(size, lambda g: ranks.scatter_sum(g, dealt(x, g), dealt(idx, g), V=9, length=300))
    assert_same(got, contraction.scatter_sum(x, idx, V=9))
