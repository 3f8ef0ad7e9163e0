"""Compiled steps: the reference's states, kept on disk, and never trusted when they differ."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from assay.dispute.trace import trace_step
from assay.numerics import product_triton, slow_paths
from assay.program.build import ProgramBuilder
from assay.program.compiled import cache as cache_module
from assay.program.compiled.cache import StoredForm, form_key
from assay.program.compiled.executor import CannotCompile, CompiledExecutor
from assay.program.execute import Executor, StepContext
from assay.program.isa import DType, Program
from assay.program.state import state_root
from assay.protocol.errors import Stop
from assay.training import job, models
from assay.training.optimisers import AdamW, Muon, Sgd
from tests.fakes.programs import Sample, random_sample, training_sample
from tests.unit.training.architectures import CharGru, Llama
from tests.unit.training.steps import built, corpus, images

SEED = b"s" * 32
CPU = torch.device("cpu")


def context(sample: Sample) -> StepContext:
    return StepContext(sample.dataset, SEED, 1, 7)


@pytest.fixture(scope="module")
def cache(forms: Path) -> Path:
    """A cache that holds the checked form of `training_sample`."""
    sample = training_sample()
    CompiledExecutor(sample.program, cache_dir=forms).step(sample.state, context(sample))
    return forms


@pytest.fixture
def own_cache(cache: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(cache, tmp_path / "forms"))


def form_directory(cache: Path, program: Program) -> Path:
    return cache / form_key(program.root, CPU)


@pytest.mark.long
def test_the_loops_of_a_form_are_built_together(cache: Path) -> None:
    found = form_directory(cache, training_sample().program)
    modules = [path.read_text() for path in found.rglob("*.py")]
    assert sum(text.count("async_compile.cpp_pybinding(") for text in modules) > 1
    assert len(list(found.rglob("*.main.so"))) == 1


def test_a_stored_form_is_loaded_and_gives_the_reference_states(
    cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sample = training_sample()
    before = {p: p.stat().st_mtime_ns for p in cache.rglob("*.so")}
    form = CompiledExecutor(sample.program, cache_dir=cache)
    found = form.run(sample.state, context(sample), 3)
    assert state_root(found) == state_root(Executor(sample.program).run(sample.state, context(sample), 3))
    assert {p: p.stat().st_mtime_ns for p in cache.rglob("*.so")} == before != {}
    assert not [record for record in caplog.records if record.name.startswith("program")]


ERF_STEP = """
import sys
from pathlib import Path
import torch
from assay.program.build import ProgramBuilder
from assay.program.compiled.executor import CompiledExecutor
from assay.program.execute import StepContext
from assay.program.isa import DType
build = ProgramBuilder()
program = build.finish([build.erf(build.state(DType.F32, (64,)))], 1)
form = CompiledExecutor(program, cache_dir=Path(sys.argv[1]), self_check=False)
assert form.ready
(made,) = form.step([torch.linspace(-2, 2, 64)], StepContext(None, bytes(32), 0, 0))
print(made.view(torch.int32).sum().item())
"""


@pytest.mark.long
def test_a_stored_form_with_a_table_of_numbers_runs_in_another_process(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ERF_STEP, str(tmp_path)]
    made = [subprocess.run(command, capture_output=True, check=True, text=True).stdout for _ in range(2)]
    assert made[0] == made[1] != ""


def test_a_slot_that_is_not_changed_is_the_same_tensor_though_the_form_copies_it() -> None:
    b = ProgramBuilder()
    x, base = b.state(DType.F32, (3,)), b.state(DType.F32, (3,))
    program = b.finish([b.add(x, x), base], 1)

    def copying(inputs: Sequence[Tensor]) -> list[Tensor]:
        return [inputs[0] * 2, inputs[1].clone()]

    state = [torch.ones(3), torch.arange(3.0)]
    made = CompiledExecutor(program, self_check=False, form=copying)
    after = made.step(state, StepContext(None, SEED, 0, 0))
    assert after[0].tolist() == [2.0] * 3 and after[1] is state[1]

    state[1] = torch.arange(300.0)[:3]
    (_, kept) = made.step(state, StepContext(None, SEED, 0, 0))
    assert kept.tolist() == [0.0, 1.0, 2.0] and kept.untyped_storage().nbytes() == 12, (
        "nothing larger is held"
    )


def test_a_trace_takes_the_reference_way(cache: Path) -> None:
    sample = training_sample()
    form = CompiledExecutor(sample.program, cache_dir=cache)
    made = trace_step(sample.program, sample.state, context(sample), executor=form)
    assert made.root == trace_step(sample.program, sample.state, context(sample)).root


def test_a_state_that_does_not_fit_is_refused(cache: Path) -> None:
    sample = training_sample()
    form = CompiledExecutor(sample.program, cache_dir=cache)
    with pytest.raises(Stop, match="slots"):
        form.step(sample.state[:1], context(sample))
    with pytest.raises(Stop, match="slot 1"):
        form.step([sample.state[0], sample.state[0], sample.state[2]], context(sample))


@pytest.mark.parametrize("damage", ["removed", "interrupted", "unreadable"])
def test_a_damaged_form_is_reported_and_deleted(
    own_cache: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    directory = form_directory(own_cache, training_sample().program)
    if damage == "removed":
        next(directory.rglob("*.so")).unlink()
    elif damage == "interrupted":
        (directory / "form.json").unlink()
    else:
        (directory / "form.json").write_text("{}")
        shutil.rmtree(directory / "aotautograd")
    assert StoredForm(directory).load() is None
    assert "compiled again" in caplog.text
    assert not directory.exists()


def stored(own_cache: Path) -> StoredForm:
    return StoredForm(form_directory(own_cache, training_sample().program))


def test_block_sizes_that_are_written_at_the_first_run_are_no_damage(own_cache: Path) -> None:
    """Inductor writes them anew, with the time that finding them took, after the form was compiled."""
    found = stored(own_cache)
    tuned = found.directory / "ab" / "kernel.best_config"
    tuned.parent.mkdir(exist_ok=True)
    for took in (3, 5):
        tuned.write_text(json.dumps({"XBLOCK": 128, "num_warps": 4, "time_taken_ms": took}))
        assert found.load() is not None
    assert slow_paths.noted() == ()


@pytest.mark.parametrize("content", [b"[1]", b"{", b"\xff", b'{"XBLOCK": 1' + b" " * 4096 + b"}"])
def test_what_holds_no_block_sizes_is_damage_and_noted(own_cache: Path, content: bytes) -> None:
    found = stored(own_cache)
    (found.directory / "kernel.best_config").write_bytes(content)
    assert found.load() is None and not found.directory.exists()
    (why,) = slow_paths.noted()
    assert f"the compiled form in {found.directory} was thrown away" in why and "kernel.best_config" in why


def test_what_the_checked_run_has_written_belongs_to_the_form(own_cache: Path) -> None:
    found = stored(own_cache)
    binary = found.directory / "triton" / "kernel.cubin"
    binary.parent.mkdir()
    binary.write_bytes(b"code")
    found.mark_checked()
    assert found.load() is not None
    binary.write_bytes(b"other")
    assert found.load() is None


@pytest.mark.long
def test_a_changed_form_is_compiled_again(own_cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    sample = training_sample()
    library = next(form_directory(own_cache, sample.program).rglob("*.so"))
    library.write_bytes(library.read_bytes()[:-1] + b"x")
    form = CompiledExecutor(sample.program, cache_dir=own_cache)
    assert "files changed" in caplog.text
    found = form.run(sample.state, context(sample), 2)
    assert state_root(found) == state_root(Executor(sample.program).run(sample.state, context(sample), 2))


def test_a_form_leaves_subnormals_alone(cache: Path) -> None:
    """Compilers may link start-up code into a fast-math library that flushes subnormals in a whole thread."""
    CompiledExecutor(training_sample().program, cache_dir=cache)
    assert (torch.full((64,), 2.0**-140) * 0.5).tolist() == [2.0**-141] * 64


def test_a_form_is_for_one_gpu_of_two_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its code names the GPU that it was compiled for."""
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    keys = {form_key(bytes(32), torch.device(name)) for name in ("cpu", "cuda:0", "cuda:1")}
    assert len(keys) == 3


def test_a_form_for_a_gpu_depends_on_its_driver_and_not_on_the_processor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    versions = ["2.11", "3.6.0", "driver 580", "a GPU"]
    monkeypatch.setattr(product_triton, "versions", lambda device: list(versions))
    gpu = torch.device("cuda:0")
    before = [form_key(bytes(32), device) for device in (gpu, CPU)]
    monkeypatch.setattr(cache_module, "_processor", lambda: ["another"])
    after = [form_key(bytes(32), device) for device in (gpu, CPU)]
    assert after[0] == before[0] and after[1] != before[1]
    for place in range(len(versions)):
        versions[place] += "!"
        assert form_key(bytes(32), gpu) not in before
        before.append(form_key(bytes(32), gpu))


@pytest.mark.long
def test_a_form_with_other_bits_is_deleted_and_never_used(
    own_cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The form of another program of the same shapes lies in this program's place."""
    sample = training_sample()
    b = ProgramBuilder(sample.program.record_size)
    slots = [b.state(node.dtype, node.shape) for node in sample.program.state]
    read = b.convert(b.slice(b.slice(b.data(20, 24), 0, 0, 1), 1, 0, 1), DType.F32)
    other = b.finish([b.mul(slots[0], b.reshape(read, ())), slots[1], slots[2]], 2)
    directory = form_directory(own_cache, sample.program)
    wrong = CompiledExecutor(other, cache_dir=own_cache, self_check=False)
    shutil.rmtree(directory)
    shutil.copytree(form_directory(own_cache, other), directory)
    form = CompiledExecutor(sample.program, cache_dir=own_cache)
    found = form.run(sample.state, context(sample), 2)
    assert state_root(found) == state_root(Executor(sample.program).run(sample.state, context(sample), 2))
    assert state_root(found) != state_root(wrong.run(sample.state, context(sample), 2))
    assert "other bits" in caplog.text and "slot 0 from node" in caplog.text
    assert StoredForm(directory).load() is None
    with pytest.raises(CannotCompile, match=r"refused before: .* slot 0 from node"):
        CompiledExecutor(sample.program, cache_dir=own_cache)
    StoredForm(directory).note.unlink()
    assert not StoredForm(directory).refusal


def test_the_key_names_program_and_threads() -> None:
    one, other = training_sample().program.root, random_sample(0).program.root
    assert form_key(one, CPU) == form_key(one, CPU) != form_key(other, CPU)
    threads, first = torch.get_num_threads(), form_key(one, CPU)
    torch.set_num_threads(threads + 1)
    try:
        assert form_key(one, CPU) != first
    finally:
        torch.set_num_threads(threads)


def agree(made: job.JobArtifacts, steps: int) -> None:
    """The compiled run of a job's inner program gives the reference's state after every step, also after its
    numbers have ceased to be finite."""
    form, reference = CompiledExecutor(made.inner, self_check=False), Executor(made.inner)
    state = made.genesis
    for step in range(steps + 2):
        if step == steps:
            state = poisoned(made, state)
        at = StepContext(made.records, SEED, 0, step)
        after = reference.step(state, at)
        assert state_root(form.step(state, at)) == state_root(after)
        state = after
    assert any(x.isnan().any() for x in state if x.is_floating_point())


def poisoned(made: job.JobArtifacts, state: list[torch.Tensor]) -> list[torch.Tensor]:
    """The state with Inf in its first parameter, NaN in the last, and a number close to overflow between."""
    changed = [x.clone() for x in state]
    last = made.inner.params - 1
    for slot, value in ((0, float("inf")), (last // 2, 3e38), (last, float("nan"))):
        changed[slot].view(-1)[-1] = value
    return changed


@pytest.mark.long
def test_an_mlp_trains_with_the_same_bits() -> None:
    agree(built(models.build(models.MlpConfig(hidden=32, layers=1), 0), Sgd(lr=0.05), images(), batch=16), 3)


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_a_gpt_trains_with_the_same_bits(threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        config = models.GptConfig(n_layer=1, n_head=2, d_model=64, context=32, activation="gelu_erf")
        agree(built(models.build(config, 0), AdamW(), corpus(32), batch=3), 3)
        agree(
            built(models.build(models.MlpConfig(hidden=96, layers=2), 0), Sgd(lr=0.05), images(), batch=64), 3
        )
    finally:
        torch.set_num_threads(before)


@pytest.mark.slow
def test_a_recurrent_network_with_dropout_trains_with_the_same_bits() -> None:
    torch.manual_seed(5)
    agree(built(CharGru(dropout=0.5), AdamW(lr=0.01), corpus(5), batch=8), 4)


@pytest.mark.long
def test_a_sum_of_sums_is_rounded_in_between() -> None:
    """From binary64 to binary32 and back in one loop: an optimiser that drops the rounding is found out."""
    b = ProgramBuilder()
    x = b.state(DType.F32, (512, 8, 64))
    total = b.sum(b.sum(x))
    wide = b.reshape(b.expand(b.reshape(total, (512, 1)), (512, 512)), (512, 8, 64))
    program = b.finish([b.add(x, wide)], params=1)
    state = [torch.randn(512, 8, 64, generator=torch.Generator().manual_seed(3)) * 100]
    at = StepContext(None, SEED, 0, 0)
    form = CompiledExecutor(program, self_check=False)
    assert state_root(form.step(state, at)) == state_root(Executor(program).step(state, at))


@pytest.mark.slow
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_llama_under_muon_trains_with_the_same_bits(accumulate: int) -> None:
    torch.manual_seed(5)
    rule = Muon(lr=0.02, clip_norm=1.0)
    agree(built(Llama(), rule, corpus(8), batch=8, accumulate=accumulate), 4)


@pytest.mark.slow
def test_a_convolutional_network_trains_with_the_same_bits() -> None:
    agree(built(models.build(models.CnnConfig(width=8), 0), Sgd(lr=0.05), images(), batch=16), 3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_random_programs_have_the_same_bits(seed: int) -> None:
    sample = random_sample(seed)
    form = CompiledExecutor(sample.program, self_check=False)
    at = context(sample)
    assert state_root(form.step(sample.state, at)) == state_root(
        Executor(sample.program).step(sample.state, at)
    )
