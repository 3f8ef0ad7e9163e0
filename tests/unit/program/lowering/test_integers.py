"""Bits of integers, and whole division, against PyTorch on int32."""

from __future__ import annotations

import pytest
import torch

from tests.unit.program.lowered import agree, lowered

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
