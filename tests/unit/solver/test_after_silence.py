"""A solver after its own silence: time-outs say nothing about its bits, and a late shard is given up."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from assay.node.findings import WrongSegment
from assay.protocol.types import ZERO_ADDRESS, ClaimView, Kind, Phase, Seconds, Wei
from assay.solver.observation import Limits, Observation, at_risk
from assay.solver.policy import CommitOuter, CommitTask, Expire, TakeShard, TrainSegment, decide
from assay.solver.reasons import why
from assay.solver.service import SolverService
from tests.fakes.clock import counted
from tests.fakes.market_day import MarketDay
from tests.unit.solver.test_solver_policy import BEGUN, LIMITS, ME, NOW, OTHER, claim, kinds, observation


def test_w26_two_time_outs_after_a_sleep_are_no_evidence_about_bits(day: MarketDay) -> None:
    job_id = day.post(rounds=1, shards=1, task_time=100_000)
    ann = day.solver("ann")

    def fallen(number: int) -> bool:
        return day.phases(job_id).count(Phase.CONVICTED) == number

    for number in (1, 2):
        day.services = {"ann": ann}
        assert day.run(lambda: Phase.COMMITTED in day.phases(job_id))
        view = next(v for v in day.markets["ann"].claims(job_id) if v.status.phase == Phase.COMMITTED)
        wendy = day.whistleblower("wendy")
        false = WrongSegment(view.claim_id, 1, view.roots, bytes([number]) * 32)
        wendy.findings[view.claim_id, ZERO_ADDRESS] = false
        del day.services["ann"]  # asleep until the clock has run out
        assert day.run(partial(fallen, number)), day.phases(job_id)
    assert all(played.view.reason == "timeout" for played in day.market_state.games.values())
    del day.services["wendy"]
    day.services["ann"] = ann
    day.verifiers()
    assert day.run(day.closed(job_id)), ann.status
    assert isinstance(ann, SolverService) and not ann.see().limits.retire
    assert not ann.status.questions
    assert [event["silent"] for event in day.named("convicted")] == [True, True], "and each is told"
    assert [e["segment"] for e in day.named("trained")].count(0) == 1, "what was trained is kept"


def at(seen: Observation, now: int) -> Observation:
    """The same at another time, where every deadline before that has passed."""
    return replace(seen, now=Seconds(now), clock=counted(now))


def test_w27_a_solver_expires_its_own_late_shard_and_trains_no_more_for_it() -> None:
    alone = observation((ME, OTHER), (claim(Kind.TASK, 0, 1, Phase.COMMITTED),), trained={(0, 0): 4})
    due = NOW - 50 + alone.jobs[0].view.terms.task_time  # it has held its shard since NOW - 50
    assert Expire not in kinds(at(alone, due))
    late = [a for a in decide(at(alone, due + 1)) if isinstance(a, Expire)]
    assert [action.shard for action in late] == [0]
    assert not {CommitTask, TrainSegment} & set(kinds(at(alone, due + 1)))
    assert CommitTask in kinds(at(alone, due))


@pytest.mark.parametrize("ticked", [False, True])
def test_w27_a_lone_solver_goes_on_after_a_long_outage(day: MarketDay, ticked: bool) -> None:
    """It commits late if nobody has ticked meanwhile; otherwise its shard is lost, and it takes it again."""
    job_id = day.post(rounds=1, shards=1)
    day.solver("ann")
    terms = day.market_state.jobs[job_id].view.terms
    while day.market_state.jobs[job_id].holders[0].solver == ZERO_ADDRESS:
        day.services["ann"].tick()
        day.market_state.advance(1)
    if ticked:
        day.market_state.run_out(day.market_state.time + terms.task_time)
    day.market_state.advance(terms.task_time + 1)
    day.verifiers()
    assert day.run(day.closed(job_id)), day.services["ann"].status
    assert len(day.named("expired")) == ticked and Phase.SETTLED in day.phases(job_id, Kind.TASK)


def limited(tokens: int | None) -> Limits:
    return replace(LIMITS, max_loss=None if tokens is None else Wei(tokens))


def test_no_shard_is_taken_by_which_more_than_the_operators_most_would_be_at_risk() -> None:
    seen = observation()
    terms = seen.jobs[0].view.terms
    rounds = min(terms.max_unsettled, terms.rounds)
    whole = terms.miss_penalty + rounds * 2 * terms.solver_stake  # a task and an outer claim of each round
    assert at_risk(seen, terms) == whole
    assert TakeShard in kinds(observation(limits=limited(whole)))
    less = observation(limits=limited(whole - 1))
    assert TakeShard not in kinds(less) and "operator's most" in why(less, less.jobs[0])


def test_what_is_at_risk_counts_what_is_held_and_what_it_may_come_to() -> None:
    mine = observation((ME, ZERO_ADDRESS), staked=1_000, unlocked=990, progress=BEGUN)
    terms = mine.jobs[0].view.terms
    whole = terms.miss_penalty + min(terms.max_unsettled, terms.rounds) * 2 * terms.solver_stake
    locked = mine.staked - mine.unlocked
    assert at_risk(mine) == locked + whole - terms.miss_penalty
    both = observation((ME, ZERO_ADDRESS), staked=1_000, unlocked=990, limits=limited(2 * whole - 1))
    assert TakeShard not in kinds(both)
    assert TakeShard in kinds(observation((ME, ZERO_ADDRESS), limits=limited(None)))


def test_no_slice_of_others_is_claimed_by_which_more_than_the_most_would_be_at_risk() -> None:
    tasks = tuple(claim(Kind.TASK, 0, shard, Phase.ACCEPTED) for shard in range(2))
    first = claim(Kind.OUTER, 0, 0, Phase.ACCEPTED)

    def asked(most: int | None, *made: ClaimView) -> list[type]:
        """Actions for the second of two slices, long after its deadline."""
        seen = observation((ME, OTHER), (*tasks, *made), now=NOW + 500, limits=limited(most))
        (job,) = seen.jobs
        view = replace(job.view, terms=replace(job.view.terms, slices=2))
        return kinds(replace(seen, jobs=(replace(job, view=view),)))

    assert CommitOuter in asked(None, first)
    assert CommitOuter not in asked(0, first), "its shard has had the slice that was counted with it"
    assert CommitOuter in asked(0), "what a shard is asked for was counted when that was taken"
