"""Small models of the field's textbooks: traced, one step of loss and gradient, against native fp32.

Contract: the loss is within `LOSS` of PyTorch's, relatively, and the gradient, as one vector, within
`GRADIENT`: products keep 14 bits of each operand, so single entries that cancel may differ by more.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.marked import only
from tests.unit.program.lowered import both
from tests.zoo.models import ZOO, Entry

LOSS, GRADIENT = 1e-3, 5e-3
QUICK = (
    *("vector_quantised", "deep_learning_recommender", "graph_isomorphism", "learned_ranking"),
    *("fourier_mixing", "deep_q", "generator_of_pictures", "gpt"),
)
"""Those of every test run: sorted, scattered, looked up, transposed, transformed, attended."""


def errors(entry: Entry) -> tuple[float, float]:
    """Relative errors of the program's loss and of its gradient as one vector."""
    names = [name for name, _ in entry.model.named_parameters()]
    params = [p.detach().clone() for p in entry.model.parameters()]

    def step(*given: Tensor) -> list[Tensor]:
        leaves = [p.detach().requires_grad_() for p in given[: len(names)]]
        with torch.enable_grad():
            held = dict(zip(names, leaves, strict=True))
            loss = torch.func.functional_call(entry.model, held, given[len(names) : -1])
        found = torch.autograd.grad(loss, leaves, allow_unused=True)
        grads = [torch.zeros_like(p) if g is None else g for p, g in zip(leaves, found, strict=True)]
        return [loss.detach(), *grads]

    ours, native = both(step, *params, *entry.inputs)
    mine, theirs = (torch.cat([g.flatten() for g in x[1:]]) for x in (ours, native))
    assert torch.isfinite(theirs).all() and theirs.norm() > 1e-4, "the model itself learns"
    loss = abs(ours[0].item() - native[0].item()) / max(abs(native[0].item()), 0.1)
    return loss, ((mine - theirs).norm() / theirs.norm()).item()


@pytest.mark.parametrize("name", only(QUICK, sorted(ZOO)))
def test_loss_and_gradient_are_those_of_native_fp32(name: str) -> None:
    loss, gradient = errors(ZOO[name]())
    print(f"zoo {name}: loss {loss:.1e}, gradient {gradient:.1e}")
    assert loss <= LOSS, f"{name}: the loss is {loss:.1e} away"
    assert gradient <= GRADIENT, f"{name}: the gradient is {gradient:.1e} away"
