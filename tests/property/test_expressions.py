"""Random expressions of PyTorch give PyTorch's values and gradients, at the edges of the numbers too."""

from __future__ import annotations

import random

import pytest
import torch

from tests.property.expressions import ALONE, ROWS, Found, Tree, numbers, run

KNOWN = {"std", "prod", "cumprod", "logcumsumexp", "remainder", "fmod", "mod_0.1", "sin", "cos", "tan"}
"""Those that stand in docs/operations.md, or (logcumsumexp) whose gradient PyTorch's own misses."""


SIGNS = {"atan2", "trunc_divide", "div", "floor_divide"}
"""Which tell the sign of a zero."""
SPREAD = {"cummax", "cummin"}
"""Operations whose gradient is NaN in a whole row if one element of it is Inf."""


def unexplained(found: Found, known: set[str] = KNOWN) -> list[str]:
    return [f"{tree}: {said}" for tree, said in found.wrong if not known & set(tree.names())]


def test_a_wrong_result_would_be_found() -> None:
    found, tree = Found(), Tree("tanh", (Tree("0"),))
    inputs = numbers(random.Random(0), whole=False)
    native = [torch.tanh(inputs[0]), *(torch.ones_like(x) for x in inputs)]
    good = [torch.ones_like(x, dtype=torch.bool) for x in native]
    found._note(tree, inputs, [native[0] * 1.01, *native[1:]], native, good)
    assert len(found.wrong) == 1 and "value" in found.wrong[0][1]


@pytest.mark.long
def test_every_operation_alone() -> None:
    found = run(len(ALONE) * ROWS, 3)
    assert found.draws == len(ALONE) * ROWS and not found.refused
    assert not unexplained(found, KNOWN | SIGNS)


@pytest.mark.slow
def test_trees_of_operations() -> None:
    assert not unexplained(run(30_000, 4), KNOWN | SIGNS | SPREAD)
