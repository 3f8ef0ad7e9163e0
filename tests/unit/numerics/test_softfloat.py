"""The integer model's own rounding against the machine's IEEE-754 arithmetic, and its refusal to leave A5."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest

from assay.numerics import softfloat as sf


def _bits(x: float) -> int:
    return struct.unpack("<Q", struct.pack("<d", x))[0]


def test_f64_operations_equal_the_machine() -> None:
    generator = np.random.default_rng(0)
    a = generator.normal(size=4000) * np.exp2(generator.integers(-60, 60, 4000).astype(float))
    b = np.where(
        generator.random(4000) < 0.3,
        a * (1 + generator.normal(size=4000) * 1e-15),
        generator.normal(size=4000),
    )
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        u, v = sf.from_f64_bits(_bits(x)), sf.from_f64_bits(_bits(y))
        assert sf.to_f64_bits(sf.add(u, v)) == _bits(x + y)
        assert sf.to_f64_bits(sf.sub(u, v)) == _bits(x - y)
        assert sf.to_f64_bits(sf.mul(u, v)) == _bits(x * y)
        assert sf.to_f64_bits(sf.div(u, v)) == _bits(x / y)
        assert sf.rne(u) == round(x)
        assert sf.compare(u, v) == (x > y) - (x < y)


def test_f32_rounding_equals_the_machine_with_underflow_and_overflow() -> None:
    generator = np.random.default_rng(1)
    x = generator.normal(size=20_000) * np.exp2(generator.integers(-160, 132, 20_000).astype(float))
    ties = (generator.integers(0, 2**24, 4000) + 0.5) * np.exp2(
        generator.integers(-150, 100, 4000).astype(float)
    )
    for value in np.concatenate([x, ties]).tolist():
        with np.errstate(over="ignore", under="ignore"):
            want = int(np.float32(value).view(np.uint32))
        assert sf.round_f32(sf.from_f64_bits(_bits(value))) == want


def test_root_equals_the_machine_at_f32() -> None:
    generator = np.random.default_rng(2)
    for pattern in generator.integers(1, 0x7F800000, 4000).tolist():
        want = np.float32(math.sqrt(float(np.uint32(pattern).view(np.float32))))
        assert sf.round_f32(sf.sticky_root(sf.from_f32_bits(pattern))) == int(want.view(np.uint32))


def test_values_outside_the_promised_range_are_refused() -> None:
    with pytest.raises(OverflowError, match="outside A5"):
        sf.mul(sf.Dyadic(0, 1, 400), sf.Dyadic(0, 1, 400))
