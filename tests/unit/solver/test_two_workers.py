"""A solver with two workers: processes that train two shards at a time and reach the market by their node."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from assay.compute.node_calls import Home
from assay.compute.orders import WorkerConfig
from assay.compute.pool import Pool, Slower
from assay.compute.process import ProcessWorker
from assay.node.role import Node
from assay.protocol.types import JobId, Kind, Phase, Seconds, Wei
from assay.solver.observation import Limits
from assay.solver.service import SolverService
from tests.fakes.clock import FakeClock
from tests.fakes.jobs import RESOURCE_LIMITS
from tests.fakes.market_day import MarketDay
from tests.fakes.meeting import MeetingSolver

WAIT_S = 120.0


def solver(day: MarketDay, kind: Callable[..., SolverService], **options: Any) -> SolverService:
    """A solver that takes two shards at a time."""
    market = day.join("ann", solver=2_000)
    parts = (
        market,
        day.blocks(),
        FakeClock(day.market_state),
        day.folder / "ann",
        Limits(Wei(0), 2, Seconds(0)),
    )
    day.services["ann"] = service = kind(*parts, RESOURCE_LIMITS, emit=day.events.append, **options)
    return service


def finish(service: Node) -> None:
    """Lets a node poll until its workers have finished their orders."""
    deadline = time.monotonic() + WAIT_S
    while service.actions.waiting:
        assert time.monotonic() < deadline, service.status
        service.tick()
        time.sleep(0.02)


def play(day: MarketDay, job_id: JobId) -> None:
    """The whole job, in which time stands still while workers run."""
    for _ in range(200):
        for service in list(day.services.values()):
            service.tick()
            finish(service)
        if day.closed(job_id)():
            return
        day.market_state.advance(4)
    raise AssertionError([service.status for service in day.services.values()])


def outcome(day: MarketDay) -> dict[tuple[Kind, int, int], tuple[bytes, bytes]]:
    """The roots of every claim, by its place."""
    claims = [entry.claim for entry in day.market_state.claims.values()]
    return {(c.kind, c.round, c.shard): (c.input_root, c.output_root) for c in claims}


def workers(home: Home) -> Pool:
    config = WorkerConfig(threads=1, executor="reference", me=home.market.me)
    return Pool([ProcessWorker(config, home) for _ in range(2)])


@pytest.mark.long
def test_two_workers_train_two_shards_at_a_time_to_the_roots_of_one(tmp_path: Path) -> None:
    meet, days = tmp_path / "meet", {name: MarketDay(tmp_path / name) for name in ("inline", "workers")}
    meet.mkdir()
    makes: dict[str, Callable[..., SolverService]] = {
        "inline": SolverService,
        "workers": partial(MeetingSolver, meet=meet, pool=workers),
    }
    for name, day in days.items():
        job_id = day.post()
        service = solver(day, makes[name])
        day.verifiers(3)
        with service.pool if isinstance(service.pool, Pool) else nullcontext():
            play(day, job_id)
            status = service.pool.status()
        assert day.phases(job_id) == [Phase.SETTLED] * 6 and not day.market_state.games
        assert not day.named("bug") and not day.named("worker-lost")
    assert outcome(days["workers"]) == outcome(days["inline"])
    met = {path.name: int(path.read_text()) for path in meet.iterdir()}
    assert set(met) == {"shard-0", "shard-1"} and len({*met.values(), os.getpid()}) == 3
    assert all(worker.orders > 0 and worker.losses == 0 for worker in status)


@pytest.mark.long
def test_a_worker_that_is_killed_is_told_of_and_the_job_goes_on(day: MarketDay) -> None:
    job_id = day.post()
    service = solver(day, SolverService, pool=workers)
    day.verifiers(3)
    assert isinstance(service.pool, Pool)
    with service.pool as pool:
        service.tick()
        finish(service)
        for worker in pool._workers:
            if isinstance(worker, ProcessWorker) and worker.pid is not None:
                os.kill(worker.pid, 9)
        play(day, job_id)
    assert day.phases(job_id) == [Phase.SETTLED] * 6
    lost = day.named("worker-lost")
    assert lost and all(event["device"] == "cpu" and event["again"] for event in lost)
    assert {event["role"] for event in lost} == {"solver"}


def test_a_worker_that_is_slower_than_it_could_be_is_an_event(day: MarketDay) -> None:
    service = solver(day, SolverService)
    service.pool.on_slower(Slower("cuda:1", "products take longer, by cuBLAS"))
    service.tick()
    (told,) = day.named("worker-slower")
    assert told["device"] == "cuda:1" and told["why"] == "products take longer, by cuBLAS"
