"""Faults reported by users of other networks, tried on this one; each test names its report."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from assay.cli.node.run import EventLog, killed_at
from assay.client.following import follow
from assay.protocol.types import Address, ClaimView, JobId, Kind, Phase
from assay.solver.service import SolverService
from drills.orders import WeightPlan
from drills.solvers import FaultySolver
from tests.fakes.jobs import recipe_files
from tests.fakes.market_day import MarketDay
from tests.fakes.port import FakeMarket


class Incomplete(FakeMarket):
    """A view that lacks some claims, as of a backend whose index is not whole."""

    lacks: frozenset[tuple[Kind, int]] = frozenset()

    def claims(self, job_id: JobId) -> list[ClaimView]:
        return [v for v in super().claims(job_id) if (v.claim.kind, v.claim.round) not in self.lacks]


@pytest.mark.parametrize(
    "lacks",
    [
        {(Kind.OUTER, 0)},
        {(Kind.TASK, 0)},
        {(Kind.TASK, 1), (Kind.OUTER, 1)},
        {(Kind.TASK, 0), (Kind.OUTER, 0)},
    ],
)
def test_optimism_21333_who_knows_a_part_of_the_claims_accuses_none(
    lacks: set[tuple[Kind, int]], day: MarketDay
) -> None:
    job_id = day.post(rounds=3)
    day.solvers()
    day.verifiers()
    day.join("wendy")
    partly = Incomplete(day.market_state, day.address("wendy"))
    partly.lacks = frozenset(lacks)
    day.markets["wendy"] = partly
    day.whistleblower("wendy")
    assert day.run(day.closed(job_id))
    assert day.named("announced") == day.named("opened") == []
    assert set(day.phases(job_id)) == {Phase.SETTLED}


def test_dave_275_a_winner_who_goes_away_freezes_nothing(day: MarketDay) -> None:
    """The whistleblower's part of the conviction is never asked for."""
    job_id = day.post(rounds=2)
    day.solver("ann", lambda *a, **k: FaultySolver(*a, plan=WeightPlan(0, 1, 0, 3), **k))
    for name in ("bob", "cid"):
        day.solver(name)
    day.verifiers()
    day.whistleblower("wendy")
    assert day.run(lambda: Phase.CONVICTED in day.phases(job_id))
    for name in ("wendy", "v0", "v1"):
        if any(game.game.challenger == day.address(name) for game in day.markets["client"].games(job_id)):
            day.services.pop(name)
    day.verifier("v2")
    day.verifier("v3")
    assert day.run(day.closed(job_id), turns=900)


@pytest.mark.parametrize("least_s, most_s", [(1, 1), (1, 40), (12, 12)])
def test_templar_142_no_deadline_reckons_with_a_time_between_blocks(
    least_s: int, most_s: int, day: MarketDay
) -> None:
    rng = random.Random(most_s)
    job_id = day.post(rounds=2)
    funds = dict.fromkeys(("ann", "bob", "v0", "v1"), 0)
    day.solvers()
    day.verifiers()
    for _ in range(4_000):
        if day.closed(job_id)():
            break
        for service in day.services.values():
            service.tick()
        day.market_state.advance(rng.randint(least_s, most_s))
    assert day.closed(job_id)() and set(day.phases(job_id)) == {Phase.SETTLED}
    for name in funds:
        market = day.markets[name]
        assert market.job(job_id).progress.rewinds == 0
        assert not [e for e in day.events if e["event"] in ("missed", "fined", "abstained")], name


def test_rl_swarm_79_whoever_earns_nothing_says_why(day: MarketDay) -> None:
    day.join("client")
    day.join("poor")
    services = [
        *(day.solver("ann"), day.verifier("vera"), day.whistleblower("wendy"), day.solver("poor")),
    ]
    for service in services:
        service.tick()
        assert len(service.status.action) > 10, service.status
    day.post()
    for service in services:
        service.tick()
    assert "stake" in services[-1].status.action, services[-1].status.action
    assert len(day.named("idle")) >= len(services)


def test_rl_swarm_463_whoever_was_killed_without_a_word_says_so_when_it_is_back(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    assert killed_at(path) is None
    emit = EventLog(path, echo=False)
    emit({"event": "started"})
    emit({"event": "trained"})
    assert killed_at(path) is not None
    emit({"event": "stopping"})
    emit({"event": "log", "text": "closing"})
    assert killed_at(path) is None
    emit({"event": "started"})
    with path.open("ab") as file:
        file.write(b'{"time": 17, "event": "tra')
    assert killed_at(path) is not None, "the last line is half written"


def test_hivemind_447_a_single_solver_learns(tmp_path: Path) -> None:
    day = MarketDay(tmp_path / "nodes")
    job_id = day.post(rounds=3, shards=1)
    day.solver("ann")
    day.verifiers()
    assert day.run(day.closed(job_id))
    (weight,) = day.fetch(job_id, tmp_path / "model").values()
    assert weight.std() < 0.1, "from -1 to 1 it has gone to the records' mean"
    assert isinstance(day.services["ann"], SolverService)


def test_torchft_206_streaming_goes_on_right_after_a_rejoin(day: MarketDay) -> None:
    """A solver is away for a round, and the round is closed without its shard; everything is replayed."""
    short = {"min_shards": 1, "task_time": 120, "straggler_time": 140, "outer_time": 20, "vote_time": 15}
    job_id = day.post(recipe_files("streaming"), rounds=4, max_unsettled=4, solver_stake=267, **short)
    day.solvers()
    day.verifiers()
    wendy = day.whistleblower("wendy")

    def in_round(number: int) -> bool:
        return day.market_state.jobs[job_id].view.progress.round >= number

    assert day.run(lambda: in_round(1))
    del day.services["bob"]
    assert day.run(lambda: in_round(2))
    day.solver("carol")
    assert day.run(day.closed(job_id), turns=900)
    lines = follow(day.markets["client"], job_id).tasks
    assert sum(line.missing for line in lines) == 1
    assert not wendy.findings and not day.market_state.games
    assert set(day.phases(job_id)) == {Phase.SETTLED}


def test_yapapi_456_a_shard_whose_solver_failed_goes_to_another(day: MarketDay) -> None:
    """Its solver comes back once another has the shard, and takes it from nobody."""
    job_id = day.post(rounds=3, min_shards=2)
    day.solvers()
    day.verifiers()

    def holders() -> list[Address]:
        return [day.markets["client"].holder(job_id, shard).solver for shard in range(2)]

    assert day.run(lambda: day.market_state.jobs[job_id].view.progress.round == 1)
    shard, failed = holders().index(day.address("bob")), day.services.pop("bob")
    day.solver("carol")
    assert day.run(lambda: holders()[shard] == day.address("carol"), turns=900)
    day.services["bob"] = failed
    assert day.run(day.closed(job_id), turns=900)
    claims = [view.claim for view in day.markets["client"].claims(job_id)]
    last = [c for c in claims if (c.kind, c.round, c.shard) == (Kind.TASK, 2, shard)]
    assert [claim.claimant for claim in last] == [day.address("carol")]
    assert set(day.phases(job_id)) == {Phase.SETTLED}
