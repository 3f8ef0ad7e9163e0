"""Solvers that take tasks alone, and one that takes outer claims alone: a learner that is no actor."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from assay.protocol.types import Address, JobId, Kind, Phase, Seconds, Wei
from assay.solver.observation import Observation, Takes
from assay.solver.policy import CommitOuter, CommitTask, Examine, TakeShard, TrainAhead, Wait
from assay.solver.reasons import idle, why, why_no_outer
from tests.fakes.market_day import MarketDay
from tests.unit.solver.test_solver_policy import (
    LIMITS,
    ME,
    NOW,
    OTHER,
    OVER,
    claim,
    floor_of,
    kinds,
    observation,
)

TASKS, OUTER = (replace(LIMITS, takes=takes) for takes in (Takes.TASKS, Takes.OUTER))
ACCEPTED = tuple(claim(Kind.TASK, 0, k, Phase.ACCEPTED) for k in range(2))
RESERVED = 60
"""Seconds for which the tests' outer claims are reserved."""


def sharing(seen: Observation, share: Fraction) -> Observation:
    """The same, where an outer claim has so many times a task's operations."""
    (job,) = seen.jobs
    return replace(seen, jobs=(replace(job, outer_share=share),))


def test_an_actor_makes_its_tasks_and_leaves_even_its_own_outer_claims() -> None:
    assert kinds(observation(limits=TASKS)) == [TakeShard]
    assert kinds(observation((ME, OTHER), trained={(0, 0): 4}, limits=TASKS)) == [CommitTask]
    assert kinds(observation((ME, OTHER), ACCEPTED)) == [CommitOuter], "else it is its own"
    for now in (NOW, NOW + 500):
        assert kinds(observation((ME, OTHER), ACCEPTED, now=now, limits=TASKS)) == [TrainAhead]


def test_a_learner_takes_no_shard_and_claims_what_is_reserved_to_nobody_any_more() -> None:
    assert kinds(observation(limits=OUTER)) == []
    assert kinds(observation((OTHER, OTHER), limits=OUTER)) == []
    assert kinds(observation((OTHER, OTHER), ACCEPTED[:1], now=NOW + 500, limits=OUTER)) == []
    assert kinds(observation((OTHER, OTHER), ACCEPTED, now=NOW + RESERVED, limits=OUTER)) == []
    late = observation((OTHER, OTHER), ACCEPTED, now=NOW + RESERVED + 1, limits=OUTER)
    assert kinds(late) == [CommitOuter]
    assert kinds(replace(late, limits=LIMITS)) == kinds(replace(late, limits=TASKS)) == []
    assert kinds(replace(late, unlocked=Wei(99))) == [Wait]
    made = (*ACCEPTED, claim(Kind.OUTER, 0, 0, Phase.ACCEPTED))
    assert kinds(observation((OTHER, OTHER), made, now=NOW + RESERVED + 1, limits=OUTER)) == []


def test_a_learner_examines_a_job_at_once_and_looks_at_its_terms() -> None:
    assert kinds(observation(examined=False, limits=OUTER)) == [Examine]
    late = observation((OTHER, OTHER), ACCEPTED, now=NOW + 500, limits=OUTER)
    strict = replace(OUTER.terms, most_stake=Wei(1))
    for limits in (replace(OUTER, retire=True), replace(OUTER, terms=strict)):
        assert kinds(replace(late, limits=limits)) == []
    assert kinds(observation((OTHER, OTHER), ACCEPTED, now=NOW + 500, refusal="hostile", limits=OUTER)) == []
    assert kinds(observation((OTHER, OTHER), ACCEPTED, progress=OVER, limits=OUTER)) == []


def test_a_learners_floor_is_its_price_in_proportion_to_the_operations() -> None:
    """The tests' outer claims pay 4."""
    late = observation((OTHER, OTHER), ACCEPTED, now=NOW + 500, limits=replace(OUTER, min_price=floor_of(2)))
    assert kinds(sharing(late, Fraction(2))) == [CommitOuter]
    dear = sharing(late, Fraction(201, 100))
    assert kinds(dear) == [] and "the operator's floor is" in why_no_outer(dear, dear.jobs[0])
    assert kinds(replace(dear, limits=OUTER)) == [CommitOuter], "without a least price any fee will do"


def test_an_actor_is_not_kept_away_by_a_learners_unpaid_work() -> None:
    heavy = sharing(observation(limits=TASKS), Fraction(1_000))
    assert why(heavy, heavy.jobs[0]) == ""
    assert "an outer claim has" in why(replace(heavy, limits=LIMITS), heavy.jobs[0])


@pytest.mark.parametrize(
    ("looks", "says"),
    [
        (observation(limits=OUTER), "its round wants tasks, or its outer step is reserved"),
        (observation(progress=OVER, limits=OUTER), "the job is over"),
        (observation(limits=replace(OUTER, retire=True)), "this solver is retiring"),
    ],
)
def test_why_a_learner_is_idle(looks: Observation, says: str) -> None:
    looks = replace(looks, staked=Wei(1_000))
    assert says in idle(looks) and "outer claims alone" in why(looks, looks.jobs[0])
    later = replace(looks.clock, block=looks.clock.block + 1)
    assert idle(looks) == idle(replace(looks, now=Seconds(looks.now + 1), clock=later))


def claimants(day: MarketDay, job_id: JobId, kind: Kind) -> set[Address]:
    """Claimants of the job's claims of a kind."""
    entries = day.market_state.claims.values()
    return {e.claim.claimant for e in entries if (e.claim.job_id, e.claim.kind) == (job_id, kind)}


def test_a_job_of_actors_and_a_learner_is_settled_and_paid(day: MarketDay) -> None:
    job_id = day.post()
    for name in ("ann", "bob"):
        day.solver(name, takes=Takes.TASKS)
    day.verifiers(3)
    assert not day.run(day.closed(job_id), turns=60), "nobody makes the outer claims"
    assert claimants(day, job_id, Kind.OUTER) == set()
    learner = day.solver("learner", takes=Takes.OUTER)
    assert day.run(day.closed(job_id)), [s.status for s in day.services.values()]
    assert claimants(day, job_id, Kind.OUTER) == {day.address("learner")}
    assert claimants(day, job_id, Kind.TASK) == {day.address(name) for name in ("ann", "bob")}
    assert day.phases(job_id) == [Phase.SETTLED] * 6 and not day.market_state.games
    assert all(not locked for locked in day.market_state.locked.values())
    earned = day.markets["learner"].free(day.address("learner"))
    assert earned == 10_000 - 2_000 + 2 * 4 and not learner.status.error
