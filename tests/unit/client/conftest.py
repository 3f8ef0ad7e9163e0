"""A small job that the fake market has settled, and what its client fetched."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.protocol.types import JobId
from tests.fakes.market_day import MarketDay

Fetched = tuple[MarketDay, JobId, Path]


def honest(day: MarketDay) -> JobId:
    """Two rounds of two shards, everybody honest."""
    job_id = day.post()
    day.solvers()
    day.verifiers()
    assert day.run(day.closed(job_id))
    return job_id


@pytest.fixture(scope="session")
def fetched(tmp_path_factory: pytest.TempPathFactory) -> Fetched:
    day = MarketDay(tmp_path_factory.mktemp("nodes"))
    job_id = honest(day)
    folder = tmp_path_factory.mktemp("model")
    day.fetch(job_id, folder)
    return day, job_id, folder


@pytest.fixture
def copy(fetched: Fetched, tmp_path: Path) -> Path:
    """The fetched folder, to be tampered with."""
    for path in fetched[2].iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path
