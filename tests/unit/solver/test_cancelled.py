"""Training that is cancelled loses the segment under way alone."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from assay.compute.inline import InlinePool
from assay.compute.orders import Cancelled
from assay.solver import state_publisher
from assay.solver.orders import trainer_of
from tests.fakes.market_day import MarketDay


def test_what_is_trained_is_stored_before_a_cancelled_order_ends(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = day.post(shards=1)
    ann = day.solver("ann")
    assert day.run(lambda: bool(day.named("examined")))
    (job,) = cast(InlinePool, ann.pool).context.cache["jobs"].values()
    trainer = trainer_of(job)
    trainer.background_bytes = 0
    cancelled, never, stored = threading.Event(), threading.Event(), list[int]()
    publish, keep = state_publisher.publish_state, trainer._books.stored

    def slow(*arguments: Any) -> Any:
        if stored:  # the state after the first segment
            cancelled.wait(60)
            never.wait(0.2)
        return publish(*arguments)

    def counted(job: Any, round_: int, shard: int, leaves: Any) -> None:
        keep(job, round_, shard, leaves)
        stored.append(len(leaves))

    def told(done: int, total: int) -> None:
        if stored and done and trainer._task is not None and trainer._task.segments == 1:
            cancelled.set()
            raise Cancelled("the node ends", hint="-")

    monkeypatch.setattr(state_publisher, "publish_state", slow)
    monkeypatch.setattr(trainer._books, "stored", counted)
    trainer.train(0, 0, ahead=False, told=told)
    with pytest.raises(Cancelled):
        trainer.train(0, 0, ahead=False, told=told)
    assert stored == [1, 2], "the input, and the segment that was trained"
    root = trainer.inputs.root(0, 0)
    assert len(ann.books().left(job_id, 0, 0, root)) == 2, "and it is told where a restart looks"
