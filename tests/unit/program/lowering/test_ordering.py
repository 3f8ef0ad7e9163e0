"""Sorting and the k largest, against PyTorch on random, tied and special numbers."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from assay.program.lowering.ordering import COUNTED
from tests.unit.program.lowered import agree, both

SPECIAL = torch.tensor([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e-45, -1e-45, 3.4e38])


def rows(length: int, kind: str, seed: int = 0) -> Tensor:
    """[3, length]: numbers all different, a few numbers often, or special ones."""
    generator = torch.Generator().manual_seed(seed + length)
    if kind == "different":
        return torch.randperm(3 * length, generator=generator).float().view(3, length) / 7 - length / 5
    if kind == "tied":
        return torch.randint(-2, 3, (3, length), generator=generator).float() / 2
    return SPECIAL[torch.randint(0, len(SPECIAL), (3, length), generator=generator)]


def of_every_kind(length: int, seed: int = 0) -> Tensor:
    return torch.cat([rows(length, kind, seed) for kind in ("different", "tied", "special")])


def same_bits(x: Tensor, y: Tensor) -> bool:
    return torch.equal(x.contiguous().view(torch.int32), y.contiguous().view(torch.int32))


@pytest.mark.parametrize("length", [1, 5, COUNTED, COUNTED + 1, 100])
def test_sort_is_pytorchs_stable_sort(length: int) -> None:
    """Values bit for bit and every place, zeros of both signs and NaN among them."""

    def function(y: Tensor, b: Tensor) -> list[Tensor]:
        up, down = (torch.sort(y, dim=1, stable=True, descending=d) for d in (False, True))
        return [*up, *down]

    ours, native = both(function, of_every_kind(length))
    for x, y in zip(ours, native, strict=True):
        assert same_bits(x, y) if x.is_floating_point() else torch.equal(x, y.int())


@pytest.mark.parametrize(("length", "k"), [(7, 1), (7, 6), (33, 20), (200, 1), (200, 40)])
def test_topk_is_the_first_of_the_stable_sort(length: int, k: int) -> None:
    """By comparing all, by the network, and by the search for the k-th key."""
    x = of_every_kind(length, seed=5)
    ours, native = both(lambda y, b: [*y.topk(k, dim=1), *y.topk(k, dim=1, largest=False)], x)
    for at, largest in ((0, True), (2, False)):
        wanted, places = x.sort(dim=1, stable=True, descending=largest)
        assert torch.equal(ours[at + 1], places[:, :k].int())
        assert same_bits(ours[at], wanted[:, :k])
        assert torch.equal(torch.nan_to_num(ours[at]), torch.nan_to_num(native[at]))


@pytest.mark.slow
@pytest.mark.parametrize(("length", "k"), [(700, 64), (4096, 64), (5000, 3)])
def test_the_largest_of_long_rows(length: int, k: int) -> None:
    test_topk_is_the_first_of_the_stable_sort(length, k)


def test_integers_and_other_dimensions() -> None:
    generator = torch.Generator().manual_seed(2)
    i = torch.randint(-(2**31), 2**31, (40, 3), generator=generator).int()
    i[0], i[1] = -(2**31), 2**31 - 1
    agree(lambda x, b: [*x.sort(0), *x.sort(0, descending=True), *x.topk(2, 0), x.argsort(0)], i)
    agree(lambda x, b: [*x.kthvalue(3, 0), *x.median(0)], rows(40, "different").T.contiguous())
    agree(lambda x, b: [*x.median(1), x.median()], rows(9, "different"))
    agree(lambda x, b: [*x.median(1)], rows(9, "special"))


def test_gradients_go_to_the_chosen_places() -> None:
    def both_ways(x: Tensor, b: Tensor) -> list[Tensor]:
        leaf = x.detach().requires_grad_()
        with torch.enable_grad():
            weights = torch.arange(5.0)
            value = (leaf.topk(5, 1)[0] * weights).sum() + (leaf.sort(1)[0][:, :5] * weights**2).sum()
        return [*torch.autograd.grad(value, [leaf])]

    agree(both_ways, rows(60, "different"))
    agree(both_ways, rows(20, "different"))
