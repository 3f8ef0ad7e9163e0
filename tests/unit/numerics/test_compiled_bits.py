"""Compiled code gives the bits of the eager definition."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from assay.program.isa import Family, Op
from assay.program.kernels import REFERENCE
from tests.unit.numerics import patterns as p

UNARY = [op.word for op in Op.of(Family.UNARY)]
BINARY = [op.word for op in Op.of(Family.BINARY, Family.COMPARISON)]


def elementwise(a: Tensor, b: Tensor) -> list[Tensor]:
    results = [REFERENCE[op](a) for op in UNARY] + [REFERENCE[op](a, b) for op in BINARY]
    return [*results, REFERENCE["convert"](a, dtype=torch.int32)]


def contractions(x: Tensor, idx: Tensor) -> list[Tensor]:
    e = REFERENCE["exponent"](x)
    q = REFERENCE["quantise"](x, e)
    results = [REFERENCE[op](x) for op in ("sum", "amax", "argmax")]
    return [*results, e, q, REFERENCE["product"](q, e, q, e), REFERENCE["scatter_sum"](x, idx, V=33)]


@pytest.mark.slow
def test_compiled_equals_eager_on_every_bit() -> None:
    a = p.tensor(p.unary(seed=1, count=20_000))
    b = p.tensor(p.unary(seed=2, count=20_000))[
        torch.randperm(len(a), generator=torch.Generator().manual_seed(0))
    ]
    x = a[: len(a) // 64 * 64].view(-1, 64)
    idx = torch.arange(64, dtype=torch.int32) * 7 % 37 - 2
    for function, operands in ((elementwise, (a, b)), (contractions, (x, idx))):
        compiled = torch.compile(function, fullgraph=True)(*operands)
        for place, (want, got) in enumerate(zip(function(*operands), compiled, strict=True)):
            assert want.dtype == got.dtype
            assert (p.bits(want) == p.bits(got)).all(), (function.__name__, place)
