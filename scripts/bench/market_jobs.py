"""A job led through a devnet of processes to its end: its claims, and the model that anybody can fetch.

Contract: nothing of the nodes is changed; the budget is dealt out generously. Not guaranteed: times, since
nobody is given a core of his own (``scripts.bench.market_devnet`` does that).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from assay.app.invocation import App
from assay.app.machine import RESOURCE_LIMITS
from assay.app.output import Output
from assay.app.settings import Flags
from assay.app.units import parse_amount
from assay.app.web import serve_blocks
from assay.app.wiring import Connection
from assay.client.fetching import fetch
from assay.client.verifying import verify
from assay.devnet.market import NodeSpec, bring_up, fund_account, take_down
from assay.job.estimate import drafted
from assay.job.post import agreed, publish_and_post
from assay.job.read import JobFile
from assay.job.terms import conditions_of
from assay.protocol.types import ClaimView, JobId, Phase
from assay.training.job import JobArtifacts

BLOCK_TIME_S = 0.5
PER_CLAIM = 60
"""Tokens of budget for every task."""
Meanwhile = Callable[[App, Connection, JobId], None]


@dataclass
class Closed:
    """What a market gave."""

    claims: list[ClaimView]
    """All of them, those of no avail too."""
    params: dict[str, Tensor]
    """The fetched and verified model, by name."""
    seconds: float
    """From posting to the last settlement."""

    @property
    def settled(self) -> list[ClaimView]:
        """Those that stand."""
        return [view for view in self.claims if view.status.phase == Phase.SETTLED]


def through_market(
    body: JobFile,
    files: JobArtifacts,
    nodes: Sequence[NodeSpec],
    home: Path,
    limit_s: float,
    meanwhile: Meanwhile | None = None,
    executor: str = "auto",
) -> Closed:
    """The job on a devnet in `home`; `meanwhile` is called twice a second. Raises SystemExit where it does
    not end in time."""
    app = App(Flags(home=str(home), executor=executor), Output(as_json=False, quiet=True), True, False, None)
    try:
        bring_up(app, list(nodes), BLOCK_TIME_S, conditions_of(body))
        fund_account(app, "client", parse_amount("100000tok"))
        connection, storage = app.connect("client"), app.storage("client")
        with serve_blocks("client", connection, storage):
            budget = parse_amount(f"{body.training.rounds * body.training.shards * PER_CLAIM}tok")
            began = time.perf_counter()
            job = agreed(app, connection, body, files, drafted(body, files), budget)
            job_id = publish_and_post(connection, storage, job)
            _wait(app, connection, job_id, began + limit_s, meanwhile)
            seconds = time.perf_counter() - began
            market = connection.market
            storage.follow(market)
            place = connection.chain, market.block
            params = fetch(market, storage.blocks, job_id, home / "model", RESOURCE_LIMITS, *place)
            verify(home / "model")
            return Closed(list(market.claims(job_id)), params, seconds)
    finally:
        take_down(home)
        app.close()


def _wait(app: App, connection: Connection, job_id: JobId, until: float, meanwhile: Meanwhile | None) -> None:
    """Until the job is closed."""
    seen = 0
    while True:
        connection.market.refresh()
        progress = connection.market.job(job_id).progress
        if progress.closed:
            return
        if meanwhile is not None:
            meanwhile(app, connection, job_id)
        if progress.round >= seen + 10:
            seen = progress.round
            print(f"round {seen} of the market", file=sys.stderr, flush=True)
        if time.perf_counter() > until:
            raise SystemExit(f"the job is in round {progress.round} and did not end in time")
        time.sleep(0.5)
