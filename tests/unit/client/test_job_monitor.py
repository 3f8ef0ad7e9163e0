"""Early stop by held-out losses, and models kept while a job runs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from assay.client.job_monitor import PeriodicFetcher, stalled
from assay.protocol.errors import Retry


def test_a_job_is_stalled_when_no_recent_loss_is_the_lowest() -> None:
    assert not stalled([3.0, 2.0, 1.0], 2) and not stalled([3.0, 2.0], 2)
    assert stalled([3.0, 1.0, 2.0, 1.0], 2), "as low as before is no lower"
    assert not stalled([3.0, 1.0, 2.0, 0.9], 2)
    assert not stalled([None, 3.0, None], 1) and stalled([1.0, None, 2.0, None], 1)


def at(settled: int, rounds: int = 7) -> Any:
    progress = SimpleNamespace(settled_rounds=settled)
    return SimpleNamespace(job=SimpleNamespace(progress=progress, terms=SimpleNamespace(rounds=rounds)))


def test_models_are_kept_every_few_rounds_and_in_the_end(tmp_path: Path) -> None:
    fetched: list[str] = []
    keeper = PeriodicFetcher(tmp_path, 3, lambda place: fetched.append(place.name))
    for settled in (0, 1, 2, 3, 3, 4, 5, 7, 7):
        keeper.look(at(settled))
    assert fetched == ["round-3", "round-7"]


def test_what_cannot_be_fetched_is_tried_again(tmp_path: Path) -> None:
    tries: list[Path] = []

    def fetch(place: Path) -> None:
        tries.append(place)
        if len(tries) == 1:
            raise Retry("withheld", hint="wait")

    keeper = PeriodicFetcher(tmp_path, 1, fetch)
    assert (
        keeper.look(at(1)) is None
        and keeper.look(at(1)) == tmp_path / "round-1"
        and keeper.look(at(1)) is None
    )
