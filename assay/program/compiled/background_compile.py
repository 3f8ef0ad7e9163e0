"""Trains eagerly at once, and switches to the compiled form when it is ready.

Contract: every step gives the program's bits either way, so the switch only affects speed. A stored form is
loaded, and a missing one compiled in another process (``program.compiled.worker``), if the remaining steps
save more time than that costs. `always` compiles at the first step. Not guaranteed: that it pays, since the
number of steps is the caller's guess.

Source of the numbers: docs/decisions/0005-compiled-execution.md.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from assay.numerics import slow_paths
from assay.program.compiled.segments import plan
from assay.program.execute import Executor, StepContext
from assay.program.isa import Program
from assay.program.kernels import FAST

if TYPE_CHECKING:  # compilers are slow to import, and most programs of a short life never need one
    from assay.program.compiled.cache import StoredForm
    from assay.program.compiled.executor import CompiledExecutor
    from assay.program.compiled.worker import Worker

log = logging.getLogger(__name__)

MEASURED_STEPS = 3
"""Eager steps timed before the decision; the fastest counts."""
SAVED_SHARE = 0.6
"""Minimum share of an eager step that compiling saves (measured: 0.66 to 0.8)."""
COMPILE_S_A_NODE = 0.06
"""Seconds of compiling per node, C++ included, on a machine that also trains."""
LOAD_S = 5.0
MARGIN = 2.0
"""A form must save this many times its cost: the steps may not come, and compiling takes a CPU."""


@contextmanager
def leaving_a_processor(to_others: bool) -> Iterator[None]:
    """Uses one thread less, if there are more than one, for a `with` block.

    Threads that wait for one preempted by a compiler all stall (measured: 6 steps instead of 109).
    """
    threads = torch.get_num_threads()
    if to_others:
        torch.set_num_threads(max(1, threads - 1))
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class WarmingExecutor(Executor):
    """Eager until the compiled form is ready. `steps`: expected number of steps."""

    def __init__(
        self,
        program: Program,
        device: str,
        cache_dir: Path,
        *,
        steps: int,
        always: bool = False,
        compiles: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`cache_dir` is a directory of the operator's own. Without `compiles` only an existing form is
        used."""
        super().__init__(program, device, FAST)
        self._cache_dir = cache_dir
        self._stored: StoredForm | None = None
        self._left, self._always, self._compiles, self._clock = steps, always, compiles, clock
        self._eager_s: list[float] = []
        self._worker: Worker | None = None
        self._compiled: CompiledExecutor | None = None
        self._settled = False
        """True once the form is in use, or there will be none."""

    @property
    def ready(self) -> bool:
        """True if plain steps run compiled."""
        return self._compiled is not None and self._compiled.ready

    @property
    def compiling(self) -> bool:
        """True if another process compiles for this one."""
        return self._worker is not None

    def close(self) -> None:
        """Stops a running compilation."""
        if self._worker is not None:
            self._worker.stop()
            self._worker = None

    def plain(self, state: Sequence[Tensor], context: StepContext) -> list[Tensor]:
        """See `Executor.plain`."""
        if not self._settled:
            self._advance()
        self._left -= 1
        if self._compiled is not None:
            return self._compiled.plain(state, context)
        before = self._clock()
        with leaving_a_processor(self.compiling):
            after = self.interpreted(state, context)
        self._eager_s = [*self._eager_s, self._clock() - before][-MEASURED_STEPS:]
        return after

    def _advance(self) -> None:
        """Takes the next step towards a compiled form, if due."""
        if self._worker is not None:
            self._collect(self._worker)
        elif self._always or (len(self._eager_s) == MEASURED_STEPS and self._promising()):
            self._begin()

    def _promising(self) -> bool:
        """True if compiling may pay; checked before importing the compiler, which takes a second."""
        some = next(self._cache_dir.glob(f"{self.program.root.hex()[:16]}-*"), None) is not None
        return self._pays(LOAD_S) if some else self._compiles and self._pays(self._compile_s)

    @cached_property
    def _compile_s(self) -> float:
        cut = plan(self.program)
        return LOAD_S + COMPILE_S_A_NODE * (len(self.program.nodes) if cut is None else cut.nodes)

    def _begin(self) -> None:
        from assay.program.compiled.executor import obstacle, stored_form
        from assay.program.compiled.worker import start

        stored = self._stored = self._stored or stored_form(self.program, self.device, self._cache_dir)
        if not stored.refusal and stored.exists:
            self._load()
        elif self._compiles and self._pays(self._compile_s):
            if reason := obstacle(stored, self.device.type):
                self._give_up(reason)
                return
            log.info("compiling program %s beside the training", self.program.root.hex())
            self._worker = start(self.program, self.device, stored)

    def _pays(self, cost_s: float) -> bool:
        return self._always or self._left * min(self._eager_s) * SAVED_SHARE > MARGIN * cost_s

    def _collect(self, worker: Worker) -> None:
        if not worker.ended:
            return
        if failure := worker.failure:
            self._give_up(failure)
        else:
            self._load()
        self.close()

    def _load(self) -> None:
        """Loads the stored form; no effect while another process writes it or if it is damaged."""
        from assay.program.compiled.executor import CompiledExecutor

        found = CompiledExecutor.stored(self.program, str(self.device), self._cache_dir)
        if found is not None:
            self._compiled, self._settled = found, True
            log.info("program %s runs compiled", self.program.root.hex())

    def _give_up(self, reason: str) -> None:
        self._settled = True
        what = f"program {self.program.root.hex()} is not compiled and runs slower: {reason}"
        slow_paths.note(log, what)
