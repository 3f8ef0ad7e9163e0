"""Running plain PyTorch functions as programs, for tests of tracing and lowering."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from assay.program.execute import Executor, Records, StepContext
from assay.program.isa import Program
from assay.program.lowering import lower_step
from assay.program.lowering.tracing import trace_step
from assay.program.validate import validate

Function = Callable[..., Sequence[Tensor]]
RECORD = bytes([1, 3, 0, 2])
BATCH = torch.tensor([list(RECORD)] * 3, dtype=torch.uint8)
"""The batch of every function here: the dataset's one record, three times."""


def _stored(x: Tensor) -> Tensor:
    return x.to(torch.int32) if x.dtype == torch.int64 else x


def lowered(function: Function, inputs: Sequence[Tensor], batch: Tensor = BATCH) -> Program:
    """A validated program whose state is the inputs, then one slot for each of the function's results."""
    results = [torch.zeros_like(y) for y in function(*[x.clone() for x in inputs], batch)]

    def step(state: list[Tensor], rows: Tensor) -> list[Tensor]:
        given = state[: len(inputs)]
        return [*given, *function(*[x.clone() for x in given], rows)]

    program = lower_step(trace_step(step, [*inputs, *results], batch), params=1)
    validate(program, batch.shape[1], max_bytes=1 << 30, max_operations=1 << 36)
    return program


def both(function: Function, *inputs: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """(results of the program, results of native PyTorch) for a function of the inputs and the batch."""
    program = lowered(function, inputs)
    dataset = Records(RECORD, len(RECORD))
    native = [_stored(y) for y in function(*[x.clone() for x in inputs], BATCH)]
    slots = program.state[len(inputs) :]
    genesis = [
        *map(_stored, inputs),
        *(torch.zeros(n.shape, dtype=y.dtype) for n, y in zip(slots, native, strict=True)),
    ]
    after = Executor(program).step(genesis, StepContext(dataset, bytes(32), 0, 0))
    return after[len(inputs) :], native


def agree(function: Function, *inputs: Tensor, relative: float = 1e-5) -> None:
    """Program and PyTorch give the same shapes and dtypes, and values up to a relative error of the norm."""
    ours, native = both(function, *inputs)
    for x, y in zip(ours, native, strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        if y.dtype != torch.float32:
            assert torch.equal(x, y)
            continue
        assert torch.equal(torch.isnan(x), torch.isnan(y)) and torch.equal(torch.isinf(x), torch.isinf(y))
        x, y = (torch.nan_to_num(z, nan=0.0, posinf=1.0, neginf=-1.0) for z in (x, y))
        assert (x - y).norm() <= relative * y.norm() + 1e-12, f"{x} != {y}"
