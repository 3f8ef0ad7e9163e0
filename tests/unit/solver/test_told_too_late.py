"""Messages of workers about a solver's tasks are ignored once their processes have ended."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assay.protocol.types import ClaimId, JobId
from assay.solver.observation import Observation
from assay.solver.orders import DraftOuter
from assay.solver.service import SolverService
from assay.solver.worker_reports import Place
from tests.fakes.manual_pool import ManualPool
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
    monkeypatch.setattr(ann._convictions, "news", lambda _: [SimpleNamespace(view=_Fallen, silent=False)])
    monkeypatch.setattr(ann._convictions, "heed", lambda *_: None)
    assert ann._heed(observation)
    books.opened(*PLACE, ROOT, SOURCES, 3)
    assert believed(ann) == (3, None), "the task is the same, and all of it is trained anew"


def test_an_outer_draft_that_came_just_before_a_conviction_was_read_is_not_committed(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    day.post(rounds=1, shards=1)
    ann = day.solver("ann", pool=ManualPool)
    pool, convictions = ann.pool, ann._convictions
    assert isinstance(pool, ManualPool)
    day.verifiers()

    def drafts() -> bool:
        if any(isinstance(order, DraftOuter) for order in pool.orders()):
            return True
        pool.step()
        return False

    assert day.run(drafts)
    heed = ann._heed

    def heeded(observation: Observation) -> bool:
        """The order ends while the node looks, and the look shows the conviction."""
        pool.step()
        monkeypatch.setattr(ann, "_heed", heed)
        monkeypatch.setattr(convictions, "news", lambda _: [SimpleNamespace(view=_Fallen, silent=False)])
        monkeypatch.setattr(convictions, "_heeded", (*convictions._heeded, ClaimId(_Fallen.claim_id)))
        monkeypatch.setattr(convictions, "heed", lambda *_: None)
        found = heed(observation)
        monkeypatch.setattr(convictions, "news", lambda _: [])
        return found

    monkeypatch.setattr(ann, "_heed", heeded)
    ann.tick()
    ann.tick()
    assert pool.ended() == 1
    assert [event["kind"] for event in day.named("committed")] == ["TASK"]
    assert any("convicted meanwhile" in event["error"] for event in day.named("retry"))


class _Fallen:
    """A claim that was convicted."""

    claim_id = b"c" * 32

    class claim:
        job_id, round, shard = PLACE

        class kind:
            name = "TASK"
