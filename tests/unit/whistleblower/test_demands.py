"""Attack 33: who hides the states that it has committed to is made to show drawn pieces, or loses the
claim."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from protocol.types import JobId, Phase, Role
from solver.adversary import HidingSolver
from tests.fakes.market_day import MarketDay

torch.set_num_threads(1)


@pytest.fixture
def day(tmp_path: Path) -> MarketDay:
    return MarketDay(tmp_path)


def crew(day: MarketDay, job_id: JobId) -> None:
    """Two solvers that publish nothing, and two honest verifiers, who recompute."""
    for name in ("ann", "bob"):
        day.solver(name, blocks=day.blocks(withholds=True))
    for i in range(2):
        day.verifier(f"v{i}")


def test_33_a_claim_whose_solver_shows_nothing_on_demand_is_convicted_and_its_verifiers_are_not(
    day: MarketDay,
) -> None:
    job_id = day.post(rounds=1)
    for name in ("ann", "bob"):
        day.solver(name, HidingSolver, blocks=day.blocks(withholds=True))
    for i in range(2):
        day.verifier(f"v{i}")
    whistle = day.whistleblower("wendy", demand=True)
    supply = day.world.supply
    assert day.run(lambda: Phase.CONVICTED in day.phases(job_id)), [s.status for s in day.services.values()]
    assert day.named("fault-planted"), "the fault was planted"
    assert day.named("demanded") and not day.named("supplied")
    fallen = next(c for c in day.world.claims.values() if c.status.phase == Phase.CONVICTED)
    assert day.world.active[fallen.claim.claimant, Role.SOLVER] == 1_900
    assert all(day.world.active[day.address(f"v{i}"), Role.VERIFIER] == 1_000 for i in range(2))
    assert not day.world.games, "no game was needed, and nothing was computed again"
    assert not whistle.findings
    assert day.world.supply == supply


def test_33_an_honest_solver_that_cannot_be_reached_answers_demands_and_is_paid(day: MarketDay) -> None:
    job_id = day.post(rounds=1)
    crew(day, job_id)
    day.whistleblower("wendy", demand=True)
    assert day.run(day.closed(job_id)), [s.status for s in day.services.values()]
    demands = list(day.world.demands.values())
    assert demands and all(d.outcome == "supplied" for d in demands)
    assert len(demands) == len({d.claim_id for d in demands}), "one demand for each claim"
    assert Phase.CONVICTED not in day.phases(job_id)
    bond = day.world.jobs[job_id].view.terms.challenge_bond
    assert day.world.free[day.address("wendy")] == 10_000 - len(demands) * bond


def test_33_a_solver_that_has_lost_its_states_computes_them_again(day: MarketDay) -> None:
    job_id = day.post(rounds=1)
    crew(day, job_id)
    day.whistleblower("wendy", demand=True)

    def demanded() -> bool:
        return bool(day.world.demands)

    assert day.run(demanded)
    for cid in list(day.network.withheld):
        del day.network.blocks[cid]  # the solvers' disks are gone
    assert day.run(lambda: all(d.outcome for d in day.world.demands.values()))
    assert {d.outcome for d in day.world.demands.values()} == {"supplied"}


def test_without_the_option_nobody_demands_anything(day: MarketDay) -> None:
    job_id = day.post(rounds=1)
    crew(day, job_id)
    day.whistleblower("wendy")
    assert day.run(day.closed(job_id))
    assert not day.world.demands
