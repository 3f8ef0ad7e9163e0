"""Compiled execution of a program: the bits of ``program.execute`` at the speed of compiled training.

Contract: a `CompiledExecutor` is an `Executor` whose plain `step` runs one compiled graph; observing,
patching or stopping early takes the reference's way. Before a newly compiled form is trusted, its first
step is compared bit by bit with the reference; a form that differs is deleted, reported, and never used.
Not guaranteed: canonical NaN bits inside tensors, and speed at the first use of a program on a machine,
when compiling takes minutes.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from numerics import FAST
from numerics.encoding import to_bytes
from program.compiled_cache import Form, StoredForm, compile_form, form_key
from program.compiled_graph import example_inputs, trace
from program.execute import Executor, Observe, Patch, StepContext, own, read_data
from program.isa import Op, Program

log = logging.getLogger(__name__)


class CompiledExecutor(Executor):
    """A validated program compiled for a device; used as an `Executor` is."""

    def __init__(
        self,
        program: Program,
        device: str = "cpu",
        cache_dir: Path | None = None,
        *,
        self_check: bool = True,
    ) -> None:
        """Load or compile the program's form.

        `cache_dir` is a directory of the operator's own, None to keep nothing on disk. Without `self_check`
        a form is trusted unseen.
        """
        super().__init__(program, device, FAST)
        self._data = [node for node in program.nodes if node.op is Op.DATA]
        self._stored = (
            None if cache_dir is None else StoredForm(cache_dir / form_key(program.root, self.device))
        )
        self._form: Form | None = self._prepare()
        self._unchecked = self_check and not (self._stored is not None and self._stored.checked)

    def _prepare(self) -> Form:
        stored = self._stored
        loaded = stored.load() if stored is not None else None
        if loaded is not None:
            return loaded
        graph, inputs = trace(self.program, self.device), example_inputs(self.program, self.device)
        return compile_form(graph, inputs) if stored is None else stored.compile(graph, inputs)

    def step(
        self,
        state: Sequence[Tensor],
        context: StepContext,
        observe: Observe | None = None,
        patch: Patch | None = None,
        until: int | None = None,
    ) -> list[Tensor]:
        """The next state; see `Executor.step`."""
        plain = observe is None and patch is None and until is None
        if not plain or self._form is None:
            return super().step(state, context, observe, patch, until)
        self.check_state(state)
        result = self._run(self._form, state, context)
        if self._unchecked:
            result = self._compared(result, super().step(state, context))
        return result

    def _run(self, form: Form, state: Sequence[Tensor], context: StepContext) -> list[Tensor]:
        with torch.inference_mode():
            counter = torch.tensor(context.step & 0x7FFFFFFF, dtype=torch.int32, device=self.device)
            inputs = [x.to(self.device).contiguous() for x in state]
            inputs += [read_data(node, self.device, context) for node in self._data]
            return [own(x) for x in form([*inputs, counter])]

    def _compared(self, compiled: list[Tensor], reference: list[Tensor]) -> list[Tensor]:
        """The reference's result; the form is trusted from now on if it gave the same bytes, else dropped."""
        wrong = [
            i for i, (a, b) in enumerate(zip(compiled, reference, strict=True)) if to_bytes(a) != to_bytes(b)
        ]
        self._unchecked = False
        if wrong:
            log.error(
                "the compiled form of program %s gives other bits than the definition in slots %s; it is "
                "deleted, and this run goes on with the slower reference: check this machine and compiler",
                self.program.root.hex(),
                wrong,
            )
            self._form = None
            if self._stored is not None:
                self._stored.discard()
        elif self._stored is not None:
            self._stored.mark_checked()
        return reference
