"""What --replays asks for, and what of it cannot be."""

from __future__ import annotations

import pytest

from assay.cli.node.replays import pool_of
from assay.node.engine import Engine
from assay.protocol.errors import Ask


def test_one_replay_at_a_time_needs_no_other_process() -> None:
    assert pool_of(1, None, Engine("cpu")) is None


def test_several_replays_on_a_gpu_are_refused() -> None:
    with pytest.raises(Ask, match="several replays compute on processors only, not on cuda:0"):
        pool_of(2, None, Engine("cuda:0"))
