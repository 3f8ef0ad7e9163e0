"""A wire's bytes: as many as the coding says, and back bit for bit."""

from __future__ import annotations

import math

import pytest
import torch

from assay.numerics.encoding import to_bytes
from assay.training.codings import E3M0, Bins, Coding, Integers, Largest, LowRank, Whole
from scripts.bench.packing import packed, unpacked

CODINGS = [
    Whole(),
    E3M0(8),
    E3M0(1024),
    Integers(4, 8),
    Integers(3, 64),
    LowRank(2),
    Bins(2, 8),
    Bins(8, 64),
    Largest(3, 4),
    Largest(3, 4, cosine=False),
    Largest(5, 4, cosine=False, values=Bins(2, 4)),
]


@pytest.mark.parametrize("coding", CODINGS, ids=str)
@pytest.mark.parametrize("shape", [(5, 9), (1,), (64,), (3,)])
def test_a_wire_comes_back_bit_for_bit_and_is_as_long_as_the_coding_says(
    coding: Coding, shape: tuple[int, ...]
) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))
    n = math.prod(shape)
    wire = coding.encode(x)
    data = packed(coding, wire, n)
    back = unpacked(coding, data, shape)
    assert [t.shape for t in back] == [t.shape for t in wire]
    assert [t.dtype for t in back] == [t.dtype for t in wire]
    assert to_bytes(coding.decode(back, shape)) == to_bytes(coding.decode(wire, shape))
    assert 0 <= 8 * len(data) - coding.bits(shape) < 8 * len(wire), "no tensor wastes a byte"


@pytest.mark.parametrize("change", [-1, 1])
def test_bytes_of_another_length_are_no_wire(change: int) -> None:
    coding = E3M0(8)
    data = packed(coding, coding.encode(torch.ones(20)), 20)
    spoiled = data + b"\0" if change > 0 else data[:-1]
    with pytest.raises(ValueError, match="no wire of 20 elements"):
        unpacked(coding, spoiled, (20,))


def test_a_strangers_coding_has_no_packing() -> None:
    with pytest.raises(TypeError, match="no packing"):
        packed(object(), (torch.ones(2),), 2)  # type: ignore[arg-type]
