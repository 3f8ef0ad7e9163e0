"""Members of a crew that change one bit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from assay.compute.orders import WorkerContext
from assay.program.execute import StepContext
from assay.program.fault import StateFault
from assay.program.stage_executor import StageExecutor
from assay.program.state import begin_roots
from assay.solver.crew_node import CrewService
from assay.solver.crew_orders import TrainCrew, Trained
from assay.solver.crew_task import CrewTask, trained

if TYPE_CHECKING:
    from assay.node.job_cache import OpenJob

LIE = StateFault(step=6, slot=0, element=0)
"""Of the liar's own slots."""


class LyingTask(CrewTask):
    """A stage whose first slot is wrong from a step on, and which signs that."""

    def _step(self, executor: Any, lines: Any, state: list[Tensor], context: StepContext) -> Any:
        after, told = super()._step(executor, lines, state, context)
        after = LIE.state(context.step, after)
        return after, replace(told, slots=begin_roots(after)())


class _Falsely:
    """An executor that sends another tensor than it has computed, once."""

    def __init__(self, executor: StageExecutor) -> None:
        self.stage, self._executor = executor.stage, executor

    def step(self, state: Any, context: StepContext, receive: Any, send: Any) -> list[Tensor]:
        def falsely(node: int, x: Tensor) -> None:
            if (context.step, node) == (LIE.step, self.stage.sent[0]):
                x = x.clone()
                x.view(-1).view(torch.int32)[0] ^= 1 << 22
            send(node, x)

        return self._executor.step(state, context, receive, falsely)


class LyingSender(CrewTask):
    """A stage whose first tensor of a step is not what it sends, and which signs that."""

    def _step(self, executor: Any, lines: Any, state: list[Tensor], context: StepContext) -> Any:
        return super()._step(cast(StageExecutor, _Falsely(executor)), lines, state, context)


@dataclass(frozen=True)
class TrainFalsely(TrainCrew):
    def do(self, job: OpenJob, context: WorkerContext) -> Trained:
        return trained(self, job, context, LyingSender)


class LyingService(CrewService):
    task = TrainFalsely
