"""Creates executors: on which device, and whether steps run compiled.

Contract: every choice gives the same bits (docs/arithmetic.md), so it is the operator's and no consensus
parameter. `reference` is the definition. `eager` runs the same kernels with the fastest backends. `compiled`
compiles a job's inner program at its first step; `auto` compiles it if the number of steps pays for that.
Outer programs run eagerly: they are one step a round. Not guaranteed: speed before a compiled form is ready.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from assay.program.compiled.background_compile import WarmingExecutor
from assay.program.execute import Executor
from assay.program.isa import Program
from assay.program.kernels import FAST, REFERENCE


class ExecutorKind(StrEnum):
    """Kind of executor for a program's steps."""

    AUTO = "auto"
    COMPILED = "compiled"
    EAGER = "eager"
    REFERENCE = "reference"


@dataclass(frozen=True)
class Engine:
    """Factory of executors. `forms`: the operator's folder of compiled forms; without it nothing is compiled.

    `brief`: the process is short-lived, so it uses existing forms and compiles none.
    """

    device: str = "cpu"
    way: ExecutorKind = ExecutorKind.REFERENCE
    forms: Path | None = None
    brief: bool = False

    def executor(self, program: Program, steps: int) -> Executor:
        """Creates an executor for a validated program that will run about `steps` steps.

        Raises Ask if the device is missing.
        """
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
        """Creates an executor that never compiles."""
        kernels = REFERENCE if self.way is ExecutorKind.REFERENCE else FAST
        return Executor(program, device=self.device, kernels=kernels)


REFERENCE_ENGINE = Engine()
"""The reference executor on the CPU."""
