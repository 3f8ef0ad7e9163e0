"""A running job whose products lose more than bfloat16's tells its client so; bits and pay do not change."""

from __future__ import annotations

from pathlib import Path

import torch

from assay.app.job_progress import line_of, progress_table
from assay.client.following import Following, follow, losses_of
from assay.node.artifacts import load_job
from assay.protocol.types import JobId, Phase
from assay.training.precision import Precisions
from tests.fakes.jobs import RESOURCE_LIMITS
from tests.fakes.market_day import MarketDay
from tests.unit.training.test_precision import made

torch.set_num_threads(1)


def settled(day: MarketDay, precisions: Precisions) -> JobId:
    """A job of one shard with an outlier of 30,000, trained to its end by honest roles."""
    job_id = day.post(made(precisions), shards=1)
    day.solver("ann")
    for i in range(2):
        day.verifier(f"v{i}")
    assert day.run(day.closed(job_id), turns=600), [s.status for s in day.services.values()]
    return job_id


def seen(day: MarketDay, job_id: JobId, measure: bool = True) -> Following:
    market = day.markets["client"]
    files = load_job(day.blocks(), market.job(job_id).terms, RESOURCE_LIMITS)
    return follow(market, job_id, losses_of(market, day.blocks(), job_id, files, measure=measure))


def test_a_job_with_an_outlier_is_settled_and_its_client_told_the_product(tmp_path: Path) -> None:
    day = MarketDay(tmp_path)
    job_id = settled(day, Precisions("single"))
    assert set(day.phases(job_id)) == {Phase.SETTLED}
    following = seen(day, job_id)
    found = following.inaccuracy
    assert found is not None and found.error.whole > 100 and found.products >= 1
    assert (found.round, found.shard, found.step) == (1, 0, 16)
    assert "inaccurate after step 16 (round 1, shard 0)" in line_of(following)
    assert "inaccurate" in str(progress_table(following).caption)
    assert seen(day, job_id, measure=False).inaccuracy is None


def test_the_same_job_in_parts_is_within_the_limit(tmp_path: Path) -> None:
    day = MarketDay(tmp_path)
    following = seen(day, settled(day, Precisions("auto")))
    assert following.inaccuracy is None and "inaccurate" not in line_of(following)
