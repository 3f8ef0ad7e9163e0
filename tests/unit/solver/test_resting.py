"""A solver's decisions while its operator or its machine wants no new work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from assay.node.upkeep import Poke
from assay.protocol.types import Kind, Phase, Wei
from assay.solver.observation import Limits, Observation, Takes
from assay.solver.policy import CommitOuter, CommitTask, Release, TakeShard, TrainAhead, TrainSegment
from assay.solver.reasons import idle, why
from tests.unit.solver.test_solver_policy import LIMITS, ME, NOW, OTHER, claim, observation
from tests.unit.solver.test_solver_policy import kinds as all_kinds

LEAVES = replace(LIMITS, leave="drained")
PAUSES = replace(LIMITS, pause="this machine runs on battery")
MINE = claim(Kind.TASK, 0, 0, Phase.COMMITTED, ME)
COMMITTED = (MINE, claim(Kind.TASK, 0, 1, Phase.COMMITTED))
ACCEPTED = tuple(claim(Kind.TASK, 0, k, Phase.ACCEPTED, by) for k, by in enumerate((ME, OTHER)))


def kinds(seen: Observation) -> list[type]:
    """The solver's actions, except those that anyone may do."""
    return [kind for kind in all_kinds(seen) if kind is not Poke]


@pytest.mark.parametrize("limits", [LEAVES, PAUSES])
def test_nothing_new_is_taken(limits: Limits) -> None:
    assert kinds(observation()) == [TakeShard]
    assert kinds(observation(limits=limits)) == []
    assert kinds(observation(examined=False, limits=limits)) == [], "nor is a job fetched"
    assert kinds(observation((ME, OTHER), COMMITTED)) == [TrainAhead]
    assert TrainAhead not in kinds(observation((ME, OTHER), COMMITTED, limits=limits))
    learner = replace(limits, takes=Takes.OUTER)
    late = observation((OTHER, OTHER), ACCEPTED, now=NOW + 500, limits=replace(LIMITS, takes=Takes.OUTER))
    assert kinds(late) == [CommitOuter] and kinds(replace(late, limits=learner)) == []


@pytest.mark.parametrize("limits", [LEAVES, PAUSES])
def test_what_is_owed_goes_on(limits: Limits) -> None:
    assert kinds(observation((ME, OTHER), limits=limits)) == [TrainSegment]
    assert kinds(observation((ME, OTHER), trained={(0, 0): 4}, limits=limits)) == [CommitTask]


def test_a_shard_is_given_back_by_whoever_leaves_and_kept_by_whoever_pauses() -> None:
    assert kinds(observation((ME, OTHER), COMMITTED, limits=LEAVES)) == [Release]
    assert kinds(observation((ME, OTHER), COMMITTED, limits=PAUSES)) == []


def test_whoever_pauses_makes_the_outer_claims_reserved_to_it_alone() -> None:
    assert kinds(observation((ME, OTHER), ACCEPTED, limits=PAUSES)) == [CommitOuter]
    others = tuple(replace(view, claim=replace(view.claim, claimant=OTHER)) for view in ACCEPTED)
    for now in (NOW, NOW + 500):
        late = observation((OTHER, ME), others, now=now)
        assert (CommitOuter in kinds(late)) == (now > NOW), "somebody else's, whose time is over"
        assert CommitOuter not in kinds(replace(late, limits=PAUSES))


@pytest.mark.parametrize(
    ("looks", "says"),
    [
        (observation(limits=LEAVES), "drained: nothing is owed, it can be stopped"),
        (
            observation((OTHER, OTHER), (MINE,), limits=LEAVES),
            "drained: still owed: 1 claim; task 0/0 of job 0707070707070707 waits for its seed, block 5",
        ),
        (
            replace(observation((ME, OTHER), limits=LEAVES, unlocked=0), staked=Wei(10**18)),
            "drained: still owed: 1 shard, 1 tok of stake locked; job 0707070707070707, round 0: waits for",
        ),
        (
            replace(observation((OTHER, OTHER), limits=LEAVES, unlocked=0), staked=Wei(10**18)),
            "drained: still owed: 1 tok of stake locked",
        ),
        (
            replace(observation(limits=PAUSES), staked=Wei(1)),
            "takes no shard of job 0707070707070707: this machine runs on battery: nothing new is taken",
        ),
    ],
)
def test_why_it_does_nothing(looks: Observation, says: str) -> None:
    assert idle(looks).startswith(says)
    later = replace(looks.clock, block=looks.clock.block + 1)
    assert idle(looks) == idle(replace(looks, clock=later)), "no text that changes by itself"


def test_why_takes_it_in() -> None:
    for limits in (LEAVES, PAUSES):
        looks = observation(limits=limits)
        assert why(looks, looks.jobs[0]) == f"{limits.leave or limits.pause}: nothing new is taken"
