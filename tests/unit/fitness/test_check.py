"""A machine's check: the stored digests hold here, and every planted fault is named."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from assay.fitness import digests
from assay.fitness.check import CPU_REFERENCE, Form, check, forms_on
from assay.fitness.digests import Stored, stored
from assay.fitness.exercise import Exercise, all_exercises
from assay.fitness.samples import STEPS, from_entry
from assay.program.execute import PLAIN, Executor, Look, StepContext
from assay.program.fault import flip_lowest_bit
from assay.program.isa import Program
from assay.protocol.errors import Stop


def silent(text: str) -> None:
    """Say nothing."""


def exercise_named(name: str) -> Exercise:
    return next(e for e in all_exercises() if e.name == name)


def only(name: str | None = None, run: str | None = None) -> Stored:
    """The stored digests of one exercise or one run."""
    whole = stored()
    return Stored(
        {k: v for k, v in whole.operations.items() if k == name},
        {k: v for k, v in whole.runs.items() if k == run},
        tuple(s for s in whole.samples if s.name == run),
    )


class Faulty(Executor):
    """An executor that has the lowest bit of one element of one node wrong at one step counter."""

    def __init__(self, program: Program, node: int, element: int, step: int) -> None:
        super().__init__(program)
        self._fault = (node, element, step)

    def interpreted(self, state: Sequence[Tensor], context: StepContext, look: Look = PLAIN) -> list[Tensor]:
        node, element, step = self._fault

        def wrong(index: int, x: Tensor) -> Tensor:
            return flip_lowest_bit(x, element) if (index, context.step) == (node, step) else x

        return super().interpreted(state, context, look._replace(patch=wrong))


def faulty(node: int, element: int, step: int) -> Form:
    return Form("faulty", partial(Faulty, node=node, element=element, step=step))


def test_the_file_is_of_the_exercises_and_samples_of_today() -> None:
    """Every result and chunk has its digest, so none goes unchecked."""
    found = stored()
    assert found.operations.keys() == {e.name for e in all_exercises()}
    for e in all_exercises():
        kept = found.operations[e.name]
        assert tuple(kept) == e.labels, "run scripts/generate/digests.py"
        assert {len(column) for column in kept.values()} == {e.chunks}
    assert set(found.runs) == {"gpt", "cnn", "mlp"}
    assert {len(roots) for roots in found.runs.values()} == {STEPS}


@pytest.mark.long
def test_this_machine_gives_the_stored_digests_of_a_chunk_and_of_three_steps() -> None:
    report = check(stored(), forms_on("cpu", compiled=False), silent, chunks=1, steps=3)
    assert [str(f) for f in report.findings] == []
    assert report.steps == 3 * 2 * 3
    assert report.values > 30_000_000
    assert set(report.step_ms["gpt"]) == {"fast on cpu"}


@pytest.mark.slow
def test_this_machine_gives_every_stored_digest() -> None:
    report = check(stored(), forms_on("cpu", compiled=False), silent, steps=STEPS)
    assert [str(f) for f in report.findings] == []
    assert report.steps == 3 * 2 * STEPS


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_whole_steps_compiled_are_the_references(threads: int, tmp_path: Path) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        forms = forms_on("cpu", compiled=True, cache=tmp_path)
        report = check(stored(), forms, silent, steps=STEPS, exercises=[])
    finally:
        torch.set_num_threads(before)
    assert [str(f) for f in report.findings] == []
    assert report.steps == 3 * 3 * STEPS


def test_one_wrong_bit_in_a_form_is_named_with_operation_element_and_bits() -> None:
    exercise = exercise_named("contractions 256x1000")
    node = exercise.program.outputs[exercise.given + exercise.labels.index("product")]
    forms = [*forms_on("cpu", compiled=False), faulty(node, 321, step=3)]
    report = check(only(exercise.name), forms, silent, chunks=1, exercises=[exercise])
    (finding,) = report.findings
    assert (finding.form, finding.what, finding.count) == ("faulty", f"product, {exercise.name}, chunk 0", 1)
    (place,) = finding.first
    assert place.index == 321
    assert place.got == place.want ^ 1
    assert f"[321] 0x{place.got:08x}, not 0x{place.want:08x}" in str(finding)


def test_one_wrong_bit_in_a_training_step_is_traced_to_its_node() -> None:
    found = only(run="mlp")
    program = found.samples[0].program
    node = program.nodes[program.outputs[0]].inputs[0].ref
    op = program.nodes[node].op.word
    report = check(found, [faulty(node, 5, step=2)], silent, steps=4, exercises=[])
    (finding,) = report.findings
    assert finding.what == f"run mlp, step 2, node {node} ({op})"
    assert [d.index for d in finding.first] == [5]


def test_a_processor_that_is_wrong_itself_is_found_by_the_stored_digest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its own reference is no yardstick then: the integer-only model names the element."""
    exercise = exercise_named("contractions 256x1000")
    node = exercise.program.outputs[exercise.given + exercise.labels.index("sum")]
    monkeypatch.setattr("assay.fitness.check.Executor", partial(Faulty, node=node, element=0, step=3))
    report = check(only(exercise.name), [], silent, chunks=1, exercises=[exercise])
    (finding,) = report.findings
    assert finding.form == CPU_REFERENCE
    assert finding.what == f"sum, {exercise.name}, chunk 0"
    assert [d.index for d in finding.first] == [0]


def test_another_run_than_the_stored_one_is_found() -> None:
    found = only(run="mlp")
    roots = list(found.runs["mlp"])
    roots[1] = roots[0]
    report = check(Stored({}, {"mlp": roots}, found.samples), [], silent, steps=3, exercises=[])
    assert [f.what for f in report.findings] == ["run mlp, step 1"]


def test_a_form_that_cannot_be_prepared_is_a_finding() -> None:
    def broken(program: Program) -> Executor:
        raise RuntimeError("no compiler\nand more")

    report = check(only(run="mlp"), [Form("compiled", broken)], silent, steps=1, exercises=[])
    (finding,) = report.findings
    assert "could not be prepared: no compiler" in str(finding)


def test_a_sample_is_read_as_it_was_written() -> None:
    for sample in stored().samples:
        assert from_entry(sample.name, json.loads(json.dumps(sample.entry()))) == sample
        assert all(bool(torch.isfinite(x).all()) for x in sample.genesis() if x.dtype == torch.float32)


@pytest.mark.parametrize("damage", ["missing", "empty", "format", "program"])
def test_a_damaged_file_is_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "digests.json"
    data = json.loads(digests.FILE.read_text())
    if damage == "format":
        data["format"] = 99
    if damage == "program":
        data["runs"]["mlp"]["program"] = "no"
    if damage != "missing":
        path.write_text("" if damage == "empty" else json.dumps(data))
    with pytest.raises(Stop, match="cannot be used"):
        stored(path)
