"""Executors that the tests have made in another process."""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Sequence

from torch import Tensor

from assay.program.execute import Executor, OutOfMemory, StepContext
from assay.program.isa import Program
from assay.program.kernels import FAST


def plain(program: Program) -> Executor:
    """As fast as it goes without a compiler."""
    return Executor(program, "cpu", FAST)


class Failing(Executor):
    """Warns, and raises at some steps."""

    def run(self, state: Sequence[Tensor], context: StepContext, steps: int) -> list[Tensor]:
        """As ever, but at steps 13 to 16."""
        logging.getLogger("assay.tests.making").warning("step %d of %s", context.step, "a test")
        if context.step == 13:
            raise OutOfMemory("no memory for step 13", hint="end other programs")
        if context.step == 14:
            raise ZeroDivisionError("a bug")
        if context.step == 15:
            raise OSError(errno.ENOSPC, "no room")
        if context.step == 16:
            raise MemoryError
        return super().run(state, context, steps)


class Waiting(Executor):
    """Takes two seconds more."""

    def run(self, state: Sequence[Tensor], context: StepContext, steps: int) -> list[Tensor]:
        """As ever, and slowly."""
        time.sleep(2)
        return super().run(state, context, steps)


def dying(program: Program) -> Executor:
    """Ends its process."""
    os._exit(7)


class Slow(Executor):
    """Takes a minute for any run."""

    def run(self, state: Sequence[Tensor], context: StepContext, steps: int) -> list[Tensor]:
        """Nothing but that."""
        for _ in range(600):
            time.sleep(0.1)
        return list(state)
