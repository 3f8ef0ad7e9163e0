"""Models of other people's libraries, traced as they are written: one step of loss and gradient against
native fp32, by the road that a job takes.

`make zoo` installs the libraries and runs this; elsewhere those run that are installed.

Contract: the loss is within `LOSS` of PyTorch's, relatively, and the gradient, as one vector, within
`GRADIENT`, with whole operands; a deep network of batch norms on four rows, whose gradient in native fp32 is
far from float64's, within three times that distance.
"""

from __future__ import annotations

import copy
import importlib.util
import random
from collections.abc import Mapping

import pytest
import torch
from torch import Tensor, nn

from assay.program.execute import Executor, Records, StepContext
from assay.program.lowering import lower_step
from assay.program.operand_parts import Precision
from assay.training.job import step_function, traced
from assay.training.precision import as_stored
from tests.zoo.published import PUBLISHED, VOCABULARY, Published

LOSS, GRADIENT = 1e-4, 5e-3
WORST = 0.1
"""Of how far native fp32's own gradient may be from float64's: a network further from it shows nothing."""
HERE = [name for name, entry in PUBLISHED.items() if importlib.util.find_spec(entry.library)]


class _Gradients:
    """An optimiser whose state is the gradient."""

    def genesis(self, params: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {f"grad.{name}": torch.zeros_like(p) for name, p in params.items()}

    def update(
        self, params: Mapping[str, Tensor], grads: Mapping[str, Tensor], state: Mapping[str, Tensor]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        return dict(params), {f"grad.{name}": g for name, g in grads.items()}


def distance(model: nn.Module, entry: Published, rows: Tensor) -> float:
    """How far the gradient in native fp32 is from that in float64, relatively."""
    inputs, targets = entry.layout.split(rows)

    def gradient(of: nn.Module, x: Tensor) -> Tensor:
        found = torch.autograd.grad(
            entry.loss(of(x), targets), [p for p in of.parameters() if p.requires_grad], allow_unused=True
        )
        return torch.cat([g.flatten().double() for g in found if g is not None])

    double = copy.deepcopy(model).double()
    exact = gradient(double, inputs.double() if inputs.is_floating_point() else inputs)
    return ((gradient(model, inputs) - exact).norm() / exact.norm()).item()


def errors(entry: Published) -> tuple[float, float, float]:
    """Relative errors of the program's loss and of its gradient as one vector, and native fp32's own."""
    model, optimiser, size = entry.model(), _Gradients(), entry.layout.record_size
    genesis, graph, _ = traced(model, entry.loss, optimiser, entry.layout, entry.rows)
    state, step = list(genesis.values()), step_function(model, entry.loss, optimiser, entry.layout)
    draw = random.Random(5)
    records = Records(bytes(draw.randrange(3, VOCABULARY) for _ in range(size * entry.rows)), size)
    seed = bytes(32)
    rows = records.gather([records.index(seed, 0, 0, row) for row in range(entry.rows)], 0, size)
    params = sum(p.requires_grad for p in model.parameters())
    program = lower_step(graph, params=params, choose=lambda _: Precision.FULL)
    native = step([x.clone() for x in state], rows)
    own = distance(copy.deepcopy(model), entry, rows)
    ours = Executor(program).step(as_stored(state, list(genesis)), StepContext(records, seed, 0, 0))
    at = [i for i, name in enumerate(genesis) if name.startswith("grad.")]
    mine, theirs = (torch.cat([x[i].flatten() for i in at]) for x in (ours, native))
    assert torch.isfinite(theirs).all() and theirs.norm() > 1e-6, "the model itself learns"
    loss = abs(ours[-1].item() - native[-1].item()) / max(abs(native[-1].item()), 0.1)
    return loss, ((mine - theirs).norm() / theirs.norm()).item(), own


@pytest.mark.slow
@pytest.mark.parametrize("name", HERE)
def test_loss_and_gradient_are_those_of_native_fp32(name: str) -> None:
    torch.set_num_threads(1)
    loss, gradient, own = errors(PUBLISHED[name])
    print(f"published {name}: loss {loss:.1e}, gradient {gradient:.1e}, native's own {own:.1e}")
    if PUBLISHED[name].chaotic:
        assert own > WORST
        return
    assert loss <= LOSS, f"{name}: the loss is {loss:.1e} away"
    assert own <= WORST and gradient <= max(GRADIENT, 3 * own), f"{name}: the gradient is {gradient:.1e} away"
