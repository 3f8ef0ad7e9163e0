"""A streamed step has an ordinary step's bits, in a part of its memory."""

from __future__ import annotations

import os
import subprocess
import sys
from io import BytesIO, FileIO
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.dispute.replay import Replay
from assay.dispute.trace import trace_step
from assay.program import streamed
from assay.program.execute import Executor, StepContext
from assay.program.fault import NodeFault
from assay.program.isa import Op, encode
from assay.program.state import load_state, state_bytes, state_root
from assay.program.streamed import Spill, StreamedExecutor, spilled
from assay.program.validate import last_uses, measure, node_bytes
from assay.training import datasets, job, models
from assay.training.losses import cross_entropy
from assay.training.optimisers import AdamW
from assay.training.outer import DiLoCo
from tests.fakes.arena import FIRST_STEP, SEED, SHARD, open_game, referee
from tests.fakes.programs import random_sample, training_sample

STEPS = 3
LIMITED = """
import resource, sys
from io import BytesIO, FileIO
from pathlib import Path

import torch

torch.set_num_threads(1)
from assay.program import isa
from assay.program.execute import Executor, OutOfMemory, Records, StepContext
from assay.program.kernels import FAST, TORCH_DTYPES
from assay.program.state import load_state, state_bytes, state_root
from assay.program.streamed import Spill, StreamedExecutor
from assay.program.validate import measure

folder = Path(sys.argv[1])
program, place = isa.decode((folder / "program").read_bytes()), Spill(folder)
context = StepContext(Records(bytes(range(256)) * program.record_size, program.record_size), bytes(32), 0, 0)
state = [place(torch.full(x.shape, 0.01).to(TORCH_DTYPES[x.dtype])) for x in program.state]
ordinary, cost = Executor(program, kernels=FAST), measure(program)
root = state_root(ordinary.step(state, context))
lines = Path("/proc/self/status").read_text().splitlines()
used = next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmData:"))
room = (cost.peak_bytes - program.state_bytes + cost.streamed_bytes) // 2
resource.setrlimit(resource.RLIMIT_DATA, (used + room, -1))
try:
    ordinary.step(state, context)
except (MemoryError, OutOfMemory):
    print("ordinary: no")
executor = StreamedExecutor(program, cost.streamed_bytes, place, FAST)
print("streamed:", state_root(executor.step(state, context)) == root)
"""


@pytest.fixture
def in_files(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """All tensors count as large; fills up with the sizes of those that went to files."""
    sizes: list[int] = []

    def counted(self: Spill, x: torch.Tensor, before: Any = Spill.__call__) -> torch.Tensor:
        sizes.append(x.numel() * x.element_size())
        return before(self, x)

    monkeypatch.setattr(streamed, "SMALL_BYTES", 1)
    monkeypatch.setattr(Spill, "__call__", counted)
    return sizes


def streaming(program: Any, folder: Path) -> StreamedExecutor:
    return StreamedExecutor(program, measure(program).streamed_bytes, Spill(folder))


@pytest.mark.parametrize("seed", range(6))
def test_bits_are_those_of_an_ordinary_step(seed: int, in_files: list[int], tmp_path: Path) -> None:
    sample = random_sample(seed)
    executor = streaming(sample.program, tmp_path / "spill")
    state = other = sample.state
    for step in range(STEPS):
        context = StepContext(sample.dataset, SEED, SHARD, step)
        seen: dict[int, torch.Tensor] = {}
        state = Executor(sample.program).step(state, context)
        other = executor.step(other, context, seen.__setitem__)
        assert state_root(other) == state_root(state) and len(seen) == len(sample.program.nodes)
    assert in_files and not list((tmp_path / "spill").iterdir()), "a file has a name"


def test_of_what_does_not_fit_only_the_rest_stays_in_memory() -> None:
    program, room = training_sample().program, measure(training_sample().program).widest_bytes
    gone, last = spilled(program, room), last_uses(program)
    assert set(program.outputs) - set(range(program.slots)) <= gone
    for now, node in enumerate(program.nodes):
        held = [i for i in range(program.slots, now) if last[i] >= now and i not in gone]
        large = sum(program.nodes[i].bytes for i in held if program.nodes[i].bytes >= streamed.SMALL_BYTES)
        assert node.op is Op.STATE or large + node_bytes(node) <= room
    assert spilled(program, 1 << 40) == set(program.outputs) - set(range(program.slots))


def test_attack_05_a_game_is_played_streamed_to_its_end(in_files: list[int], tmp_path: Path) -> None:
    """The challenger has memory for a step, the cheat has it; then the other way round."""
    sample = training_sample()

    def replay(streams: bool, lies: bool) -> Replay:
        executor = streaming(sample.program, tmp_path) if streams else Executor(sample.program)
        fault = (
            NodeFault(step=FIRST_STEP + 2, node=len(sample.program.nodes) - 2, element=0) if lies else None
        )
        place = SEED, SHARD, FIRST_STEP
        return Replay(sample.program, sample.state, sample.dataset, *place, executor=executor, fault=fault)

    for defends_streamed in (False, True):
        cheat, honest = replay(defends_streamed, True), replay(not defends_streamed, False)
        game = open_game(cheat, 4, cheat.root(0), cheat.root(4))
        view = referee(game, cheat, honest)
        assert view.challenger_won and view.reason in ("arithmetic", "output"), view.reason
        assert in_files
        in_files.clear()


def test_a_trace_keeps_no_outputs_in_memory(in_files: list[int], tmp_path: Path) -> None:
    """And an output that is asked for later, or a state that is read, goes to a file."""
    sample, context = training_sample(), StepContext(training_sample().dataset, SEED, SHARD, FIRST_STEP)
    ordinary = trace_step(sample.program, sample.state, context)
    executor = streaming(sample.program, tmp_path)
    traced = trace_step(sample.program, sample.state, context, executor=executor)
    assert traced.root == ordinary.root and len(ordinary._kept) == len(sample.program.nodes)
    assert {sample.program.nodes[i].op for i in traced._kept} <= {Op.CONST, Op.STATE}
    in_files.clear()
    load_state(sample.program, BytesIO(state_bytes(sample.state)), Spill(tmp_path))
    assert in_files == [node.bytes for node in sample.program.state]
    in_files.clear()
    last = len(sample.program.nodes) - 1
    assert traced.tensor_tree(last).root == ordinary.tensor_tree(last).root
    assert in_files[-1] == sample.program.nodes[last].bytes


def test_a_full_disk_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """/dev/full answers each write as a full disk does."""
    monkeypatch.setattr(streamed, "TemporaryFile", lambda dir: FileIO("/dev/full", "w"))
    with pytest.raises(OSError, match="No space left"):
        Spill()(torch.zeros(streamed.SMALL_BYTES))


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA counts private memory on Linux alone")
def test_under_a_limit_that_an_ordinary_step_exceeds_a_streamed_one_gives_the_root(tmp_path: Path) -> None:
    data = datasets.standard_library(64, max_bytes=20_000)
    model = models.build(models.GptConfig(n_layer=2, n_head=4, d_model=128, context=64), 0)
    made = job.build_job(model, cross_entropy, AdamW(), data, batch=1, shards=2, outer=DiLoCo())
    (tmp_path / "program").write_bytes(encode(made.inner))
    given = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}
    ran = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)], env=given, capture_output=True, text=True, check=False
    )
    assert ran.stdout.splitlines() == ["ordinary: no", "streamed: True"], ran.stdout + ran.stderr
