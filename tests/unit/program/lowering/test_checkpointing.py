"""Activation checkpointing: same numbers, computed again, so that less is alive at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from assay.program.execute import Executor, Records, StepContext
from assay.program.isa import Op, Program
from assay.program.validate import measure
from assay.training import optimisers
from assay.training.datasets import Dataset, LabelledLayout
from assay.training.job import build_job
from assay.training.losses import cross_entropy
from assay.training.outer import DiLoCo
from tests.marked import long

How = Callable[[Callable[[Tensor], Tensor], Tensor], Tensor]
WIDTH, DEPTH, ROWS = 64, 4, 256


def called(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return function(x)


def without_reentry(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    made: Tensor = checkpoint(function, x, use_reentrant=False)
    return made


def with_reentry(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    made: Tensor = checkpoint(function, x, use_reentrant=True)
    return made


def nested(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Twice, one within the other: what is kept inside the outer call is nothing."""
    return without_reentry(lambda y: without_reentry(function, y), x)


class Deep(nn.Module):
    def __init__(self, how: How, dropout: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.how = how
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(WIDTH),
                nn.Linear(WIDTH, 4 * WIDTH),
                nn.GELU(),
                nn.Dropout(dropout),
                nn.Linear(4 * WIDTH, WIDTH),
            )
            for _ in range(DEPTH)
        )
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + self.how(block, x)
        return self.head(x)


def step_of(how: How, dropout: float) -> tuple[Program, list[Tensor]]:
    layout = LabelledLayout(WIDTH, 16.0)
    records = bytes((7 * i + 3) % 10 for i in range(layout.record_size * ROWS))
    made = build_job(
        Deep(how, dropout),
        cross_entropy,
        optimisers.Sgd(lr=0.1),
        Dataset(layout, records, b""),
        batch=ROWS,
        shards=1,
        outer=DiLoCo(),
    )
    context = StepContext(Records(records, layout.record_size), bytes(32), 0, 3)
    return made.inner, Executor(made.inner).step(made.genesis, context)


@pytest.mark.parametrize(
    ("how", "dropout"), [(without_reentry, 0.25), long(with_reentry, 0.0), long(nested, 0.25)]
)
def test_a_checkpointed_model_has_the_same_bits_and_keeps_less(how: How, dropout: float) -> None:
    plain, wanted = step_of(called, dropout)
    sparing, found = step_of(how, dropout)
    assert all(torch.equal(a, b) for a, b in zip(wanted, found, strict=True))
    erfs = [sum(node.op is Op.ERF for node in program.nodes) for program in (plain, sparing)]
    assert erfs[1] == erfs[0] + DEPTH, "every block's activation is computed again, once"
    assert measure(sparing).peak_bytes < 0.75 * measure(plain).peak_bytes


def test_sharing_ends_at_a_region_and_begins_anew_in_it() -> None:
    def model(x: Tensor) -> Tensor:
        return checkpoint(lambda y: torch.exp(y) * torch.exp(y), x, use_reentrant=False)

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(WIDTH, 10))

        def forward(self, x: Tensor) -> Tensor:
            return model(x @ self.weight)

    layout = LabelledLayout(WIDTH, 16.0)
    data = Dataset(layout, bytes(layout.record_size * 4), b"")
    rule = optimisers.Sgd(lr=0.1)
    made = build_job(Twice(), cross_entropy, rule, data, batch=4, shards=1, outer=DiLoCo())
    shaped = [node for node in made.inner.nodes if node.op is Op.EXP and node.shape == (4, 10)]
    assert len(shaped) == 3, "one in the forward pass, one computed again, and the softmax's"
