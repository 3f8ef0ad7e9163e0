"""Slots that a task does not change are hashed and stored at its start and its end only."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from torch import Tensor

from assay.node.slot_index import ENTRY_BYTES, decode_index
from assay.program.state import begin_roots
from assay.protocol.types import JobId, Kind, Phase
from tests.fakes.jobs import recipe_files
from tests.fakes.market_day import MarketDay

NAME = "diloco-int4"
SEGMENTS = 5


def one_task(day: MarketDay) -> JobId:
    """A job of one task, before anything is done."""
    job_id = day.post(recipe_files(NAME, 1), rounds=1, shards=1, min_shards=1)
    day.solver("ann")
    day.verifiers()
    return job_id


class Roots:
    """Records how many slots the solver hashes at a time. `spoil`: calls that return a wrong bit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, spoil: int | None = None) -> None:
        self.slots: list[int] = []
        self.spoil = spoil
        for module in ("assay.node.slots", "assay.solver.state_publisher"):
            monkeypatch.setattr(f"{module}.begin_roots", self.begin)

    def begin(self, tensors: Sequence[Tensor]) -> Callable[[], list[bytes]]:
        call, found = len(self.slots), begin_roots(tensors)
        self.slots.append(len(tensors))
        if call != self.spoil:
            return found
        return lambda: [bytes([root[0] ^ 1]) + root[1:] for root in found()]


def test_between_begin_and_end_only_what_has_changed_is_hashed(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = one_task(day)
    roots, slots = Roots(monkeypatch), day.market_state.jobs[job_id].view.terms.slots
    assert day.run(day.closed(job_id))
    assert day.phases(job_id) == [Phase.SETTLED] * 2
    task = roots.slots[: SEGMENTS + 1]
    assert task == [slots, *[3] * (SEGMENTS - 1), slots], "parameters, momentum, loss"


def test_a_root_that_came_out_wrong_costs_one_task_and_no_stake(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = one_task(day)
    roots = Roots(monkeypatch, spoil=0)
    assert day.run(day.closed(job_id))
    assert len(roots.slots) > SEGMENTS + 1, "a root was spoilt"
    assert [event["code"] for event in day.named("retry")] == ["progress-lost"]
    trained = [event["segment"] for event in day.named("trained")]
    assert trained == [*range(SEGMENTS - 1), *range(SEGMENTS)], "it is found with the last end"
    assert day.phases(job_id) == [Phase.SETTLED] * 2 and day.market_state.burnt == 0


def test_a_file_that_is_damaged_during_a_task_is_whole_when_the_task_is_committed(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = one_task(day)
    roots, files = Roots(monkeypatch), day.network.blocks
    assert day.run(lambda: len(roots.slots) == 3)
    slots = day.market_state.jobs[job_id].view.terms.slots
    before, after = [decode_index(x, slots) for x in files.values() if len(x) == slots * ENTRY_BYTES][-2:]
    same = next(x.cid for x, y in zip(before, after, strict=True) if x == y)
    whole = files[same]
    files[same] = bytes([whole[0] ^ 1]) + whole[1:]
    assert day.run(lambda: day.phases(job_id, Kind.TASK) != [])
    assert files[same] == whole
    assert day.run(day.closed(job_id)) and day.phases(job_id) == [Phase.SETTLED] * 2
