"""A copied model computes with its own tensors, even if the model keeps functions over its parts."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.training.copies import copied, evaluating


class Closures(nn.Module):
    """minGPT's block: its feed-forward part is a lambda over a dictionary of layers."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        linear = nn.Linear(3, 3)
        self.mlp = nn.ModuleDict({"fc": linear, "drop": nn.Dropout(0.5)})
        parts, fc = self.mlp, linear
        inner: Any = lambda x: parts["drop"](fc(x))  # noqa: E731
        calls: dict[str, Any] = {
            "lambda": inner,
            "partial": partial(lambda f, x: f(x), inner),
            "list": [inner],
            "self": lambda x: self.mlp["fc"](x),
            "layer": lambda x: fc(x),
        }
        self.call = calls[kind]
        fc.register_forward_hook(lambda _, __, y: y * fc.bias.sum())

    def forward(self, x: Tensor) -> Tensor:
        call = self.call[0] if isinstance(self.call, list) else self.call
        made: Tensor = call(x)
        return made


@pytest.mark.parametrize("kind", ["lambda", "partial", "list", "self", "layer"])
def test_functions_of_a_copy_are_over_its_own_parts(kind: str) -> None:
    torch.manual_seed(0)
    model = Closures(kind).eval()
    x, before = torch.ones(1, 3), model(torch.ones(1, 3))
    made = copied(model)
    assert torch.equal(made(x), before)
    with torch.no_grad():
        for p in made.parameters():
            p.zero_()
    assert torch.equal(made(x), torch.zeros(1, 3)) and torch.equal(model(x), before)


def test_a_model_is_in_evaluation_mode_for_a_while() -> None:
    model = Closures("lambda")
    model.mlp["drop"].eval()
    with evaluating(model):
        assert not any(part.training for part in model.modules())
    assert model.training and model.mlp["fc"].training and not model.mlp["drop"].training
