"""Lowers steps that read no records: compression, outer steps, rollouts, learners."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from assay.program.isa import Program
from assay.program.lowering.graph import lower_step
from assay.program.lowering.tracing import StepFunction, trace_step

NO_RECORD = torch.zeros((1, 1), dtype=torch.uint8)
"""Dummy batch of such a step, u8 [1, 1]."""


def lowered(step: StepFunction, state: Sequence[Tensor], params: int) -> Program:
    """Lowers `step` for a state of these shapes and dtypes; the first `params` slots are parameters.

    Raises UnsupportedOperation.
    """
    return lower_step(trace_step(step, state, NO_RECORD), params=params)
