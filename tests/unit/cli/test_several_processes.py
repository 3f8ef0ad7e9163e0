"""What --ranks, torchrun, --replays and --ray ask for, and what of it cannot be."""

from __future__ import annotations

import pytest
import torch

from assay.app.settings import Settings
from assay.cli.node.ranks import ranks_of, serve_if_later
from assay.cli.node.replays import replays_of
from assay.node.engine import Engine
from assay.program.ranks.launch import LaunchedRanks
from assay.protocol.errors import Ask

SETTINGS = Settings.__new__(Settings)  # read only where ranks are started here
CPU, GPU = Engine("cpu"), Engine("cuda:0")


def launched_as(monkeypatch: pytest.MonkeyPatch, rank: int, size: int) -> None:
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", str(size))


def test_one_process_alone_has_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    assert ranks_of(1, CPU, SETTINGS) is None and replays_of(1, None, CPU) is None
    assert not serve_if_later()


def test_torchrun_says_how_many_ranks_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    launched_as(monkeypatch, 0, 4)
    threads = torch.get_num_threads()
    for count in (1, 4):
        found = ranks_of(count, CPU, SETTINGS)
        assert isinstance(found, LaunchedRanks) and found.size == 4
    assert not serve_if_later() and torch.get_num_threads() == threads
    with pytest.raises(Ask, match="torchrun started 4 ranks and --ranks asks for 2"):
        ranks_of(2, CPU, SETTINGS)


def test_a_later_rank_of_torchrun_serves_and_is_no_node(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[int] = []
    launched_as(monkeypatch, 1, 2)
    monkeypatch.setattr(LaunchedRanks, "serve", lambda ranks: served.append(ranks.rank))
    assert serve_if_later() and served == [1]


def test_several_processes_on_a_gpu_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    launched_as(monkeypatch, 0, 2)
    with pytest.raises(Ask, match="several ranks compute on processors only, not on cuda:0"):
        ranks_of(1, GPU, SETTINGS)
    with pytest.raises(Ask, match="several replays compute on processors only, not on cuda:0"):
        replays_of(2, None, GPU)
