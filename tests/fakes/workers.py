"""Orders that run in real processes of this machine, for tests of what these share."""

from __future__ import annotations

from assay.compute.node_calls import Home
from assay.compute.orders import WorkerConfig
from assay.compute.pool import Pool
from assay.compute.process import ProcessWorker
from assay.node.findings import Finding
from assay.node.orders import JobSpec, JudgeSegment, ReplayCacheSpec
from assay.protocol.ports import Blocks, MarketView
from assay.protocol.types import ClaimView
from tests.fakes.jobs import RESOURCE_LIMITS


def judged_together(
    market: MarketView, blocks: Blocks, view: ClaimView, kept: ReplayCacheSpec | None = None
) -> list[Finding | bytes]:
    """Judgement of each segment of a claim, in two processes at a time."""
    job_id = view.claim.job_id
    spec = JobSpec(job_id, market.job(job_id).terms, RESOURCE_LIMITS, kept)
    home, config = Home(market, blocks), WorkerConfig(threads=1, me=market.me)
    with Pool([ProcessWorker(config, home) for _ in range(2)]) as pool:
        tasks = [pool.submit(JudgeSegment(spec, "test", view, i)) for i in range(len(view.roots) - 1)]
        return [task.result() for task in tasks]
