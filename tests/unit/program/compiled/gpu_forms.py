"""Programs of products in the form that they have for a GPU, on a processor."""

from __future__ import annotations

import pytest

from assay.numerics import fused
from assay.program.build import ProgramBuilder
from assay.program.compiled import operands
from assay.program.isa import Input


@pytest.fixture
def gpu_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything takes the form that it has for a GPU, small matrices too."""
    monkeypatch.setattr(fused, "on_processor", lambda x: False)
    monkeypatch.setattr(operands, "LEAST_ELEMENTS", 1)


def product(b: ProgramBuilder, x: Input, y: Input) -> Input:
    """A product whose operands are quantised by their own exponents."""
    ex, ey = b.exponent(x), b.exponent(y)
    return b.product(b.quantise(x, ex), ex, b.quantise(y, ey), ey)
