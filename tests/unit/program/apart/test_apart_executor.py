"""Steps computed by a process of its own: the same bits, the same tensors, and whoever ends on the way."""

from __future__ import annotations

import errno
import gc
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from assay.dispute.trace import trace_step
from assay.node.engine import Engine, ExecutorKind
from assay.node.shortage import shortage
from assay.program.apart import memory
from assay.program.apart.executor import MOST_LOSSES, Apart, ApartExecutor, CannotCompute, ComputingLost, fit
from assay.program.apart.messages import Forget, Prepare, Run
from assay.program.apart.worker import _Computing
from assay.program.build import ProgramBuilder
from assay.program.excerpt import Steps, chooses_records
from assay.program.execute import Executor, OutOfMemory, StepContext, own
from assay.program.isa import DType, encode
from assay.program.state import state_root
from assay.protocol.errors import Retry, Stop
from tests.fakes.programs import Sample, random_sample, training_sample
from tests.unit.program.apart.making import Failing, Waiting, dying, plain

SEED = b"apart".ljust(32, b"\0")


@pytest.fixture(scope="module")
def apart() -> Iterator[Apart]:
    process = Apart()
    yield process
    process.close()


def at(sample: Sample, step: int) -> StepContext:
    return StepContext(sample.dataset, SEED, 1, step)


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ends_within(pid: int, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not alive(pid):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("seed", range(8))
def test_the_bits_are_those_of_the_definition(apart: Apart, seed: int) -> None:
    sample = random_sample(seed)
    executor = ApartExecutor(sample.program, plain, apart)
    first = executor.run(sample.state, at(sample, 7), 2)
    assert state_root(first) == state_root(Executor(sample.program).run(sample.state, at(sample, 7), 2))
    second = executor.step(first, at(sample, 9))
    assert state_root(second) == state_root(Executor(sample.program).run(sample.state, at(sample, 7), 3))
    again = executor.run(sample.state, at(sample, 7), 3)  # not from where the process has come to
    assert state_root(again) == state_root(second)
    assert state_root(first) == state_root(executor.run(sample.state, at(sample, 7), 2)), "it was changed"


def test_executors_in_turn_have_their_own_states(apart: Apart) -> None:
    samples = [training_sample(), random_sample(3)]
    executors = [ApartExecutor(sample.program, plain, apart) for sample in samples]
    states = [sample.state for sample in samples]
    for step in range(3):
        states = [e.step(x, at(s, step)) for e, x, s in zip(executors, states, samples, strict=True)]
    for sample, state in zip(samples, states, strict=True):
        assert state_root(state) == state_root(Executor(sample.program).run(sample.state, at(sample, 0), 3))


def unchanging(size: int = 1000) -> Sample:
    """A program of three slots of which a step changes one, and swaps the others."""
    b = ProgramBuilder(4)
    x, y, z = (b.state(DType.F32, (size,)) for _ in range(3))
    program = b.finish([b.add(x, y), z, y], params=1)
    return Sample(program, training_sample().dataset, [torch.full((size,), float(i)) for i in range(3)])


@pytest.mark.parametrize("size", [1000, memory.LARGE_BYTES])
def test_a_slot_that_stays_is_the_same_tensor(apart: Apart, size: int) -> None:
    sample = unchanging(size)
    executor = ApartExecutor(sample.program, plain, apart)
    first = executor.run(sample.state, at(sample, 0), 2)
    assert first[1] is sample.state[1] and first[2] is sample.state[2]
    assert first[0] is not sample.state[0]
    second = executor.step(first, at(sample, 2))
    assert second[1] is first[2] and second[2] is first[1]
    assert torch.equal(second[0], torch.full((size,), 4.0))


def mapped(pid: int | str) -> int:
    """How many tensors a process holds in memory that others may map."""
    return Path(f"/proc/{pid}/maps").read_text().count("memfd:assay-state")


def test_memory_of_states_goes_with_them(apart: Apart) -> None:
    sample = unchanging(memory.LARGE_BYTES)
    executor, state = ApartExecutor(sample.program, plain, apart), sample.state
    state = executor.step(state, at(sample, 0))
    places = "self", apart.process
    before = [len(os.listdir(f"/proc/{pid}/fd")) for pid in places]
    gc.collect()
    held = [mapped(pid) for pid in places if pid is not None]
    assert held[0] >= 1, "the slot that was changed"
    for step in range(1, 10):
        state = executor.step(state, at(sample, step))
    assert [mapped(pid) for pid in places if pid is not None] <= held, "of all states but the last"
    assert all(
        len(os.listdir(f"/proc/{pid}/fd")) <= many + 2 for pid, many in zip(places, before, strict=True)
    )
    assert torch.equal(state[0][:1], torch.tensor([sum([1.0, 2.0] * 5)]))


def test_one_that_does_not_wait_is_computed_here_meanwhile(apart: Apart) -> None:
    sample = training_sample()
    busy = ApartExecutor(sample.program, Waiting, apart)
    patient = ApartExecutor(sample.program, plain, apart)
    here = ApartExecutor(sample.program, dying, apart, waits=False)
    with ThreadPoolExecutor(2) as threads:
        long = threads.submit(busy.run, sample.state, at(sample, 0), 1)
        assert not wait([long], 0.5).done, "it takes two seconds"
        queued = threads.submit(patient.run, sample.state, at(sample, 3), 2)
        found = here.run(sample.state, at(sample, 3), 2)
        assert not long.done() and not queued.done()
        assert state_root(found) == state_root(queued.result())
        assert long.result() is not None


def test_what_is_observed_or_patched_is_computed_here(apart: Apart) -> None:
    sample = training_sample()
    executor = ApartExecutor(sample.program, plain, apart)
    key = b"k" * 32
    traced = trace_step(sample.program, sample.state, at(sample, 3), key, executor=executor)
    wanted = trace_step(sample.program, sample.state, at(sample, 3), key)
    assert traced.root == wanted.root

    def patch(index: int, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if index == 0 else x

    patched = executor.step(sample.state, at(sample, 3), None, patch)
    assert state_root(patched) == state_root(
        Executor(sample.program).step(sample.state, at(sample, 3), None, patch)
    )
    assert state_root(patched) != state_root(executor.step(sample.state, at(sample, 3))), (
        "nothing was patched"
    )


def test_a_state_that_does_not_fit_is_refused_here(apart: Apart) -> None:
    sample = training_sample()
    executor = ApartExecutor(sample.program, plain, apart)
    with pytest.raises(Stop, match="slots"):
        executor.run(sample.state[:-1], at(sample, 0), 1)


def test_a_process_that_ends_is_told_and_another_one_started() -> None:
    apart, sample = Apart(), training_sample()
    executor = ApartExecutor(sample.program, plain, apart)
    first = executor.run(sample.state, at(sample, 0), 2)
    killed = apart.process
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    assert ends_within(killed, 10)
    with pytest.raises(ComputingLost, match="signal 9"):
        executor.run(first, at(sample, 2), 1)
    after = executor.run(first, at(sample, 2), 1)
    assert apart.process not in (None, killed)
    assert state_root(after) == state_root(Executor(sample.program).run(sample.state, at(sample, 0), 3))
    apart.close()
    assert apart.process is None
    with pytest.raises(ComputingLost, match="this node ends"):
        executor.run(first, at(sample, 2), 1)
    assert apart.process is None, "nothing is started any more"


@pytest.mark.long
def test_a_process_that_ends_each_time_asks_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    apart, sample = Apart(), training_sample()
    executor = ApartExecutor(sample.program, dying, apart)
    for _ in range(MOST_LOSSES - 1):
        with pytest.raises(ComputingLost, match="status 7"):
            executor.run(sample.state, at(sample, 0), 1)
    with pytest.raises(CannotCompute, match="3 times"):
        executor.run(sample.state, at(sample, 0), 1)
    well = ApartExecutor(sample.program, plain, apart)
    well.run(sample.state, at(sample, 0), 1)
    with pytest.raises(ComputingLost):
        executor.run(sample.state, at(sample, 0), 1)
    apart.close()


def test_what_the_machine_lacks_is_told_as_such(apart: Apart, monkeypatch: pytest.MonkeyPatch) -> None:
    sample = training_sample()
    executor = ApartExecutor(sample.program, Failing, apart)
    for step in (15, 16):
        with pytest.raises((OSError, MemoryError)) as lacking:
            executor.run(sample.state, at(sample, step), 1)
        assert shortage(lacking.value) is not None

    def full(tensors: object) -> list[int]:
        raise OSError(errno.ENOMEM, "no memory")

    process = apart.process
    monkeypatch.setattr(memory, "placed", full)
    with pytest.raises(OSError, match="no memory"):
        executor.run(sample.state, at(sample, 17), 1)
    assert apart.process == process, "which is well"


def test_what_it_raises_and_logs_is_raised_and_logged_here(
    apart: Apart, caplog: pytest.LogCaptureFixture
) -> None:
    sample = training_sample()
    executor = ApartExecutor(sample.program, Failing, apart)
    with pytest.raises(OutOfMemory, match="no memory for step 13") as refused:
        executor.run(sample.state, at(sample, 13), 1)
    assert refused.value.hint == "end other programs"
    assert ("assay.tests.making", logging.WARNING, "step 13 of a test") in caplog.record_tuples
    with pytest.raises(RuntimeError, match=r"(?s)making\.py.*ZeroDivisionError: a bug"):
        executor.run(sample.state, at(sample, 14), 1)
    after = executor.run(sample.state, at(sample, 17), 2)
    assert state_root(after) == state_root(Executor(sample.program).run(sample.state, at(sample, 17), 2))


_PARENT = """
import sys, time
from assay.program.apart.executor import Apart, ApartExecutor
from assay.program.execute import StepContext
from tests.fakes.programs import training_sample
from tests.unit.program.apart.making import Slow, plain
sample = training_sample()
apart = Apart()
executor = ApartExecutor(sample.program, {"idle": plain, "busy": Slow}[sys.argv[1]], apart)
if sys.argv[1] == "busy":
    apart._started()
    print(apart.process, flush=True)
executor.run(sample.state, StepContext(sample.dataset, b"s" * 32, 0, 0), 1)
print(apart.process, flush=True)
time.sleep(60)
"""


@pytest.mark.long
@pytest.mark.parametrize("doing", ["idle", "busy"])
def test_it_ends_when_its_node_is_killed(doing: str) -> None:
    root = Path(__file__).resolve().parents[4]
    parent = subprocess.Popen([sys.executable, "-c", _PARENT, doing], stdout=subprocess.PIPE, cwd=root)
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    if doing == "busy":
        time.sleep(5)  # it loads, and is in the midst of its run
    assert alive(worker)
    parent.kill()
    parent.wait()
    assert ends_within(worker, 15)
    parent.stdout.close()


def test_what_nobody_orders_any_more_is_forgotten(apart: Apart) -> None:
    sample, other = training_sample(), random_sample(1)
    executor = ApartExecutor(sample.program, plain, apart)
    executor.step(sample.state, at(sample, 0))
    number = executor.number
    assert number in apart._prepared
    del executor
    gc.collect()
    ApartExecutor(other.program, plain, apart).step(other.state, at(other, 0))
    assert number not in apart._prepared

    computing = _Computing()
    for number in (5, 6):
        computing.prepare(Prepare(number, encode(sample.program), plain))
    order = Run(5, Steps(SEED, 0, 0, 0, 0, {}), False, 1)
    with memory.held(memory.placed(sample.state)) as given:
        computing.run(order, given)
        with pytest.raises(Retry, match="has not the state"):
            computing.run(replace(order, number=6, latest=True), [])
        computing.run(order, given)
        computing.forget(Forget((5,)))
        with pytest.raises(KeyError):
            computing.run(order, given)


def test_to_forget_one_costs_another_nothing(apart: Apart) -> None:
    gone, other = training_sample(), random_sample(1)
    executor, stays = ApartExecutor(gone.program, plain, apart), ApartExecutor(other.program, plain, apart)
    executor.step(gone.state, at(gone, 0))
    state = stays.run(other.state, at(other, 0), 2)
    del executor
    gc.collect()
    assert apart._forgotten, "it is forgotten at the next run, which goes on from the latest state"
    state = stays.step(state, at(other, 2))
    assert not apart._forgotten
    assert state_root(state) == state_root(Executor(other.program).run(other.state, at(other, 0), 3))


def test_small_programs_and_those_that_choose_records_are_computed_here() -> None:
    small = training_sample().program
    assert not fit(small) and fit(small, least_bytes=1)
    choosing = [s.program for s in map(random_sample, range(40)) if chooses_records(s.program)]
    assert choosing and not any(fit(program, least_bytes=1) for program in choosing)


def test_an_engine_computes_large_steps_apart(apart: Apart, monkeypatch: pytest.MonkeyPatch) -> None:
    sample = training_sample()
    for way in (ExecutorKind.EAGER, ExecutorKind.REFERENCE):
        engine = Engine(way=way, apart=apart)
        assert not isinstance(engine.executor(sample.program, 10), ApartExecutor)
        with monkeypatch.context() as patched:
            patched.setattr("assay.node.engine.fit", lambda program: True)
            executor = engine.executor(sample.program, 10)
        assert isinstance(executor, ApartExecutor)
        after = executor.run(sample.state, at(sample, 0), 2)
        assert state_root(after) == state_root(Executor(sample.program).run(sample.state, at(sample, 0), 2))


def test_memory_holds_every_dtype_and_shape() -> None:
    tensors = [
        torch.arange(5, dtype=torch.uint8),
        torch.tensor([True, False, True]),
        torch.tensor(3, dtype=torch.int32),
        torch.arange(6, dtype=torch.int16).view(2, 3),
        torch.tensor([[float("nan"), -0.0]]),
        torch.empty(0, 4),
        torch.randn(700, 600).t(),
        torch.arange(memory.LARGE_BYTES, dtype=torch.int32).to(torch.uint8),
    ]
    kinds = [(x.dtype, tuple(x.shape)) for x in tensors]
    with memory.held(memory.placed(tensors)) as descriptors:
        mapped = memory.found(descriptors, kinds)
    for x, y in zip(tensors, mapped, strict=True):
        assert x.dtype == y.dtype and x.shape == y.shape
        assert x.contiguous().numpy().tobytes() == y.numpy().tobytes()
    assert len(descriptors) == 3, "the two large ones, and all others together"
    assert all(own(x) is x for x in mapped), "none holds another one's memory"
    assert memory.placed([]) == [] == memory.found([], [])


def test_where_such_memory_is_refused_steps_are_computed_here(
    apart: Apart, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container, whose Python has the function all the same."""

    def refused(name: str) -> int:
        raise PermissionError(errno.EPERM, "not here")

    program = training_sample().program
    assert fit(program, least_bytes=1)
    monkeypatch.setattr(os, "memfd_create", refused)
    memory.available.cache_clear()
    try:
        assert not fit(program, least_bytes=1)
    finally:
        memory.available.cache_clear()
