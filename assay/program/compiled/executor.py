"""Executes compiled programs: the bits of ``program.execute`` at the speed of compiled training.

Contract: a `CompiledExecutor` is an `Executor` whose plain `step` runs one compiled graph; observing,
patching or stopping early runs eagerly, with the same bits. The first step of a newly compiled form is
compared bit by bit with the definition. A form that differs is refused for good and reported with the
instructions that differ; execution continues eagerly. Not guaranteed: canonical NaN bits inside tensors, and
speed at the first use of a program on a machine, when compiling takes minutes
(``program.compiled.background_compile`` trains meanwhile).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch._inductor.cpp_builder import get_cpp_compiler
from torch._inductor.exc import InvalidCxxCompiler

from assay.numerics import slow_paths
from assay.numerics.encoding import to_bytes
from assay.program.compiled.cache import Form, StoredForm, compile_form, form_key
from assay.program.compiled.graph import example_inputs, numbers_read, trace
from assay.program.compiled.records import opened
from assay.program.compiled.replay import Replayed
from assay.program.compiled.segment_runner import SegmentedForm, compile_parts
from assay.program.compiled.segments import plan
from assay.program.compiled.settings import missing
from assay.program.execute import Executor, StepContext, counter, guarded, own, read_data
from assay.program.heap import keep_freed_memory
from assay.program.isa import Op, Program
from assay.program.kernels import FAST
from assay.program.validate import measure
from assay.protocol.errors import Ask

log = logging.getLogger(__name__)


class CannotCompile(Ask):
    """This machine has no compiler, none that keeps bits, or has compiled this program wrongly before."""

    code = "cannot-compile"


def obstacle(stored: StoredForm | None, kind: str) -> str:
    """Reason why this program cannot be compiled here for this kind of device; empty if it can."""
    if lacking := missing(kind):
        return (
            f"PyTorch {torch.__version__} has no setting {', '.join(lacking)}, without which compiled steps"
            " may give other bits (install a version that pyproject.toml admits)"
        )
    if stored is not None and stored.refusal:
        return f"its compiled form was refused before: {stored.refusal} (remove {stored.note} to try again)"
    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        return "there is no C++ compiler (install g++, or set CXX to one)"
    return ""


def stored_form(program: Program, device: torch.device, cache_dir: Path) -> StoredForm:
    """Cache entry of the program for this machine, device and number of threads."""
    return StoredForm(cache_dir / form_key(program.root, device), device.type)


def compile_program(program: Program, device: torch.device, stored: StoredForm | None) -> Form:
    """Compiles a program, into the cache if there is one. Takes minutes; raises the compiler's errors.

    A large program is compiled in parts (``program.compiled.segments``).
    """
    cut = plan(program)
    if cut is None:
        graph, inputs = trace(program, device), example_inputs(program, device)
        return compile_form(graph, inputs) if stored is None else stored.compile(graph, inputs)
    if stored is None:
        forms = [compile_form(trace(part, device), example_inputs(part, device)) for part in cut.parts]
        return SegmentedForm(program, cut, forms, device)
    compile_parts(program, cut, device, stored)
    form = load_form(program, device, stored)
    assert form is not None, "it was written just now"
    return form


def load_form(program: Program, device: torch.device, stored: StoredForm) -> Form | None:
    """Loads the form from disk; None if missing or damaged."""
    cut = plan(program)
    if cut is None:
        return stored.load()
    forms = stored.load_parts(len(cut.parts))
    return None if forms is None else SegmentedForm(program, cut, forms, device)


class CompiledExecutor(Executor):
    """An `Executor` of a validated program compiled for a device."""

    def __init__(
        self,
        program: Program,
        device: str = "cpu",
        cache_dir: Path | None = None,
        *,
        self_check: bool = True,
        form: Form | None = None,
    ) -> None:
        """Loads or compiles the program's form, unless given. Raises CannotCompile.

        `cache_dir` is a directory of the operator's own, None for no cache. Without `self_check` a form is
        trusted unseen.
        """
        super().__init__(program, device, FAST)
        keep_freed_memory()
        self._data = [node for node in program.nodes if node.op is Op.DATA]
        self._numbers = numbers_read(program)
        self._stored = None if cache_dir is None else stored_form(program, self.device, cache_dir)
        self._form: Form | None = self._replayed(form or self._prepare())
        self._unchecked = self_check and not (self._stored is not None and self._stored.checked)

    @classmethod
    def stored(cls, program: Program, device: str, cache_dir: Path) -> CompiledExecutor | None:
        """An executor with the form from disk; None if there is none usable or another process holds it."""
        stored = stored_form(program, torch.device(device), cache_dir)
        with stored.held(wait=False) as mine:
            form = load_form(program, torch.device(device), stored) if mine and not stored.refusal else None
        return None if form is None else cls(program, device, cache_dir, form=form)

    @property
    def ready(self) -> bool:
        """True if plain steps run compiled."""
        return self._form is not None

    @property
    def replays(self) -> bool:
        """True once plain steps are replayed from a CUDA graph."""
        return isinstance(self._form, Replayed) and self._form.replays

    def _replayed(self, form: Form) -> Form:
        """The form, on a GPU recorded unless it reads records on the CPU."""
        if self.device.type != "cuda" or any(node.op is Op.RECORD for node in self.program.nodes):
            return form
        return Replayed(form, measure(self.program).peak_bytes)

    def _prepare(self) -> Form:
        """Loads or compiles the form."""
        stored = self._stored
        if stored is None:
            return self._compile()
        with stored.held():
            found = None if stored.refusal else load_form(self.program, self.device, stored)
            return found or self._compile()

    def _compile(self) -> Form:
        if reason := obstacle(self._stored, self.device.type):
            raise CannotCompile(
                f"program {self.program.root.hex()[:16]} cannot be compiled: {reason}",
                hint="mend that, or run eagerly, which gives the same bits",
            )
        return compile_program(self.program, self.device, self._stored)

    def plain(self, state: Sequence[Tensor], context: StepContext) -> list[Tensor]:
        """See `Executor.plain`."""
        if self._form is None:
            return self.interpreted(state, context)
        self.check_state(state)
        with guarded(self.program, self.device):
            result = self._run(self._form, state, context)
        if self._unchecked:
            result = self._compared(result, self.interpreted(state, context))
        return result

    def _run(self, form: Form, state: Sequence[Tensor], context: StepContext) -> list[Tensor]:
        with torch.inference_mode():
            inputs = [x.to(self.device).contiguous() for x in state]
            inputs += [read_data(node, self.device, context) for node in self._data]
            with opened(context.dataset, self.device) as handle:
                known = {
                    Op.SHARD: counter(context.shard, self.device),
                    Op.RECORD: handle,
                    Op.STEP: counter(context.step, self.device),
                }
                made = form([*inputs, *(known[op] for op in self._numbers)])
                outputs = zip(self.program.outputs, made, strict=True)
                return [own(inputs[i] if i < len(state) else x) for i, x in outputs]

    def _compared(self, compiled: list[Tensor], wanted: list[Tensor]) -> list[Tensor]:
        """Compares the compiled result with the eager one and trusts or refuses the form; returns the eager
        one."""
        wrong = [
            i for i, (a, b) in enumerate(zip(compiled, wanted, strict=True)) if to_bytes(a) != to_bytes(b)
        ]
        self._unchecked = False
        if wrong:
            self._refuse(wrong)
        elif self._stored is not None:
            self._stored.mark_checked()
        return wanted

    def _refuse(self, slots: Sequence[int]) -> None:
        self._form = None
        where = ", ".join(f"slot {slot} from {self._named(slot)}" for slot in slots[:4])
        more = f" and {len(slots) - 4} more" if len(slots) > 4 else ""
        what = f"it gives other bits than the definition in {where}{more}"
        slow_paths.note(
            log,
            f"the compiled form of program {self.program.root.hex()} is refused: {what}; this run goes on"
            " eagerly, with the right bits: check this machine's memory and compiler",
            logging.ERROR,
        )
        if self._stored is not None:
            self._stored.refuse(what)

    def _named(self, slot: int) -> str:
        index = self.program.outputs[slot]
        node = self.program.nodes[index]
        return f"node {index} ({node.op.word} {node.dtype.name.lower()} {list(node.shape)})"
