"""What workers told of a solver's tasks is not believed once their processes have ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.protocol.types import JobId
from assay.solver.books import Place
from assay.solver.service import SolverService
from tests.fakes.market_day import MarketDay

ROOT = b"r" * 32
SOURCES = (0, (), ())


@pytest.fixture
def ann(tmp_path: Path) -> SolverService:
    return MarketDay(tmp_path).solver("ann")


PLACE: Place = (JobId(b"j" * 32), 0, 0)


def believed(ann: SolverService) -> Any:
    ann.actions.take_in()
    return ann.tasks.segments(PLACE, SOURCES), ann.tasks.draft(PLACE, SOURCES)


def test_segments_that_were_told_before_a_process_ended_end_with_it(ann: SolverService) -> None:
    books = ann.books()
    books.opened(*PLACE, ROOT, SOURCES, 3)
    ann.pool.renew()
    assert believed(ann) == (None, None), "they were in its memory"
    books.opened(*PLACE, ROOT, SOURCES, 3)
    assert believed(ann) == (3, None)


def test_a_draft_that_was_told_before_a_conviction_is_not_committed_after_it(
    ann: SolverService, monkeypatch: pytest.MonkeyPatch
) -> None:
    books, draft = ann.books(), object()
    books.opened(*PLACE, ROOT, SOURCES, 3)
    books.drafted(*PLACE, ROOT, draft)  # type: ignore[arg-type]
    assert believed(ann) == (3, (draft, None))
    books.drafted(*PLACE, ROOT, draft)  # type: ignore[arg-type]
    observation = ann.see()
    monkeypatch.setattr(ann._convictions, "news", lambda _: [_Fallen])
    monkeypatch.setattr(ann._convictions, "heed", lambda *_: None)
    assert ann._heed(observation)
    books.opened(*PLACE, ROOT, SOURCES, 3)
    assert believed(ann) == (3, None), "the task is the same, and all of it is trained anew"


class _Fallen:
    """A claim that was convicted."""

    claim_id = b"c" * 32

    class claim:
        job_id, round, shard = PLACE

        class kind:
            name = "TASK"
