"""Running stages without processes, in the order of the whole program."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from assay.program.execute import Executor, StepContext, own, prepared
from assay.program.isa import Op
from assay.program.kernels import REFERENCE
from assay.program.stages import Plan


def step_in_stages(plan: Plan, state: Sequence[Tensor], context: StepContext) -> list[Tensor]:
    """The next state, each stage having computed its own slots from what the others' programs gave."""
    seen: dict[int, Tensor] = {}
    Executor(plan.whole).step(state, context, observe=lambda index, x: seen.update({index: x}))
    after: list[Tensor] = [torch.empty(0)] * plan.whole.slots
    for stage in plan.stages:
        program = stage.program
        tensors: list[Tensor | None] = [None] * len(program.nodes)
        for at, slot in enumerate(stage.slots):
            tensors[at] = state[slot]
        for at, received in enumerate(stage.received, start=len(stage.slots)):
            tensors[at] = seen[received]
        for index, node in enumerate(program.nodes):
            if node.op is not Op.STATE:
                compute = prepared(node, REFERENCE, torch.device("cpu"))
                tensors[index] = compute(context, tensors)  # type: ignore[arg-type]
        for slot, ref in zip(stage.slots, program.outputs, strict=False):
            made = tensors[ref]
            assert made is not None, "an output was never computed"
            after[slot] = own(made)
        first = program.slots - len(stage.sent)
        for sent, ref in zip(stage.sent, program.outputs[first:], strict=True):
            made = tensors[ref]
            assert made is not None, "what is sent was never computed"
            assert torch.equal(made.nan_to_num(7.0), seen[sent].nan_to_num(7.0)), sent
    return after
