"""Products of quantised operands as the compiled graphs take them: the definition's bits, on any number of
threads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from numerics import contraction, fused

LONG = 2600
SHAPES = [
    ((48, 40), (24, 40)),
    ((3, 16, 8), (3, 24, 8)),
    ((2, 3, 5, 64), (2, 3, 7, 64)),
    ((2, 4, LONG), (2, 5, LONG)),
]


@pytest.fixture(params=[1, 2, 4])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def rows(shape: tuple[int, ...], seed: int) -> Tensor:
    """Rows of all scales, with the largest integers, zeros, and one that is poisoned."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator)
    x *= torch.exp2(torch.randint(-60, 60, (*shape[:-1], 1), generator=generator).float())
    flat = x.view(-1, shape[-1])
    flat[0] = torch.finfo(torch.float32).max
    flat[1] = -0.0
    flat[2, -1] = float("inf")
    return x


def both(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The definition's product and the fused one."""
    ea, eb = contraction.exponent(a), contraction.exponent(b)
    wanted = contraction.product(contraction.quantise(a, ea), ea, contraction.quantise(b, eb), eb)
    fa, fb = fused.exponent(a), fused.exponent(b)
    qa, qb = (fused.quantise_own(x, e, product_only=True) for x, e in ((a, fa), (b, fb)))
    return wanted, fused.product(qa, fa, qb, fb)


def same(wanted: Tensor, found: Tensor) -> bool:
    nan = wanted.isnan()
    return bool((found.isnan() == nan).all()) and torch.equal(
        wanted[~nan].view(torch.int32), found[~nan].view(torch.int32)
    )


@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_fused_products_have_the_definition_s_bits(
    threads: int, left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    wanted, found = both(rows(left, 1), rows(right, 2))
    assert wanted.isnan().any() and not wanted.isnan().all()
    assert same(wanted, found)
    changed = found.clone()
    changed.view(torch.int32).view(-1)[wanted.view(-1).isfinite().nonzero()[0]] ^= 1
    assert not same(wanted, changed), "one bit must be seen"


def test_the_way_of_a_batch_depends_on_the_threads(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []
    for name in ("_total_int8", "_total_f64"):
        way = getattr(fused, name)
        monkeypatch.setattr(fused, name, lambda *q, way=way, name=name: (taken.append(name), way(*q))[1])
    both(rows((3, 16, 8), 1), rows((3, 16, 8), 2))
    both(rows((16, 8), 1), rows((16, 8), 2))
    assert taken == ["_total_int8" if threads <= 2 else "_total_f64", "_total_int8"]


def test_a_batch_of_int8_products_leaves_the_threads_as_they_were(threads: int) -> None:
    a = torch.ones(2, 3, 4, dtype=torch.int8)
    assert torch.ops.assay.int8_products(a, a).tolist() == [[[4] * 3] * 3] * 2
    assert torch.get_num_threads() == threads
