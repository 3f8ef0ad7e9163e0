"""The benchmark of accuracy: its operands have the outliers that they should have, and auto answers them."""

from __future__ import annotations

import torch

from assay.program.accuracy import errors, rows_of
from assay.program.parts import Precision
from scripts.bench import accuracy as bench
from scripts.bench.outliers import PLANTED, Llama, Masked

torch.set_num_threads(1)


def test_no_distribution_is_worse_than_bf16_as_auto_chooses_and_some_are_without() -> None:
    found = bench.of_distributions()
    assert len(found) == 6
    for name, case in found.items():
        assert case["over_bf16"][case["auto"]] <= 1, name
        assert case["relative"][case["auto"]] <= case["relative"]["bf16"], name
    hidden = found["one column × 30,000, weight 0"]
    assert hidden["relative"]["single"] > 0.5 and hidden["auto"] == Precision.LEFT.value
    assert found["Gaussian"]["auto"] == Precision.SINGLE.value


def test_numbers_that_bf16_does_not_have_either_are_no_error() -> None:
    """Gradients of a saturated softmax: below bfloat16's least number, and below what quantise keeps."""
    tiny, ordinary = torch.full((4, 8), 1e-42), torch.randn(4, 8)
    found = errors(rows_of(tiny), rows_of(ordinary), Precision)
    assert all(0 < error.whole < 1 and error.line < 1 for error in found.values())


def test_planting_changes_no_function_and_makes_outliers() -> None:
    torch.manual_seed(0)
    model, tokens = Llama(), torch.randint(256, (2, 32))
    before = model(tokens)
    model.plant()
    assert torch.equal(model(tokens), before)
    for block in model.blocks:
        weight = block.up.weight.detach().abs().amax(1)
        assert float(weight.max() / weight.median()) > PLANTED / 8


def test_the_masked_feature_takes_no_part() -> None:
    model, x = Masked(), torch.rand(4, 64)
    before = model(x)
    with torch.no_grad():
        model.scale.fill_(1.0)
    assert torch.allclose(model(x), before, atol=1e-6)
