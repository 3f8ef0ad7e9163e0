"""How a node computes: on which device, and whether its steps run compiled.

Contract: every choice gives the same bits (docs/arithmetic.md), so it is the operator's, and no consensus
parameter. `reference` is the definition; `eager` the same kernels with the fastest backends. `compiled`
compiles a job's inner program at its first step; `auto` does so where the job's steps make it worth while.
Outer programs run eagerly: they are one step a round. Not guaranteed: speed before a form is
ready.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from assay.program.compiled.warming import WarmingExecutor
from assay.program.execute import Executor
from assay.program.isa import Program
from assay.program.kernels import FAST, REFERENCE


class ExecutorKind(StrEnum):
    """How steps are executed."""

    AUTO = "auto"
    COMPILED = "compiled"
    EAGER = "eager"
    REFERENCE = "reference"


@dataclass(frozen=True)
class Engine:
    """Makes executors. `forms` is the operator's own folder of compiled forms; without one nothing is
    compiled. `brief`: this process ends soon, so it uses forms that are there and compiles none."""

    device: str = "cpu"
    way: ExecutorKind = ExecutorKind.REFERENCE
    forms: Path | None = None
    brief: bool = False

    def executor(self, program: Program, steps: int) -> Executor:
        """An executor for a validated program of which about `steps` steps are to come. Raises Ask where the
        device is not there."""
        if self.forms is None or self.way in (ExecutorKind.EAGER, ExecutorKind.REFERENCE):
            return self.eager(program)
        return WarmingExecutor(
            program,
            device=self.device,
            cache_dir=self.forms,
            steps=steps,
            always=self.way is ExecutorKind.COMPILED,
            compiles=not self.brief,
        )

    def eager(self, program: Program) -> Executor:
        """An executor that is never compiled."""
        kernels = REFERENCE if self.way is ExecutorKind.REFERENCE else FAST
        return Executor(program, device=self.device, kernels=kernels)


REFERENCE_ENGINE = Engine()
"""The definition, on the processor."""
