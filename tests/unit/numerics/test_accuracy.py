"""Transcendentals against the standard library: correctly rounded wherever its binary64 result decides."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from assay.program.kernels import REFERENCE
from tests.unit.numerics import patterns as p

FUNCTIONS: dict[str, tuple[Callable[[float], float], float, float]] = {
    "exp": (math.exp, -103.0, 88.7),
    "log": (math.log, 2.0**-149, 3.4e38),
    "tanh": (math.tanh, -10.0, 10.0),
    "erf": (math.erf, -4.5, 4.5),
    "sin": (math.sin, -(2.0**29) + 32, 2.0**29 - 32),
    "cos": (math.cos, -(2.0**29) + 32, 2.0**29 - 32),
}
LIBRARY_ERROR = 2.0**-50


def inputs(low: float, high: float, seed: int) -> np.ndarray:
    """f32 values in [low, high]: half uniform, half of log-uniform magnitude."""
    generator = np.random.default_rng(seed)
    tiny = max(low, 2.0**-60)
    magnitude = np.exp(generator.uniform(math.log(tiny), math.log(high), 12_000))
    signed = magnitude * np.where(low < 0, generator.choice([-1.0, 1.0], 12_000), 1.0)
    values = np.concatenate([generator.uniform(low, high, 12_000), np.clip(signed, low, high)])
    return values.astype(np.float32)


@pytest.mark.parametrize("op", FUNCTIONS)
def test_result_is_the_correctly_rounded_one(op: str) -> None:
    exact, low, high = FUNCTIONS[op]
    x = inputs(low, high, seed=len(op))
    near = np.array([exact(float(v)) for v in x])
    below, above = ((near * (1 + d)).astype(np.float32) for d in (-LIBRARY_ERROR, LIBRARY_ERROR))
    decided = below.view(np.uint32) == above.view(np.uint32)
    assert decided.mean() > 0.999
    got = p.bits(REFERENCE[op](p.tensor(x.view(np.uint32))))
    assert (got[decided] == below.view(np.uint32)[decided]).all()


def test_pow_is_the_correctly_rounded_one_away_from_ties() -> None:
    generator = np.random.default_rng(4)
    x = np.exp(generator.uniform(-20, 20, 20_000)).astype(np.float32)
    y = generator.uniform(-4, 4, 20_000).astype(np.float32)
    near = np.power(x.astype(np.float64), y.astype(np.float64))
    below, above = ((near * (1 + d)).astype(np.float32) for d in (-(2.0**-44), 2.0**-44))
    decided = below.view(np.uint32) == above.view(np.uint32)
    assert decided.mean() > 0.999
    got = p.bits(REFERENCE["pow"](p.tensor(x.view(np.uint32)), p.tensor(y.view(np.uint32))))
    assert (got[decided] == below.view(np.uint32)[decided]).all()


@pytest.mark.parametrize(
    ("op", "x", "want"),
    [
        ("log", 0x3C413D3A, 0xC08E1590),
        ("log", 0x41178FEB, 0x400FE5E8),
        ("log", 0x4C5D65A5, 0x418F034A),
        ("log", 0x65D890D3, 0x4254D1F8),
        ("log", 0x6F31A8EC, 0x42845A88),
        ("exp", 0xC16912CD, 0x34FD331B),
        ("erf", 0x3FE00000, 0x3F7C9684),
        ("tanh", 0x3F000000, 0x3EEC9A9F),
        ("sin", 0x4DEE6B28, 0xBE91C4BB),
        ("cos", 0x47C35000, 0xBF7FD61C),
    ],
)
def test_documented_result_of_a_hard_input(op: str, x: int, want: int) -> None:
    got = p.bits(REFERENCE[op](p.tensor(np.array([x], dtype=np.uint32))))[0]
    assert hex(got) == hex(want)
    assert hex(p.by_model(op, x)) == hex(want)
