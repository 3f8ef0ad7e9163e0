"""Solvers that cheat: each one's fault is really there, and it is convicted as its kind of lie is."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from assay.job.build import build
from assay.job.read import parse_job_file
from assay.job.templates import LOCAL, template
from assay.node.audit import audit_claim
from assay.node.findings import WrongSegment
from assay.node.states import open_state_provider
from assay.protocol.types import ClaimView, JobId, Kind, Phase, Role, Wei
from drills.cheats import solver_kind
from drills.orders import AggregatePlan, FaultySpec, StatePlan, half_invented, interpolated
from drills.solvers import FaultySolver, InventingSolver, PatchworkSolver, WrongDataSolver
from tests.fakes.conspiracy import vouched
from tests.fakes.jobs import RESOURCE_LIMITS, account
from tests.fakes.market_day import MarketDay


def cheated(day: MarketDay, kind: Any, **terms: int) -> tuple[JobId, ClaimView]:
    """One cheat alone, verifiers that cover for it, a whistleblower: the job and the claim that fell."""
    job_id = day.post(shards=1, **terms)
    day.solver("ann", kind)
    vouched(day, "ann")
    day.whistleblower("wendy")
    assert day.run(lambda: Phase.CONVICTED in day.phases(job_id)), day.events[-5:]
    assert day.named("fault-planted")
    (entry,) = [e for e in day.market_state.claims.values() if e.status.phase == Phase.CONVICTED]
    return job_id, day.market_state.view(entry)


def wrong_segment(day: MarketDay, job_id: JobId, view: ClaimView) -> int | None:
    """The first segment in which an honest replay leaves a claim."""
    state_provider = open_state_provider(
        day.markets["wendy"], day.blocks(), day.markets["wendy"].job(job_id), RESOURCE_LIMITS
    )
    finding = audit_claim(state_provider, view)
    return finding.segment if isinstance(finding, WrongSegment) else None


def verdict(day: MarketDay) -> str:
    (game,) = [p.view for p in day.market_state.games.values() if p.view.decided]
    assert game.challenger_won and game.game.challenger == account("wendy")
    return game.reason


def test_attack_08_a_faulty_aggregate_is_convicted_by_arithmetic(day: MarketDay) -> None:
    job_id, view = cheated(day, partial(FaultySolver, plan=AggregatePlan(0, 1)), rounds=1)
    assert (view.claim.kind, view.claim.round) == (Kind.OUTER, 0)
    assert wrong_segment(day, job_id, view) == 0, "the fault was planted"
    assert verdict(day) == "arithmetic"
    assert day.phases(job_id, Kind.TASK) == [Phase.ACCEPTED], "the task itself was honest"
    assert day.market_state.active[account("ann"), Role.SOLVER] == 1_900


def test_a_wrong_state_after_an_honest_step_is_convicted_by_its_output(day: MarketDay) -> None:
    job_id, view = cheated(day, partial(FaultySolver, plan=StatePlan(0, 3, 1, 2)), rounds=1)
    assert wrong_segment(day, job_id, view) == 1
    assert verdict(day) == "output"


def test_training_on_other_records_is_convicted_by_the_record_itself(day: MarketDay) -> None:
    job_id, view = cheated(day, WrongDataSolver, rounds=1)
    assert wrong_segment(day, job_id, view) == 0
    assert verdict(day) == "arithmetic"


def test_invented_segments_lose_by_the_clock(day: MarketDay) -> None:
    job_id, view = cheated(day, InventingSolver, rounds=1)
    assert wrong_segment(day, job_id, view) == 0
    assert not day.named("trained"), "nothing was computed"
    assert verdict(day) == "timeout"


def test_attack_01_17_states_drawn_with_a_ruler_lose_though_the_last_is_right(day: MarketDay) -> None:
    kind = partial(PatchworkSolver, patch=interpolated)
    job_id, view = cheated(day, kind, rounds=1)
    assert wrong_segment(day, job_id, view) == 0
    assert verdict(day) == "timeout"
    day.solver("bob")
    assert day.run(day.closed(job_id), turns=400), [s.status for s in day.services.values()]
    (right,) = [
        e.claim
        for e in day.market_state.claims.values()
        if e.claim.kind == Kind.TASK and e.status.phase == Phase.SETTLED
    ]
    assert right.output_root == view.claim.output_root and right.segments_root != view.claim.segments_root


def test_attack_02_what_is_invented_after_half_of_the_work_is_convicted_there(day: MarketDay) -> None:
    kind = partial(PatchworkSolver, patch=half_invented)
    job_id, view = cheated(day, kind, rounds=1)
    segments = len(view.roots) - 1
    assert segments > 1
    assert wrong_segment(day, job_id, view) == segments // 2
    assert verdict(day) == "timeout"


def test_a_convicted_cheat_leaves_the_job_to_others(day: MarketDay) -> None:
    job_id, _ = cheated(day, partial(FaultySolver, plan=AggregatePlan(0, 1)), rounds=1)
    outers = len(day.phases(job_id, Kind.OUTER))
    assert not day.run(lambda: len(day.phases(job_id, Kind.OUTER)) > outers, turns=20)
    day.solver("bob")
    while any(h.solver == account("ann") for h in day.market_state.jobs[job_id].holders):
        day.services["ann"].tick()
    assert day.run(day.closed(job_id), turns=400), [s.status for s in day.services.values()]
    assert day.phases(job_id).count(Phase.CONVICTED) == 1


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("0:3:9:0", "slot 9, and the state has 3 slots"),
        ("0:3:0:8", "element 8 of slot 0, which has 8"),
        ("state:0:3:0:8", "element 8 of slot 0, which has 8"),
        ("0:8:0:0", "step 8 of a round, and a round has 8 steps"),
        ("1:0:0:0", "round 1, and the job has 1 rounds"),
        ("aggregate:9:0", "slot 9"),
        ("aggregate:0:8", "element 8 of slot 0"),
    ],
)
def test_a_fault_that_is_in_no_place_of_the_job_is_refused(day: MarketDay, fault: str, says: str) -> None:
    refused(day, solver_kind(fault, None), says)


@pytest.mark.parametrize("cheat", ["wrong-input", "hidden-input", "idle"])
def test_a_cheat_that_begins_after_the_jobs_last_round_is_refused(day: MarketDay, cheat: str) -> None:
    refused(day, solver_kind(None, cheat), "round 1, and the job has 1 rounds")


@pytest.mark.parametrize("cheat", ["interpolated", "half-invented"])
def test_a_cheat_between_segments_needs_two_of_them(day: MarketDay, cheat: str) -> None:
    refused(day, solver_kind(None, cheat), "one segment", segment_steps=8)


def refused(day: MarketDay, kind: Any, says: str, **terms: int) -> None:
    """The cheat takes no shard of a job of one round, and says why."""
    job_id = day.post(shards=1, rounds=1, **terms)
    ann = day.solver("ann", kind)
    assert day.run(lambda: bool(day.named("abandoned"))), day.events[-5:]
    reason = ann.report.refusal(job_id)
    assert "this drill does not fit the job" in reason and says in reason
    assert not day.named("took") and not day.named("fault-planted")


@pytest.mark.long
def test_the_usual_fault_does_not_fit_the_small_template() -> None:
    body = parse_job_file(template("mlp", source="digits", rounds=1, times=LOCAL), "mlp")
    plan = solver_kind("0:9:4:777", None).keywords["plan"]  # type: ignore[attr-defined]
    files: Any = build(body)
    loop = SimpleNamespace(steps=64)
    terms: Any = SimpleNamespace(rounds=1, shards=1, main=SimpleNamespace(of=lambda _: loop))
    why = FaultySpec(JobId(bytes(32)), terms, RESOURCE_LIMITS, plan=plan).misfit(files)
    assert why == "it asks for element 777 of slot 4, which has 640, counted from 0"


def test_a_solver_that_waits_is_honest_and_takes_a_shard_for_more_than_its_floor(day: MarketDay) -> None:
    job = day.post(shards=1, price_floor=Wei(10), price_cap=Wei(20))
    day.solver("ann", solver_kind(None, None, waits=True))
    for i in range(2):
        day.verifier(f"v{i}")
    assert day.run(day.closed(job))
    (took,) = day.named("took")
    assert 12 <= took["price"] <= 20 and not day.named("fault-planted")
