"""Running stages without processes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from assay.program.execute import Executor, StepContext
from assay.program.kernels import REFERENCE
from assay.program.stage_executor import StageExecutor
from assay.program.stages import Plan
from assay.program.state import slot_tree


def step_in_stages(plan: Plan, state: Sequence[Tensor], context: StepContext) -> list[Tensor]:
    """The next state, each stage being given what the whole program computes; what it sends is compared with
    that, by roots."""
    seen: dict[int, Tensor] = {}
    Executor(plan.whole).step(state, context, observe=lambda index, x: seen.update({index: x}))
    after: list[Tensor] = [torch.empty(0)] * plan.whole.slots
    for stage in plan.stages:
        sent: dict[int, Tensor] = {}
        executor = StageExecutor(stage, kernels=REFERENCE)
        own = [state[slot] for slot in stage.slots]
        made = executor.step(own, context, seen.__getitem__, sent.__setitem__)
        after = [dict(zip(stage.slots, made, strict=True)).get(slot, x) for slot, x in enumerate(after)]
        assert list(sent) == list(stage.sent)
        for node, x in sent.items():
            assert slot_tree([x], 0).root == slot_tree([seen[node]], 0).root, node
    return after
