"""Fixtures of unit tests: a market in memory, and a user without settings."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.fakes.market_day import MarketDay


@pytest.fixture
def day(tmp_path: Path) -> MarketDay:
    """A whole market in one process, which a test turns by hand."""
    from tests.fakes.market_day import MarketDay  # which imports PyTorch, and few tests need it

    return MarketDay(tmp_path / "day")


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, with an empty home folder and no settings."""
    for name in os.environ:
        if name.startswith(("ASSAY_", "ETH_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.chdir(tmp_path)
    return tmp_path
