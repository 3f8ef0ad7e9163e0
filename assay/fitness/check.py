"""Compares a machine with the stored digests, and locates the first wrong number.

Contract: `check` runs the reference on the CPU and compares it with the stored digests. Every other form
(fast kernels, compiled, another device) is compared with it element by element. A finding names the form, the
operation or node, the element, and both bit patterns. No findings means that every compared bit was right.
Not guaranteed: that these inputs reveal every fault.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from assay.dispute import element
from assay.fitness.digests import Say, Stored, digest, results
from assay.fitness.exercise import CONTEXT, Exercise, all_exercises
from assay.fitness.samples import BRIEF_STEPS, Sample
from assay.numerics.bits import Difference, differences, patterns
from assay.program.compiled.executor import CompiledExecutor
from assay.program.execute import Executor
from assay.program.isa import Node, Program
from assay.program.kernels import FAST, REFERENCE
from assay.program.state import state_root
from assay.program.validate import measure

SHOWN = 4
_MODEL_READS = 4096
CPU_REFERENCE = "reference on cpu"


@dataclass(frozen=True)
class Form:
    """A way to run a program: `name` to show, `prepare` creates its executor."""

    name: str
    prepare: Callable[[Program], Executor]


@dataclass(frozen=True)
class Finding:
    """A difference, or a failed comparison."""

    form: str
    what: str
    """Operation and chunk, or run, step and node."""
    count: int
    """Number of differing elements; 0 if unknown."""
    first: tuple[Difference, ...] = ()
    note: str = ""

    def __str__(self) -> str:
        shown = "; ".join(str(d) for d in self.first)
        parts = [
            f"{self.form}: {self.what}",
            f"{self.count} elements differ" if self.count else "",
            shown,
            self.note,
        ]
        return ", ".join(part for part in parts if part)


@dataclass
class Report:
    """Results of a check."""

    values: int = 0
    """Number of results compared, over all forms."""
    steps: int = 0
    """Number of training steps compared, over all forms."""
    findings: list[Finding] = field(default_factory=list)
    step_ms: dict[str, dict[str, float]] = field(default_factory=dict)
    """run → form → minimum wall time of a step."""
    operations: dict[str, int] = field(default_factory=dict)
    """run → elementary operations of a step."""


def forms_on(device: str, *, compiled: bool, cache: Path | None = None) -> list[Form]:
    """Forms of a device besides the CPU reference."""
    forms = [Form(f"fast on {device}", partial(Executor, device=device, kernels=FAST))]
    if device != "cpu":
        forms.insert(0, Form(f"reference on {device}", partial(Executor, device=device, kernels=REFERENCE)))
    if compiled:
        make = partial(CompiledExecutor, device=device, cache_dir=cache, self_check=False)
        forms.append(Form(f"compiled on {device}", make))
    return forms


def check(
    stored: Stored,
    forms: Sequence[Form],
    say: Say,
    *,
    chunks: int | None = None,
    steps: int = BRIEF_STEPS,
    exercises: Sequence[Exercise] | None = None,
    operation_forms: Sequence[Form] | None = None,
) -> Report:
    """Compares the first `chunks` chunks (None: all) of every exercise, and `steps` steps of every run.

    `exercises` None: all; `operation_forms` None: the forms that run the steps.
    """
    report = Report()
    for exercise in all_exercises() if exercises is None else exercises:
        chosen = forms if operation_forms is None else operation_forms
        _check_operations(report, stored, exercise, chosen, say, chunks)
    for sample in stored.samples:
        _check_run(report, stored, sample, forms, say, steps)
    return report


def _prepared(
    report: Report, forms: Sequence[Form], program: Program, what: str
) -> Iterator[tuple[Form, Executor]]:
    for form in forms:
        try:
            yield form, form.prepare(program)
        except (RuntimeError, OSError) as error:
            first = str(error).strip().split("\n")[0]
            report.findings.append(Finding(form.name, what, 0, note=f"could not be prepared: {first}"))


def _check_operations(
    report: Report, stored: Stored, exercise: Exercise, forms: Sequence[Form], say: Say, chunks: int | None
) -> None:
    say(f"{exercise.name}: {len(exercise.labels)} results of every chunk")
    wanted = stored.operations.get(exercise.name, {})
    reference = Executor(exercise.program)
    others = list(_prepared(report, forms, exercise.program, exercise.name))
    for chunk in range(chunks or exercise.chunks):
        truth = results(exercise, reference, chunk)
        for label, x in zip(exercise.labels, truth, strict=True):
            report.values += x.numel()
            if wanted.get(label, [])[chunk : chunk + 1] != [digest(x)]:
                report.findings.append(_against_model(exercise, label, chunk, x))
        for form, executor in others:
            found = results(exercise, executor, chunk)
            for label, x, right in zip(exercise.labels, found, truth, strict=True):
                report.values += right.numel()
                count, first = differences(x.cpu(), right, SHOWN)
                if count:
                    what = f"{label}, {exercise.name}, chunk {chunk}"
                    report.findings.append(Finding(form.name, what, count, tuple(first)))


def _against_model(exercise: Exercise, label: str, chunk: int, x: Tensor) -> Finding:
    """Locates a difference of the CPU reference from the stored digest, by the integer-only model."""
    program = exercise.program
    index = program.outputs[exercise.given + exercise.labels.index(label)]
    seen: dict[int, Tensor] = {}
    Executor(program).step(exercise.state(chunk), CONTEXT, lambda i, out: seen.update({i: out}))
    wrong = model_differences(program.nodes[index], index, seen)
    note = (
        "the digest is not the stored one; shown: this machine, not the integer-only model"
        if wrong
        else "the digest is not the stored one; a sample of elements agrees with the integer-only model"
    )
    what = f"{label}, {exercise.name}, chunk {chunk}"
    return Finding(CPU_REFERENCE, what, len(wrong), tuple(wrong[:SHOWN]), note)


def model_differences(
    node: Node, index: int, outputs: dict[int, Tensor], reads: int = _MODEL_READS, step: int = CONTEXT.step
) -> list[Difference]:
    """Elements of a node's output, evenly sampled, that differ from the integer-only model's.

    `outputs`: outputs of the node (under `index`) and of its inputs by node index. About `reads` input
    elements are read.
    """
    inputs = [_model_values(outputs[ref.ref]) for ref in node.inputs]
    fan_in = max((ref.shape[-1] if ref.shape else 1 for ref in node.inputs), default=1)
    elements = max(16, reads // (1 if node.op.elementwise or node.op.moves else fan_in))
    got = patterns(outputs[index])
    wrong = []
    for place in np.unique(np.linspace(0, len(got) - 1, elements).astype(np.int64)).tolist():
        value = element.value(node, place, lambda i, at: int(inputs[i][at]), step, 0, lambda: 0)
        want = element.bits(value, node.dtype)
        if int(got[place]) != want:
            wrong.append(Difference(place, int(got[place]), want))
    return wrong


def _model_values(x: Tensor) -> np.ndarray:
    """Elements in the model's form: f32 as patterns, everything else as numbers."""
    signed = {torch.int32: np.int32, torch.int16: np.int16}
    return patterns(x).view(signed[x.dtype]) if x.dtype in signed else patterns(x)


def _check_run(
    report: Report, stored: Stored, sample: Sample, forms: Sequence[Form], say: Say, steps: int
) -> None:
    say(f"{sample.name}: {steps} training steps")
    report.operations[sample.name] = measure(sample.program).operations
    reference = Executor(sample.program)
    states = [sample.genesis()]
    for step in range(steps):
        states.append(reference.step(states[-1], sample.context(step)))
        report.steps += 1
        if state_root(states[-1]).hex() != stored.runs[sample.name][step]:
            what = f"run {sample.name}, step {step}"
            report.findings.append(Finding(CPU_REFERENCE, what, 0, note="the state is not the stored one"))
            return
    for form, executor in _prepared(report, forms, sample.program, f"run {sample.name}"):
        state, times = states[0], []
        for step in range(steps):
            started = time.perf_counter()
            state = executor.step(state, sample.context(step))
            report.steps += 1
            wrong = _wrong_slot(state, states[step + 1])
            times.append(time.perf_counter() - started)
            if wrong is not None:
                report.findings.append(_first_fault(form, executor, sample, states[step], step, wrong))
                break
        report.step_ms.setdefault(sample.name, {})[form.name] = round(min(times) * 1e3, 3)


def _wrong_slot(got: Sequence[Tensor], want: Sequence[Tensor]) -> tuple[int, int, list[Difference]] | None:
    """(slot, number of differing elements, the first of them) of the first differing slot."""
    for slot, (a, b) in enumerate(zip(got, want, strict=True)):
        count, first = differences(a.cpu(), b, SHOWN)
        if count:
            return slot, count, first
    return None


def _first_fault(
    form: Form,
    executor: Executor,
    sample: Sample,
    before: list[Tensor],
    step: int,
    wrong: tuple[int, int, list[Difference]],
) -> Finding:
    """The first node whose output differs when the step runs node by node; otherwise the differing slot."""
    right: dict[int, Tensor] = {}
    Executor(sample.program).step(before, sample.context(step), lambda i, x: right.update({i: x}))
    found: list[Finding] = []

    def compare(index: int, x: Tensor) -> None:
        count, first = (0, []) if found else differences(x.cpu(), right[index], SHOWN)
        if count:
            op = sample.program.nodes[index].op.word
            what = f"run {sample.name}, step {step}, node {index} ({op})"
            found.append(Finding(form.name, what, count, tuple(first)))

    executor.step(before, sample.context(step), compare)
    if found:
        return found[0]
    slot, count, first = wrong
    what = f"run {sample.name}, step {step}, slot {slot}"
    return Finding(form.name, what, count, tuple(first), "node by node, every output is right")
