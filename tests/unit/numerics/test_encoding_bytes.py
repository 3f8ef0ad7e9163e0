"""Tensors and their canonical bytes correspond one to one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from assay.numerics.encoding import EncodingError, from_bytes, to_bytes
from tests.unit.numerics import patterns as p


def test_every_nan_has_the_same_bytes() -> None:
    x = p.tensor(
        np.array([0xFFC00000, 0x7FFFFFFF, 0x7F800001, 0x7FC00000, 0x7F800000, 0x80000000], dtype=np.uint32)
    )
    before = p.bits(x.view(torch.int32))
    assert bytes(to_bytes(x)).hex() == "0000c07f" * 4 + "0000807f" + "00000080"
    assert (p.bits(x.view(torch.int32)) == before).all()


@pytest.mark.parametrize(
    ("tensor", "want"),
    [
        (torch.tensor([1, -2], dtype=torch.int32), "01000000feffffff"),
        (torch.tensor([1, -2], dtype=torch.int16), "0100feff"),
        (torch.tensor([1, 255], dtype=torch.uint8), "01ff"),
        (torch.tensor([True, False]), "0100"),
        (torch.tensor(1.0), "0000803f"),
        (torch.zeros(0), ""),
        (torch.tensor([[1, 2], [3, 4]], dtype=torch.uint8).t(), "01030204"),
    ],
)
def test_bytes_round_trip(tensor: torch.Tensor, want: str) -> None:
    data = to_bytes(tensor)
    assert bytes(data).hex() == want
    back = from_bytes(data, tensor.dtype, tuple(tensor.shape))
    assert back.dtype == tensor.dtype
    assert torch.equal(back, tensor)


def test_contiguous_tensor_without_nan_is_not_copied() -> None:
    x = torch.zeros(4)
    data = to_bytes(x)
    x[0] = 1.0
    assert bytes(data[:4]).hex() == "0000803f"


@pytest.mark.parametrize(
    ("data", "dtype", "shape"),
    [
        ("000080", torch.float32, (1,)),
        ("0000803f00", torch.float32, (1,)),
        ("02", torch.bool, (1,)),
        ("0000c0ff", torch.float32, (1,)),
        ("0100807f", torch.float32, (1,)),
        ("00" * 8, torch.float64, (1,)),
    ],
)
def test_other_bytes_are_refused(data: str, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    with pytest.raises(EncodingError):
        from_bytes(bytes.fromhex(data), dtype, shape)


def test_dtype_without_bytes_is_refused() -> None:
    with pytest.raises(EncodingError, match="has no bytes"):
        to_bytes(torch.zeros(1, dtype=torch.float64))
