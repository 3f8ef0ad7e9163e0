"""Execution: data order, determinism over threads, pass-through, and refusal of what does not fit."""

from __future__ import annotations

import resource
import sys
import tracemalloc
from pathlib import Path

import pytest
import torch

from assay.dispute.trace import trace_step
from assay.program.build import ProgramBuilder
from assay.program.execute import Executor, OutOfMemory, Records, StepContext
from assay.program.isa import DType, Program
from assay.program.state import state_root
from assay.protocol import trees
from assay.protocol.errors import Ask, Stop
from assay.protocol.sampling import record_index
from tests.fakes.programs import RECORD_SIZE, random_sample, training_sample

SEED = b"s" * 32


def test_data_reads_the_records_of_its_rows() -> None:
    records = Records(bytes(i for i in range(40) for _ in range(1)), 4)
    b = ProgramBuilder(4)
    slot = b.state(DType.U8, (3, 2))
    program = b.finish([b.data(3, 2, offset=1, first_row=5)], 1)
    after = Executor(program).step(
        [torch.zeros(slot.shape, dtype=torch.uint8)], StepContext(records, SEED, 2, 9)
    )
    for row in range(3):
        at = record_index(SEED, 2, 9, 5 + row, 10) * 4 + 1
        assert after[0][row].tolist() == [at, at + 1]


@pytest.mark.long
def test_attack_T40_a_tree_over_records_of_one_byte_takes_what_it_is_said_to() -> None:
    """It took 146 times their size, which a node's operator had allowed for the data alone."""
    records, count = Records(bytes(100_000), 1), 100_000
    tracemalloc.start()
    try:
        assert records.tree.count == count
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1.2 * count * trees.PACKED_BYTES and peak < 1.5 * count * trees.PACKED_BYTES


def test_records_are_whole_and_have_a_tree() -> None:
    records = Records(bytes(range(12)), 4)
    assert len(records) == 3
    assert records.tree.root == trees.root([trees.leaf(bytes(range(i, i + 4))) for i in (0, 4, 8)])
    for data, size in ((b"", 4), (b"12345", 4), (b"1234", 0)):
        with pytest.raises(Stop, match="whole records"):
            Records(data, size)


def test_step_counter_has_31_bits() -> None:
    b = ProgramBuilder()
    b.state(DType.I32, ())
    program = b.finish([b.step()], 1)
    state = [torch.tensor(0, dtype=torch.int32)]
    assert Executor(program).step(state, StepContext(None, SEED, 0, (1 << 31) + 5))[0].item() == 5


def test_threads_do_not_change_a_bit() -> None:
    sample = training_sample()
    context = StepContext(sample.dataset, SEED, 0, 0)
    threads = torch.get_num_threads()
    roots = set()
    try:
        for count in (1, 2, 4):
            torch.set_num_threads(count)
            roots.add(state_root(Executor(sample.program).run(sample.state, context, 3)))
    finally:
        torch.set_num_threads(threads)
    assert len(roots) == 1


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(20))
def test_an_accelerator_gives_the_same_trace(seed: int) -> None:
    sample = random_sample(seed)
    context = StepContext(sample.dataset, SEED, 0, 0)
    traces = [
        trace_step(sample.program, sample.state, context, executor=Executor(sample.program, device))
        for device in ("cpu", "cuda")
    ]
    assert traces[0].tree == traces[1].tree


def test_run_is_step_after_step() -> None:
    sample = training_sample()
    executor = Executor(sample.program)
    state = sample.state
    for step in range(4, 7):
        state = executor.step(state, StepContext(sample.dataset, SEED, 1, step))
    whole = executor.run(sample.state, StepContext(sample.dataset, SEED, 1, 4), 3)
    assert state_root(state) == state_root(whole)
    assert state_root(whole) != state_root(sample.state)
    assert whole[2].item() == 3


@pytest.mark.parametrize("seed", range(3))
def test_inputs_are_never_changed(seed: int) -> None:
    sample = random_sample(seed)
    before = state_root(sample.state)
    Executor(sample.program).step(sample.state, StepContext(sample.dataset, SEED, 0, 0))
    assert state_root(sample.state) == before


def keeping() -> Program:
    """A step that doubles its first slot and keeps the other two."""
    b = ProgramBuilder()
    x, base, counter = b.state(DType.F32, (3,)), b.state(DType.F32, (3,)), b.state(DType.I32, ())
    return b.finish([b.add(x, x), base, counter], 1)


def test_a_slot_that_is_not_changed_is_the_same_tensor() -> None:
    state = [torch.ones(3), torch.arange(3.0), torch.tensor(5, dtype=torch.int32)]
    after = Executor(keeping()).run(state, StepContext(None, SEED, 0, 0), 3)
    assert after[0].tolist() == [8.0] * 3
    assert after[1] is state[1] and after[2] is state[2]


def test_next_state_holds_no_larger_tensor_alive() -> None:
    b = ProgramBuilder()
    x = b.state(DType.F32, (1,))
    program = b.finish([b.slice(b.exp(b.expand(x, (1000,))), 0, 3, 4)], 1)
    after = Executor(program).step([torch.zeros(1)], StepContext(None, SEED, 0, 0))
    assert after[0].untyped_storage().nbytes() == 4


def test_observe_sees_every_node_in_order_and_patch_replaces() -> None:
    sample = training_sample()
    seen: list[int] = []
    context = StepContext(sample.dataset, SEED, 0, 0)
    executor = Executor(sample.program)
    honest = executor.step(sample.state, context, lambda i, x: seen.append(i))
    assert seen == list(range(len(sample.program.nodes)))
    target = sample.program.outputs[1]
    patched = executor.step(sample.state, context, None, lambda i, x: x + 1 if i == target else x)
    assert torch.equal(patched[1], honest[1] + 1)
    assert torch.equal(patched[0], honest[0])


def test_what_does_not_fit_is_refused() -> None:
    sample = training_sample()
    executor = Executor(sample.program)
    context = StepContext(sample.dataset, SEED, 0, 0)
    with pytest.raises(Stop, match="slots"):
        executor.step(sample.state[:2], context)
    with pytest.raises(Stop, match="slot 1"):
        executor.step([sample.state[0], torch.zeros(65), sample.state[2]], context)
    with pytest.raises(Stop, match="slot 1"):
        executor.step([sample.state[0], sample.state[1].double(), sample.state[2]], context)
    with pytest.raises(Stop, match="dataset"):
        executor.step(sample.state, StepContext(None, SEED, 0, 0))
    assert sample.dataset.record_size == RECORD_SIZE


def doubled(elements: int) -> Program:
    b = ProgramBuilder()
    x = b.state(DType.F32, (elements,))
    return b.finish([b.add(x, x)], 1)


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="address space is limited in this way on Linux")
def test_too_little_memory_is_said_with_sizes() -> None:
    """The processor's own allocator refuses, since this process may have no more address space."""
    elements = 1 << 26  # 256 MiB
    executor, state = Executor(doubled(elements)), [torch.zeros(elements)]
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), before[1]))
    try:
        with pytest.raises(OutOfMemory, match="the state is 256 MiB") as refused:
            executor.step(state, StepContext(None, bytes(32), 0, 0))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert refused.value.code == "out-of-memory" and refused.value.hint
    assert executor.step(state, StepContext(None, bytes(32), 0, 0))[0].sum() == 0


@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory")])
def test_every_way_of_running_out_of_memory_is_the_same_error(error: Exception) -> None:
    def refuse(_: int, __: torch.Tensor) -> None:
        raise error

    with pytest.raises(OutOfMemory):
        Executor(doubled(4)).step([torch.zeros(4)], StepContext(None, bytes(32), 0, 0), observe=refuse)


def test_other_errors_of_a_step_stay_what_they_are() -> None:
    def fail(_: int, __: torch.Tensor) -> None:
        raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"):
        Executor(doubled(4)).step([torch.zeros(4)], StepContext(None, bytes(32), 0, 0), observe=fail)


@pytest.mark.parametrize(("device", "code"), [("cuda:99", "no-cuda"), ("meta", "bad-device")])
def test_a_device_that_cannot_be_used_is_said(device: str, code: str) -> None:
    with pytest.raises(Ask) as refused:
        Executor(doubled(4), device)
    assert refused.value.code == code and refused.value.hint
