"""A strided node as views: the elements that its offset and strides name."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from assay.program.compiled.affine import digits, strided


def elements(x: torch.Tensor, shape: list[int], offset: int, strides: list[int]) -> list[float]:
    """By the definition: out[i] = x_flat[offset + sum of i_d * stride_d]."""
    at = [offset]
    for size, stride in zip(shape, strides, strict=True):
        at = [a + i * stride for a in at for i in range(size)]
    return [x.view(-1)[a].item() for a in at]


@given(st.data())
def test_every_valid_view_has_the_elements_it_names(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    x = torch.arange(torch.Size(sizes).numel(), dtype=torch.float32).view(sizes)
    shape = data.draw(st.lists(st.integers(1, 4), max_size=4))
    strides = data.draw(st.lists(st.integers(-6, 12), min_size=len(shape), max_size=len(shape)))
    low = sum(min(0, (n - 1) * s) for n, s in zip(shape, strides, strict=True))
    high = sum(max(0, (n - 1) * s) for n, s in zip(shape, strides, strict=True))
    if high - low >= x.numel():
        strides, low, high = [0] * len(shape), 0, 0
    offset = data.draw(st.integers(-low, x.numel() - 1 - high))
    made = strided(x, shape, offset, strides)
    assert list(made.shape) == shape
    assert made.reshape(-1).tolist() == elements(x, shape, offset, strides)


@given(st.permutations(range(4)), st.integers(0, 2))
def test_transposes_and_slices_are_views_of_digits(order: list[int], start: int) -> None:
    x = torch.arange(2 * 3 * 4 * 5, dtype=torch.int32).view(2, 3, 4, 5)
    wanted = x.permute(order)
    made = strided(x, list(wanted.shape), 0, list(wanted.stride()))
    assert torch.equal(made, wanted)
    assert digits(x.numel(), wanted.shape, 0, wanted.stride()) is not None
    part = x[:, start : start + 1, 1:3]
    assert torch.equal(strided(x, list(part.shape), int(part.storage_offset()), list(part.stride())), part)


def test_overlapping_windows_are_not_digits() -> None:
    assert digits(10, (4, 3), 0, (2, 1)) is None
    x = torch.arange(10, dtype=torch.float32)
    assert strided(x, [4, 3], 0, [2, 1]).tolist() == [[0, 1, 2], [2, 3, 4], [4, 5, 6], [6, 7, 8]]
