"""Products of views that are never copied have the bits of the products of the copied views."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor
from torch.nn.functional import pad

from assay.numerics import contraction, fused, windows, windows_kernel
from assay.numerics.fused import Exponents, Quantised
from assay.numerics.windows import Windows

PLANE = (4, 6, 5, 8)
"""[B, X, Y, C]"""


def _quantised(shape: Sequence[int], seed: int) -> Tensor:
    """Integers over the whole range, most of them at its ends."""
    generator = torch.Generator().manual_seed(seed)
    q = torch.randint(-8192, 8193, shape, generator=generator)
    ends = torch.randint(0, 4, shape, generator=generator)
    return torch.where(ends == 0, q, torch.where(ends == 1, 8192, -8192)).to(torch.int16)


def _exponents(shape: Sequence[int], seed: int) -> Exponents:
    e = torch.randint(-40, 41, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.int32)
    return Exponents(torch.where(e == 40, 129, e), own=True)


def _bits(x: Tensor) -> Tensor:
    return torch.where(torch.isnan(x), torch.tensor(float("nan")), x).view(torch.int32)


def _same(a: Windows, b: Windows) -> None:
    """Compared with the definition, on the views' copies."""
    ea, eb = _exponents(a.shape[:-1], 3), _exponents(b.shape[:-1], 4)
    made = windows.windowed_product(a, ea, b, eb)
    qa, qb = (x.opened().integers.to(torch.int16) for x in (a, b))
    wanted = contraction.product(qa, ea.i32.to(torch.int16), qb, eb.i32.to(torch.int16))
    assert made.shape == wanted.shape
    assert torch.equal(_bits(made), _bits(wanted))


def _unfolded(base: Tensor) -> Windows:
    """3 × 2 windows of the plane: [B·4·4, 3·2·8]."""
    seen = Windows.whole(base).viewed((4, 4, 4, 3, 2, 8), 0, (240, 40, 8, 40, 8, 1))
    return seen.reshaped((64, 48))


def test_windows_by_kernels() -> None:
    _same(_unfolded(_quantised(PLANE, 1)), Windows.whole(_quantised((5, 48), 2)))


@pytest.mark.parametrize("blocks", [1, 2])
def test_windows_by_gradients(blocks: int) -> None:
    """Contracted over images and places: the neighbours in memory are rows."""
    images = 4 // blocks
    seen = Windows.whole(_quantised(PLANE, 1)).viewed(
        (blocks, 3, 2, 8, images, 4, 4), 0, (images * 240, 40, 8, 1, 240, 40, 8)
    )
    inside = Windows.whole(_quantised(PLANE, 2)).viewed(
        (blocks, 8, images, 4, 4), 48, (images * 240, 1, 240, 40, 8)
    )
    _same(inside.reshaped((blocks, 8, images * 16)), seen.reshaped((blocks, 48, images * 16)))


def test_shapes_that_cut_through_a_dimension_are_copied() -> None:
    seen = _unfolded(_quantised(PLANE, 1)).reshaped((96, 32))
    assert seen.rows() is None
    _same(seen, Windows.whole(_quantised((5, 32), 2)))


def test_the_compiled_operation_is_the_fused_one() -> None:
    """The same operands through the ordinary product."""
    a, b = _unfolded(_quantised(PLANE, 1)), _quantised((5, 48), 2)
    ea, eb = _exponents((64,), 3), _exponents((5,), 4)
    made = windows.windowed_product(a, ea, Windows.whole(b), eb)
    assert torch.equal(_bits(made), _bits(fused.product(a.opened(), ea, Quantised(b.to(torch.float32)), eb)))


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("sides", [(0, 0, 1, 1, 2, 0), (0, 0), (0, 0, 0, 3, 0, 0, 1, 0)])
def test_planes_have_zeros_around_them(
    sides: tuple[int, ...], compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not compiled:
        monkeypatch.setattr(windows_kernel, "load", lambda: None)
    x = torch.randn(PLANE, generator=torch.Generator().manual_seed(1))
    x.view(-1)[::37] = float("nan")
    wide = pad(x, sides)
    e = _exponents(wide.shape[:-1], 3)
    assert torch.equal(windows.plane(x, sides, e), contraction.quantise(wide, e.i32))


def test_without_the_kernel_the_bits_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows_kernel, "load", lambda: None)
    _same(_unfolded(_quantised(PLANE, 1)), Windows.whole(_quantised((5, 48), 2)))
