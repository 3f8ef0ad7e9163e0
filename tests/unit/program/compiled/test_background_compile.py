"""Training that begins eagerly and changes to the compiled form: the same bits, and only where it pays."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.dispute.trace import trace_step
from assay.program.compiled import background_compile
from assay.program.compiled import executor as compiled
from assay.program.compiled import worker as compile_worker
from assay.program.compiled.background_compile import (
    COMPILE_S_A_NODE,
    LOAD_S,
    MARGIN,
    SAVED_SHARE,
    WarmingExecutor,
)
from assay.program.compiled.cache import StoredForm, form_key
from assay.program.compiled.executor import CannotCompile, CompiledExecutor
from assay.program.execute import Executor, StepContext
from assay.program.state import state_root
from tests.fakes.programs import Sample, training_sample

SEED = b"s" * 32
STEP_S = 1.0
"""What a step takes by `ticking`."""


def ticking() -> Callable[[], float]:
    """A clock by which everything that is timed takes STEP_S."""
    readings = iter(range(1_000_000))
    return lambda: next(readings) * STEP_S


def run(executor: Executor, steps: int) -> bytes:
    sample = training_sample()
    return state_root(executor.run(sample.state, StepContext(sample.dataset, SEED, 1, 7), steps))


def wanted(steps: int) -> bytes:
    return run(Executor(training_sample().program), steps)


class FakeWorker:
    """A compilation that the test brings to its end."""

    def __init__(self) -> None:
        self.ended, self.failure, self.stopped = False, "", False

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> list[FakeWorker]:
    """Compilations that were begun; none runs."""
    begun: list[FakeWorker] = []

    def start(*_: object) -> FakeWorker:
        begun.append(FakeWorker())
        return begun[-1]

    monkeypatch.setattr(compile_worker, "start", start)
    return begun


@pytest.fixture
def sample() -> Sample:
    return training_sample()


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO, logger="assay.program"):
        yield caplog


def steps_worth(cost_s: float) -> int:
    """The least number of steps of STEP_S that pays for a cost, after those that are timed."""
    return int(MARGIN * cost_s / (SAVED_SHARE * STEP_S)) + 1 + background_compile.MEASURED_STEPS


@pytest.mark.long
def test_what_another_process_compiled_is_loaded_and_gives_the_same_bits(
    forms: Path, sample: Sample, logged: pytest.LogCaptureFixture
) -> None:
    form = WarmingExecutor(sample.program, "cpu", forms, steps=10, always=True)
    assert not form.ready
    assert run(form, 4) == wanted(4)
    assert form.ready and "runs compiled" in logged.text
    assert not [p for p in forms.iterdir() if p.suffix == ".program"]


def test_training_goes_on_while_a_form_is_compiled(
    tmp_path: Path, forms: Path, sample: Sample, workers: list[FakeWorker]
) -> None:
    form = WarmingExecutor(sample.program, "cpu", tmp_path, steps=10, always=True)
    assert run(form, 3) == wanted(3)
    assert form.compiling and not form.ready and len(workers) == 1
    shutil.copytree(forms, tmp_path, dirs_exist_ok=True)
    workers[0].ended = True
    assert run(form, 3) == wanted(3)
    assert form.ready and not form.compiling and workers[0].stopped


@pytest.mark.parametrize("pays", [False, True])
def test_a_program_is_compiled_only_if_the_steps_to_come_save_more(
    tmp_path: Path, sample: Sample, workers: list[FakeWorker], pays: bool
) -> None:
    steps = steps_worth(LOAD_S + COMPILE_S_A_NODE * len(sample.program.nodes))
    steps += 0 if pays else -2
    form = WarmingExecutor(sample.program, "cpu", tmp_path, steps=steps, clock=ticking())
    assert run(form, 6) == wanted(6)
    assert len(workers) == pays


@pytest.mark.parametrize("pays", [False, True])
def test_a_stored_form_is_loaded_only_if_the_steps_to_come_save_more(
    forms: Path, sample: Sample, workers: list[FakeWorker], pays: bool
) -> None:
    steps = steps_worth(LOAD_S) + (0 if pays else -2)
    form = WarmingExecutor(sample.program, "cpu", forms, steps=steps, clock=ticking())
    assert run(form, 6) == wanted(6)
    assert form.ready == pays and not workers


def test_a_failed_compilation_is_said_once_and_training_goes_on(
    tmp_path: Path, sample: Sample, workers: list[FakeWorker], logged: pytest.LogCaptureFixture
) -> None:
    form = WarmingExecutor(sample.program, "cpu", tmp_path, steps=10, always=True)
    run(form, 1)
    workers[0].ended, workers[0].failure = True, "compiling ended with signal 9: it printed nothing"
    assert run(form, 4) == wanted(4)
    assert not form.ready and len(workers) == 1 and workers[0].stopped
    assert logged.text.count("not compiled and runs slower") == 1 and "signal 9" in logged.text


@pytest.mark.long
def test_a_process_that_cannot_compile_says_why_in_its_log(tmp_path: Path, sample: Sample) -> None:
    device = torch.device("cpu")
    stored = compiled.stored_form(sample.program, device, tmp_path)
    stored.directory.write_text("a file lies where the form's folder belongs")
    worker = compile_worker.start(sample.program, device, stored)
    worker._process.wait(timeout=120)
    assert "status 1" in worker.failure and str(stored.log) in worker.failure
    assert "Error" in worker.failure
    worker.stop()


def test_a_compilation_under_way_is_ended_with_its_owner(tmp_path: Path, sample: Sample) -> None:
    device = torch.device("cpu")
    stored = compiled.stored_form(sample.program, device, tmp_path)
    with stored.held():  # so that the other process waits and does not end by itself
        worker = compile_worker.start(sample.program, device, stored)
        worker.stop()
    assert worker.ended and worker.failure.startswith("compiling ended with signal 15")
    assert not list(tmp_path.glob("*.program"))


def test_without_a_compiler_training_is_eager_with_a_warning(
    tmp_path: Path,
    sample: Sample,
    workers: list[FakeWorker],
    logged: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none() -> str:
        raise compiled.InvalidCxxCompiler

    monkeypatch.setattr(compiled, "get_cpp_compiler", none)
    form = WarmingExecutor(sample.program, "cpu", tmp_path, steps=10, always=True)
    assert run(form, 3) == wanted(3)
    assert not form.ready and not workers
    assert logged.text.count("no C++ compiler") == 1 and "install g++" in logged.text
    with pytest.raises(CannotCompile, match="no C\\+\\+ compiler"):
        CompiledExecutor(sample.program, cache_dir=tmp_path)


def test_a_form_that_another_process_writes_is_not_touched(
    forms: Path, sample: Sample, workers: list[FakeWorker]
) -> None:
    stored = compiled.stored_form(sample.program, torch.device("cpu"), forms)
    form = WarmingExecutor(sample.program, "cpu", forms, steps=10, always=True)
    with stored.held():
        assert run(form, 3) == wanted(3)
        assert not form.ready and not workers
    assert run(form, 3) == wanted(3)
    assert form.ready


def test_a_damaged_form_is_compiled_again(
    forms: Path, tmp_path: Path, sample: Sample, workers: list[FakeWorker], logged: pytest.LogCaptureFixture
) -> None:
    own = Path(shutil.copytree(forms, tmp_path / "forms"))
    library = next(own.rglob("*.so"))
    library.write_bytes(library.read_bytes()[:-1] + b"x")
    form = WarmingExecutor(sample.program, "cpu", own, steps=10, always=True)
    assert run(form, 3) == wanted(3)
    assert "files changed" in logged.text and len(workers) == 1


def test_a_refused_form_is_not_compiled_again(
    tmp_path: Path, sample: Sample, workers: list[FakeWorker], logged: pytest.LogCaptureFixture
) -> None:
    compiled.stored_form(sample.program, torch.device("cpu"), tmp_path).refuse("other bits in slot 1")
    form = WarmingExecutor(sample.program, "cpu", tmp_path, steps=10, always=True)
    assert run(form, 3) == wanted(3)
    assert not workers and "other bits in slot 1" in logged.text


def test_a_command_that_ends_soon_uses_what_is_there_and_compiles_nothing(
    forms: Path, tmp_path: Path, sample: Sample, workers: list[FakeWorker]
) -> None:
    none = WarmingExecutor(sample.program, "cpu", tmp_path, steps=10, always=True, compiles=False)
    assert run(none, 5) == wanted(5) and not workers and not none.ready
    some = WarmingExecutor(sample.program, "cpu", forms, steps=10, always=True, compiles=False)
    assert run(some, 5) == wanted(5) and some.ready


@pytest.mark.long
def test_nobody_imports_a_compiler_before_it_pays(tmp_path: Path) -> None:
    """Importing it takes each node a second, which a short job never gets back."""
    script = (
        "import sys; from pathlib import Path; from assay.node.engine import Engine, ExecutorKind\n"
        "from assay.program.execute import StepContext; from tests.fakes.programs import training_sample\n"
        "sample = training_sample()\n"
        f"engine = Engine('cpu', ExecutorKind.AUTO, Path({str(tmp_path)!r}))\n"
        "executor = engine.executor(sample.program, 500)\n"
        "executor.run(sample.state, StepContext(sample.dataset, bytes(32), 0, 0), 6)\n"
        "sys.exit('torch._inductor.standalone_compile' in sys.modules)\n"
    )
    root = Path(__file__).resolve().parents[4]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    assert subprocess.run([sys.executable, "-c", script], cwd=root, env=environment).returncode == 0


def test_traces_are_made_eagerly(forms: Path, sample: Sample) -> None:
    form = WarmingExecutor(sample.program, "cpu", forms, steps=10, always=True)
    context = StepContext(sample.dataset, SEED, 1, 7)
    made = trace_step(sample.program, sample.state, context, executor=form)
    assert made.root == trace_step(sample.program, sample.state, context).root
    assert not form.ready


@pytest.mark.parametrize("changed", ["version", "capability", "flags"])
def test_another_pytorch_or_processor_has_another_form(
    sample: Sample, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    device = torch.device("cpu")
    before = form_key(sample.program.root, device)
    if changed == "version":
        monkeypatch.setattr(torch, "__version__", "9.9.9")
    elif changed == "capability":
        monkeypatch.setattr(torch.cpu, "get_capabilities", dict)
    else:
        monkeypatch.setattr("assay.program.compiled.cache.processor_flags", lambda: "flags: none")
    assert form_key(sample.program.root, device) != before


def test_of_two_processes_one_holds_a_form(tmp_path: Path) -> None:
    first, second = StoredForm(tmp_path / "form"), StoredForm(tmp_path / "form")
    with first.held() as mine, second.held(wait=False) as other:
        assert mine and not other
    with second.held(wait=False) as other:
        assert other


@pytest.mark.long
def test_a_thread_less_computes_while_another_process_compiles(
    sample: Sample, tmp_path: Path, workers: list[FakeWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[int] = []
    eager = Executor.interpreted

    def counted(*given: Any) -> list[torch.Tensor]:
        computed.append(torch.get_num_threads())
        return eager(*given)

    monkeypatch.setattr(Executor, "interpreted", counted)
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        executor = WarmingExecutor(sample.program, "cpu", tmp_path, steps=10**6, clock=ticking())
        run(executor, 6)
        assert len(workers) == 1 and executor.compiling and computed == [3, 3, 3, 2, 2, 2]
        workers[0].ended, workers[0].failure = True, "no compiler"
        run(executor, 2)
        assert computed[6:] == [3, 3] and torch.get_num_threads() == 3
        with background_compile.leaving_a_processor(True), background_compile.leaving_a_processor(True):
            assert torch.get_num_threads() == 1
            with background_compile.leaving_a_processor(True):
                assert torch.get_num_threads() == 1, "one is left"
    finally:
        torch.set_num_threads(threads)
