"""The constants in docs/arithmetic.md and in the code are the same bits."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from assay.numerics import constants as c

DOCUMENT = (Path(__file__).parents[3] / "docs" / "arithmetic.md").read_text()


@pytest.mark.parametrize(
    ("letter", "bits"), [("E", c.EXPM1_BITS), ("L", c.LOG_BITS), ("S", c.SIN_BITS), ("C", c.COS_BITS)]
)
def test_polynomial_in_the_document_is_the_one_in_the_code(letter: str, bits: tuple[int, ...]) -> None:
    found = re.findall(rf"\b{letter}(\d)\s`0x([0-9a-f]{{16}})`", DOCUMENT)
    assert [(int(i), int(pattern, 16)) for i, pattern in found] == list(enumerate(bits))


@pytest.mark.parametrize("name", ["INV_LN2", "LN2_HI", "LN2_LO", "SQRT_HALF_BITS", "TWO_OVER_PI"])
def test_constant_in_the_document_is_the_one_in_the_code(name: str) -> None:
    bits = getattr(c, name if name.endswith("_BITS") else f"{name}_BITS")
    assert f"| {name} | `{bits:#018x}` |" in DOCUMENT


def test_pi_and_erf_tables_in_the_document_are_those_in_the_code() -> None:
    for i, bits in enumerate(c.PIO2_BITS):
        assert f"| PIO2_{i + 1} | `{bits:#018x}` |" in DOCUMENT
    for degree in range(13):
        cells = " | ".join(f"`{row[degree]:#018x}`" for row in c.ERF_BITS)
        assert f"| {degree} | {cells} |" in DOCUMENT
