"""Ranks as processes: started here or by torchrun, and lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.numerics import FAST
from assay.program.execute import Executor, StepContext
from assay.program.ranks import launch
from assay.program.ranks.executor import RankExecutor
from assay.program.ranks.group import RankLost
from assay.program.ranks.launch import LocalRanks, launched
from assay.program.state import state_root
from assay.protocol.errors import Ask
from tests.fakes.programs import training_sample

SAMPLE = training_sample()
CONTEXT = StepContext(SAMPLE.dataset, b"launch".ljust(32, b"\0"), 0, 0)
SCRIPT = """
from assay.program.ranks.executor import RankExecutor
from assay.program.ranks.launch import launched
from assay.program.state import state_root
from tests.unit.program.ranks.test_launch import CONTEXT, SAMPLE
ranks = launched()
if ranks.rank:
    ranks.serve()
else:
    executor = RankExecutor(SAMPLE.program, ranks.size, ranks.join)
    state = executor.run(SAMPLE.state, CONTEXT, 3)
    print("root", state_root(state).hex(), flush=True)
    ranks.close()
"""


@pytest.fixture
def ranks() -> Iterator[LocalRanks]:
    found = LocalRanks(2)
    yield found
    found.close()
    assert not found.processes


@pytest.mark.slow
def test_a_killed_rank_is_a_clear_error_and_the_next_step_has_a_new_one(ranks: LocalRanks) -> None:
    wanted = Executor(SAMPLE.program, "cpu", FAST).run(SAMPLE.state, CONTEXT, 2)
    together = RankExecutor(SAMPLE.program, 2, ranks.join)
    state = together.step(SAMPLE.state, CONTEXT)
    (other,) = ranks.processes
    os.kill(other, signal.SIGKILL)
    with pytest.raises(RankLost, match=r"rank 0 of 2 has lost another \(rank 1 ended with -9\)"):
        together.step(state, CONTEXT)
    assert state_root(together.run(SAMPLE.state, CONTEXT, 2)) == state_root(wanted)
    assert ranks.processes != [other]


def test_a_rank_that_cannot_start_is_a_clear_error(
    monkeypatch: pytest.MonkeyPatch, ranks: LocalRanks
) -> None:
    monkeypatch.setattr(launch.sys, "executable", "/bin/false")
    with pytest.raises(RankLost, match=r"ranks could not be started: rank 1 ended with 1"):
        RankExecutor(SAMPLE.program, 2, ranks.join).step(SAMPLE.state, CONTEXT)


def test_no_number_of_ranks_that_cannot_be_is_taken() -> None:
    with pytest.raises(Ask, match="65 ranks cannot be started"):
        LocalRanks(65)


def test_a_process_of_its_own_is_not_taken_for_one_of_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    assert launched() is None
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    found = launched()
    assert found is not None and (found.rank, found.size) == (1, 2)


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
def test_torchrun_starts_ranks_that_give_the_bits_of_one(tmp_path: Path, size: int) -> None:
    script = tmp_path / "run.py"
    script.write_text(SCRIPT)
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        f"--nproc-per-node={size}",
        "--standalone",
        str(script),
    ]
    root = Path(__file__).resolve().parents[4]
    environment = {**os.environ, "PYTHONPATH": str(root), "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, cwd=root)
    wanted = Executor(SAMPLE.program, "cpu", FAST).run(SAMPLE.state, CONTEXT, 3)
    assert f"root {state_root(wanted).hex()}" in done.stdout, done.stderr
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_a_rank_whose_end_gloo_does_not_notice_is_lost_all_the_same(ranks: LocalRanks) -> None:
    """It has happened: a rank was killed, its process gone, and the first one waited without end."""
    together = RankExecutor(SAMPLE.program, 2, ranks.join)
    state = together.step(SAMPLE.state, CONTEXT)
    group, (other,) = ranks.join(), ranks.processes
    os.kill(other, signal.SIGSTOP)  # its connections stay open, and it answers nothing
    asked = []

    def why_lost(wait_s: float) -> str:
        asked.append(wait_s)
        return "rank 1 ended with -9" if len(asked) > 1 else ""

    group.why_lost = why_lost
    with pytest.raises(RankLost, match="rank 1 ended with -9"):
        while True:  # what it is told fits into the connection's buffers for a while
            state = together.step(state, CONTEXT)
    assert len(asked) > 1
    assert state_root(together.step(SAMPLE.state, CONTEXT)) == state_root(
        Executor(SAMPLE.program, "cpu", FAST).step(SAMPLE.state, CONTEXT)
    )
    assert ranks.processes != [other]
