"""Products of quantised operands as the compiled graphs take them: the definition's bits, on any number of
threads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from assay.numerics import backends, contraction, fast, fused, product_kernel

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


@pytest.mark.parametrize("int8", [False, True])
def test_the_kernel_multiplies_on_processors_and_without_it_int8_where_it_is_fast(
    threads: int, int8: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []
    for name in ("_total_int8", "_total_f64"):
        way = getattr(fused, name)
        monkeypatch.setattr(fused, name, lambda *q, way=way, name=name: (taken.append(name), way(*q))[1])
    monkeypatch.setattr(backends, "processor_multiplies_int8", lambda: int8)
    left, right = rows((3, 16, 80), 1), rows((3, 16, 80), 2)
    assert product_kernel.load() is not None
    assert same(*both(left, right))
    assert taken == []
    monkeypatch.setattr(product_kernel, "load", lambda: None)
    assert same(*both(left, right))
    assert same(*both(left[0], right[0]))
    assert taken == ["_total_f64", "_total_int8" if int8 else "_total_f64"]


@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_eager_products_have_the_definition_s_bits_with_and_without_the_kernel(
    threads: int, left: tuple[int, ...], right: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = rows(left, 1), rows(right, 2)
    ex, ey = contraction.exponent(x), contraction.exponent(y)
    qx, qy = contraction.quantise(x, ex), contraction.quantise(y, ey)
    wanted = contraction.product(qx, ex, qy, ey)
    for load in (product_kernel.load, lambda: None):
        monkeypatch.setattr(product_kernel, "load", load)
        assert same(wanted, fast.product(qx, ex, qy, ey))
