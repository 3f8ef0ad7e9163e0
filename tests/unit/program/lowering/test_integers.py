"""Bits of integers, and whole division, against PyTorch on int32."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from assay.program.isa import Op
from assay.program.lowering.tracing import UnsupportedOperation
from tests.unit.program.lowered import Function, agree, both, lowered

GENERATOR = torch.Generator().manual_seed(1)
EDGES = torch.tensor([0, 1, -1, 2, 255, 256, -256, 65535, 2**24 + 1, -(2**24) - 3, 2**31 - 1, -(2**31)])
ANY = torch.cat([EDGES.int(), torch.randint(-(2**31), 2**31, (500,), generator=GENERATOR).int()])
OTHER = ANY.flip(0).roll(3)


@pytest.mark.parametrize("by", [0, 1, 5, 8, 9, 16, 23, 30, 31])
def test_shifts(by: int) -> None:
    agree(lambda x, b: [x << by, x >> by], ANY)


@pytest.mark.parametrize("mask", [0, 1, 0xFF, 0x7FFFFFFF, -1, -(2**31), 0x0F0F0F0F, 0x00FFFF00, -256, 5])
def test_masks(mask: int) -> None:
    agree(lambda x, b: [x & mask, x | mask, x ^ mask, ~x], ANY)


def test_two_tensors() -> None:
    agree(lambda x, y, b: [x & y, x | y, x ^ y], ANY, OTHER)
    agree(lambda x, y, b: [(x > 0) & (y > 0), (x > 0) | (y > 0), (x > 0) ^ (y > 0), ~(x > 0)], ANY, OTHER)


@pytest.mark.parametrize("by", [1, 2, 3, 7, 64, 1000, 65537, -3, 2**30])
def test_whole_division_by_a_number(by: int) -> None:
    x = ANY[(ANY >= -(2**30)) & (ANY <= 2**30)]
    agree(lambda x, b: [x // by, x % by, torch.div(x, by, rounding_mode="trunc"), torch.fmod(x, by)], x)


def test_whole_division_of_the_largest() -> None:
    x = torch.tensor([2**31 - 1, 2**31 - 1, -(2**31) + 1, 1073741824, -1073741824, -1073741824, 5]).int()
    y = torch.tensor([1073741824, 2**31 - 1, 1073741823, 255, -1073741824, 2**31 - 1, -(2**31) + 1]).int()
    agree(lambda x, y, b: [x // y, x % y, torch.div(x, y, rounding_mode="trunc"), x % 1073741823], x, y)


def test_whole_division_by_a_tensor() -> None:
    x = ANY[(ANY >= -(2**30)) & (ANY <= 2**30)]
    y = torch.where(x.roll(7) == 0, 3, x.roll(7))
    small = torch.randint(1, 50, x.shape, generator=GENERATOR).int()
    agree(lambda x, y, b: [x // y, x % y], x, y)
    agree(lambda x, y, b: [x // y, x % y, torch.div(x, y, rounding_mode="trunc")], x, small)


def test_floats_to_whole_numbers() -> None:
    x = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, 2.4999998, 8388609.0, -3.7, 1e20, float("inf"), 0.0])
    agree(lambda x, b: [x.round(), x.trunc(), x[:-2].frac()], x)
    agree(lambda x, b: [x // 0.75, x % 0.75, torch.fmod(x, 0.75)], x[:8])


def test_bits_of_floats_and_back() -> None:
    x = torch.tensor([0.0, -0.0, 1.0, -2.5, 1e-45, float("inf")])
    agree(lambda x, b: [x.view(torch.int32), (x.view(torch.int32) + 1).view(torch.float32)], x)
    nan = torch.tensor([0x7F800001, -1], dtype=torch.int32)
    agree(lambda i, b: [i.view(torch.float32)], nan)


def test_a_shift_by_a_tensor_is_refused() -> None:
    with pytest.raises(Exception, match="by a number, not by a tensor"):
        lowered(lambda x, y, b: [x << y], [ANY, OTHER & 7])


X = torch.tensor([1.0, -1.0, 0.35, 0.3, -0.7, 123.456, 1e6, -8e5, 0.0])


@pytest.mark.parametrize("by", [0.1, -0.1, 0.3, 3.0, 2 * torch.pi, 1e-3, float("inf")])
def test_floats_are_divided_as_exactly_as_by_pytorch(by: float) -> None:
    def divided(x: Tensor, b: Tensor) -> list[Tensor]:
        return [torch.remainder(x, by), torch.fmod(x, by), x // by]

    x = X[X.abs() < 2**24 * abs(by)]
    ours, native = both(divided, x)
    assert torch.equal(ours[0], native[0]) and torch.equal(ours[1], native[1])
    exact = (x.double() / torch.tensor(by).double()).floor()  # PyTorch's own is one off at -8e5 // 0.1
    assert torch.equal(ours[2], native[2]) or torch.equal(ours[2].double(), exact)


BIG = torch.randint(-(2**31), 2**31, (3, 5000), generator=GENERATOR).int()


def test_what_has_no_quotient_is_no_number() -> None:
    x = torch.tensor([torch.inf, -torch.inf, torch.nan, 1.0, -1.0, 0.0])
    agree(lambda x, b: [torch.remainder(x, 0.3), x // 0.3, torch.remainder(x, 0.0), x[2:] // 0.0], x)


def test_sums_and_maxima_of_whole_numbers_are_exact() -> None:
    agree(
        lambda x, b: [x.sum(dtype=torch.int32), x.sum(1, dtype=torch.int32), x.amax(1), x.amax(), x.max()],
        BIG,
    )
    agree(lambda x, b: [x.sum((0, 2), keepdim=True, dtype=torch.int32)], BIG.view(3, 50, 100))
    agree(lambda x, b: [x.amax(0, keepdim=True), x.argmax(1), x.argmin(1)], BIG[:, :40])
    agree(lambda x, b: [(b.long() * 1000003).sum() % 1009, (x > 0).sum(1), (x > 0).long().sum()], BIG)


def test_a_sum_of_bools_is_one_row_sum() -> None:
    program = lowered(lambda x, b: [(x > 0).long().sum(1)], [BIG[:, :40]])
    assert sum(node.op is Op.SUM for node in program.nodes) == 1


@pytest.mark.parametrize(
    "function",
    [
        lambda x, b: [(b.long() + 2**40) % 1000],
        lambda x, b: [b.long() * 2654435761],
        lambda x, b: [b.long() & 0xFFFFFFFF],
        lambda x, b: [2**33 // (b.long() + 1)],
        lambda x, b: [b.long() == 2**40],
        lambda x, b: [b.long() + torch.tensor(2**40)],
        lambda x, b: [torch.full((2,), 2**40)],
    ],
)
def test_numbers_beyond_31_bits_are_refused_with_their_line(function: Function) -> None:
    with pytest.raises(UnsupportedOperation, match="is beyond 31 bits") as caught:
        lowered(function, [X])
    assert caught.value.source.partition(":")[0] == __file__
