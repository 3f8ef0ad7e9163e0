"""Solvers that cheat: each one's fault is really there, and it is convicted as its kind of lie is."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.node.audit import WrongSegment, audit_claim
from assay.node.states import open_state_provider
from assay.protocol.types import ClaimView, JobId, Kind, Phase, Role
from assay.solver import adversary
from assay.solver.adversary import AggregatePlan, FaultySolver, InventingSolver, StatePlan, WrongDataSolver
from assay.verifier.adversary import ColludingVerifier
from tests.fakes.jobs import RESOURCE_LIMITS, account
from tests.fakes.market_day import MarketDay

torch.set_num_threads(1)


@pytest.fixture
def day(tmp_path: Path) -> MarketDay:
    return MarketDay(tmp_path)


def cheated(day: MarketDay, kind: Any, **terms: int) -> tuple[JobId, ClaimView]:
    """One cheat alone, verifiers that cover for it, a whistleblower: the job and the claim that fell."""
    job_id = day.post(shards=1, **terms)
    day.solver("ann", kind)
    for i in range(2):
        day.verifier(f"v{i}", partial(ColludingVerifier, accomplices=frozenset({account("ann")})))
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
    kind = partial(adversary.PatchworkSolver, patch=adversary.interpolated)
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
    kind = partial(adversary.PatchworkSolver, patch=adversary.half_invented)
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
