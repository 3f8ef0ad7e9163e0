"""A solver whose steps several processes compute."""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path

import pytest

from assay.node.engine import Engine, ExecutorKind
from assay.program.execute import Executor
from assay.program.ranks import split
from assay.program.ranks.executor import RankExecutor
from assay.program.ranks.launch import LocalRanks
from assay.protocol.types import Phase
from tests.fakes.jobs import inner_program
from tests.fakes.market_day import MarketDay
from tests.fakes.programs import training_sample


@pytest.mark.long
def test_a_solver_that_loses_a_rank_commits_nothing_says_so_and_trains_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(split, "LEAST_SHARE", 0.0)  # the tiny job has no products, and a batch of 2 rows
    ranks = LocalRanks(2)
    day = MarketDay(tmp_path)
    job_id = day.post()
    day.solver("ann", engine=Engine("cpu", ExecutorKind.EAGER, ranks=ranks))
    day.solver("bob")
    for i in range(3):
        day.verifier(f"v{i}")
    try:
        assert day.run(lambda: bool(ranks.processes) and len(day.named("trained")) >= 3)
        commits = len(day.named("committed"))
        (lost,) = ranks.processes
        os.kill(lost, signal.SIGKILL)
        assert day.run(lambda: bool(day.named("retry")))
        assert len(day.named("committed")) == commits
        assert {e["code"] for e in day.named("retry")} == {"rank-lost"}
        assert "rank 1 ended with -9" in day.named("retry")[0]["error"]
        assert "nothing of it is committed" in day.named("retry")[0]["error"]
        assert day.run(day.closed(job_id))
        assert day.phases(job_id) == [Phase.SETTLED] * 6  # every verifier replayed it alone
        assert ranks.processes != [lost]
    finally:
        ranks.close()


def test_a_program_that_cannot_be_split_is_computed_alone_and_the_log_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = Engine("cpu", ExecutorKind.EAGER, ranks=LocalRanks(2))
    with caplog.at_level(logging.WARNING):
        executor = engine.executor(inner_program(), 100)
    assert type(executor) is Executor
    assert "0% of this program's work could be dealt out to 2 ranks" in caplog.text
    assert "use fewer ranks" in caplog.text
    assert isinstance(engine.executor(training_sample().program, 100), RankExecutor)
