"""Scenes that many tests play in the market in memory: honest people, a lost shard, a convicted cheat."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from assay.node.audit import audit_claim
from assay.node.findings import Finding
from assay.protocol.types import ClaimView, JobId, Kind, Phase
from tests.fakes.market_day import MarketDay
from tests.fakes.opened import states_of

MAY_BE_ABSENT = {
    "min_shards": 1,
    "task_time": 120,
    "straggler_time": 500,
    "outer_time": 20,
    "max_unsettled": 4,
    "solver_stake": 270,
}
"""Terms under which a round is closed without one of two shards."""


def staffed(day: MarketDay, cheat: Callable[..., Any] | None = None) -> None:
    """Two solvers, the first of which may be a cheat, and two verifiers."""
    day.solver("ann", *([] if cheat is None else [cheat]))
    day.solver("bob")
    day.verifiers()


def absent_in_round_1(day: MarketDay, job_id: JobId) -> int:
    """Bob's node is gone from round 1 on; round 1 closes without its shard, which is returned, carol takes
    it, and the job ends."""
    assert day.run(lambda: day.market_state.jobs[job_id].view.progress.round == 1)
    holders = [day.markets["client"].holder(job_id, k).solver for k in range(2)]
    del day.services["bob"]
    assert day.run(lambda: day.market_state.jobs[job_id].view.progress.round == 2)
    day.solver("carol")
    assert day.run(day.closed(job_id)), day.events[-3:]
    return holders.index(day.address("bob"))


def convicted(day: MarketDay, job_id: JobId, cheat: Callable[..., Any]) -> tuple[Finding | None, ClaimView]:
    """Ann cheats among honest people: what the whistleblower finds, and the claim that falls."""
    staffed(day, cheat)
    wendy = day.whistleblower("wendy")
    assert day.run(lambda: Phase.CONVICTED in day.phases(job_id)), day.events[-5:]
    assert day.named("fault-planted")
    (entry,) = [e for e in day.market_state.claims.values() if e.status.phase == Phase.CONVICTED]
    view = day.market_state.view(entry)
    assert view.claim.claimant == day.address("ann")
    return audit_claim(states_of(wendy, job_id), view), view


def roots_of(day: MarketDay) -> dict[tuple[Kind, int, int], list[bytes]]:
    """State roots of every claim at its segments' ends, its input's first."""
    views = [day.market_state.view(entry) for entry in day.market_state.claims.values()]
    return {(v.claim.kind, v.claim.round, v.claim.shard): list(v.roots) for v in views}
