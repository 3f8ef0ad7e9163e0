"""Creates executors: on which device, and whether steps run compiled.

Contract: every choice gives the same bits (docs/arithmetic.md), so it is the operator's and no consensus
parameter. `reference` is the definition. `eager` runs the same kernels with the fastest backends. `compiled`
compiles a job's inner program at its first step; `auto` compiles it if the number of steps pays for that.
Outer programs run eagerly: they are one step a round. A step over `room` runs streamed on the CPU. Not
guaranteed: speed before a compiled form is ready.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from assay.disk import record
from assay.numerics import slow_paths
from assay.program.compiled.background_compile import WarmingExecutor
from assay.program.execute import Executor
from assay.program.isa import Program
from assay.program.kernels import FAST, REFERENCE
from assay.program.streamed import Place, Spill, StreamedExecutor
from assay.program.validate import measure

log = logging.getLogger(__name__)


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
    room: int | None = None
    """Bytes of memory for a step; None: no limit."""
    spill: Path | None = None
    """Folder on a disk for what does not fit."""

    def executor(self, program: Program, steps: int) -> Executor:
        """Creates an executor for a validated program that will run about `steps` steps.

        Raises Ask if the device is missing.
        """
        plain = self.way in (ExecutorKind.EAGER, ExecutorKind.REFERENCE)
        if self.forms is None or plain or self.streams(program):
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
        if self.room is not None and (needs := measure(program).peak_bytes) > self.room:
            slow_paths.note(
                log,
                f"steps of program {program.root.hex()[:16]} are replayed streamed, from disk: they take"
                f" {needs >> 20:,} MiB and this worker has {self.room >> 20:,}",
            )
            return StreamedExecutor(program, self.room, self._spilling(), kernels)
        return Executor(program, device=self.device, kernels=kernels)

    def streams(self, program: Program) -> bool:
        """True if the program's steps do not fit memory."""
        return self.room is not None and measure(program).peak_bytes > self.room

    def place(self, programs: Sequence[Program]) -> Place | None:
        """Where the states of these programs belong; None: in memory."""
        return self._spilling() if any(map(self.streams, programs)) else None

    def _spilling(self) -> Spill:
        return Spill(self.spill, record.require_spare)


REFERENCE_ENGINE = Engine()
"""The reference executor on the CPU."""
