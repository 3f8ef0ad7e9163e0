"""Counter-made inputs: the same forever, and hard; and the comparison that reports what differs."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch

from assay.numerics import patterns
from assay.numerics.bits import Difference, differences
from assay.program.fault import flip_lowest_bit


def test_the_counter_gives_the_published_sequence() -> None:
    """SplitMix64 from state 0 (Steele, Lea, Flood 2014): its first outputs."""
    assert [hex(int(w)) for w in patterns.words(0, 3)] == [
        "0xe220a8397b1dcdaf",
        "0x6e789e6aa1b965f4",
        "0x6c45d188009454f",
    ]


def test_inputs_never_change() -> None:
    """Stored digests depend on every one of these bytes."""
    made = [
        patterns.f32(3, 5000),
        *patterns.f32_pairs(4, 9000),
        patterns.i32(5, 100),
        patterns.exponents(6, 100),
        patterns.indices(7, 100, 33),
        patterns.rows(8, 36, 65),
        patterns.uniform(9, 100, -4).numpy(),
    ]
    whole = hashlib.sha256(b"".join(np.ascontiguousarray(x).tobytes() for x in made)).hexdigest()
    assert whole == "6b5a945b8f697bf1e1cd834f20262d4f7a7954aaaaaa61bb04b6e6ba6b6f4b00"


def test_numbers_of_every_kind_are_among_them() -> None:
    x = patterns.f32(1, 1 << 16)
    magnitude = x & 0x7FFFFFFF
    assert set(patterns.special().tolist()) <= set(x.tolist())
    for kind in (magnitude > 0x7F800000, magnitude == 0x7F800000, magnitude == 0):
        assert kind.any()
    assert (magnitude < 0x800000).mean() > 0.03
    a, b = patterns.f32_pairs(2, 1 << 16)
    assert ((a ^ b) == 0x80000000).any()
    assert (a == b).mean() > 0.1


def test_rows_cancel_poison_and_tie() -> None:
    rows = patterns.rows(1, 1200, 64)
    with np.errstate(invalid="ignore"):
        x = rows.view(np.float32).astype(np.float64)
    finite = np.isfinite(x).all(1)
    with np.errstate(all="ignore"):
        cancelled = finite & (np.abs(x.sum(1)) < 1e-6 * np.abs(x).max(1)) & (np.abs(x).max(1) > 0)
    assert cancelled.sum() >= 60
    assert (np.isinf(x).any(1) & ~np.isnan(x).any(1)).sum() >= 100
    assert np.isnan(x).any(1).sum() >= 50
    scaled = np.ldexp(x[finite], (139 - (rows[finite].max(1) >> 23 & 255).astype(int))[:, None])
    assert (np.abs(scaled % 1) == 0.5).any()


def test_one_flipped_bit_is_reported_with_its_place() -> None:
    x = patterns.numbers(patterns.f32(1, 6000))
    place = 4321
    changed = flip_lowest_bit(x, place)
    before = int(x.view(torch.int32)[place]) % 2**32
    assert differences(changed, x) == (1, [Difference(place, before ^ 1, before)])
    assert differences(x, x.clone()) == (0, [])


def test_nans_are_one_value_and_zeros_are_two() -> None:
    a = patterns.numbers(np.array([0x7FC00000, 0xFFFFFFFF, 0, 0x80000000], dtype=np.uint32))
    b = patterns.numbers(np.array([0x7F800001, 0x7FC00000, 0, 0], dtype=np.uint32))
    assert differences(a, b) == (1, [Difference(3, 0x80000000, 0)])


def test_tensors_that_do_not_correspond_are_refused() -> None:
    with pytest.raises(ValueError, match="compared with"):
        differences(torch.zeros(2), torch.zeros(3))
    with pytest.raises(ValueError, match="compared with"):
        differences(torch.zeros(2), torch.zeros(2, dtype=torch.int32))
