"""A verifier's decisions while its operator or its machine wants no new work."""

from __future__ import annotations

from dataclasses import replace

from assay.protocol.types import ZERO_DIGEST, ClaimView, JobView, Kind, Phase, Progress, Seconds, Vote, Wei
from assay.verifier.class_choice import ClassLimits
from assay.verifier.policy import (
    AuditVote,
    Ballot,
    JobObservation,
    Limits,
    Observation,
    Pursue,
    Replay,
    SendVote,
    Subscribe,
    decide,
    idle,
)
from tests.fakes.classes import ROOM, conditions_of
from tests.fakes.clock import counted
from tests.unit.solver.test_solver_policy import JOB, ME, NOW, OTHER, claim, terms

TERMS = terms(min_shards=1)
HOME, LEFT = TERMS.class_id, b"l" * 32
BEGUN = Progress(0, 0, 0, False, False, Seconds(NOW), Seconds(NOW), 2)
SEAT = Vote(ME, False, False, False, ZERO_DIGEST)
DRAWN = replace(claim(Kind.TASK, 0, 1, Phase.SEEDED), votes=(SEAT,))
FELL = replace(claim(Kind.TASK, 0, 0, Phase.CONVICTED), votes=(Vote(OTHER, True, True, False, b"t" * 32),))
LIMITS = Limits(Seconds(20), Wei(1_000), Seconds(0))
LEAVES, PAUSES = replace(LIMITS, leave="drained"), replace(LIMITS, pause="this machine's load is over 4")
JOINS = ClassLimits(Wei(200), Wei(0), Seconds(1), ROOM, ROOM, ROOM, ROOM, Wei(0), Seconds(2_000))


def seen(limits: Limits, *views: ClaimView, found: bool = False, audited: bool = False) -> Observation:
    ballots = {
        (v.claim_id, v.status.seed): Ballot(not found, (), found) for v in views if found or v != DRAWN
    }
    votes = {(FELL.claim_id, OTHER): True} if audited else {}
    job = JobObservation(JobView(JOB, TERMS, BEGUN, Wei(1_000)), "", views, (), ballots, (), votes)
    classes = {HOME: conditions_of(TERMS)}
    return Observation(
        ME, Seconds(NOW), counted(NOW), Wei(1_000), (job,), limits, HOME, classes, staked=Wei(1_000)
    )


def subscribed(looks: Observation) -> list[bytes]:
    return [action.job_id for action in decide(looks) if isinstance(action, Subscribe)]


def test_whoever_leaves_agrees_to_no_class_and_goes_back_to_the_one_that_it_left() -> None:
    assert subscribed(seen(LIMITS)) == subscribed(seen(PAUSES)) == []
    assert subscribed(seen(LEAVES)) == [ZERO_DIGEST]
    assert subscribed(replace(seen(LEAVES), staked=Wei(0))) == [], "nobody is drawn without stake"
    out = replace(seen(LEAVES), subscribed=ZERO_DIGEST, left=LEFT)
    assert subscribed(out) == []
    assert subscribed(replace(out, limits=LIMITS)) == [LEFT]
    assert subscribed(replace(out, limits=PAUSES)) == [], "that is new work"
    assert subscribed(replace(out, limits=LIMITS, left=ZERO_DIGEST)) == [], "its owner left it"
    assert subscribed(replace(out, limits=LIMITS, subscribed=HOME)) == [], "its owner chose another"


def test_whoever_joins_by_itself_leaves_and_joins_by_its_own_choice() -> None:
    joins = replace(seen(replace(LIMITS, classes=JOINS)), subscribed=ZERO_DIGEST, left=LEFT)
    assert subscribed(joins) == [HOME], "the one that it prefers, not the one that it left"
    for limits in (replace(LEAVES, classes=JOINS), replace(PAUSES, classes=JOINS)):
        assert subscribed(replace(joins, limits=limits)) == []
    inside = replace(joins, subscribed=HOME)
    assert subscribed(replace(inside, limits=replace(LEAVES, classes=JOINS))) == [ZERO_DIGEST]


def test_votes_that_are_owed_are_cast() -> None:
    for limits in (LEAVES, PAUSES):
        assert Replay in [type(action) for action in decide(seen(limits, DRAWN))]
        ready = replace(DRAWN, status=replace(DRAWN.status, seed=b"s" * 32))
        assert SendVote in [type(action) for action in decide(seen(limits, ready))]
        assert Pursue in [type(action) for action in decide(seen(limits, DRAWN, found=True))]


def test_votes_of_others_are_not_audited_anew() -> None:
    assert AuditVote in [type(action) for action in decide(seen(LIMITS, FELL, found=True))]
    for limits in (LEAVES, PAUSES):
        assert AuditVote not in [type(action) for action in decide(seen(limits, FELL, found=True))]
        known = decide(seen(limits, FELL, found=True, audited=True))
        assert Pursue in [type(action) for action in known], "what was found false is brought"


def test_why_it_does_nothing() -> None:
    assert idle(seen(LEAVES)) == "drained: nothing is owed, it can be stopped"
    owes = replace(seen(LEAVES, DRAWN), locked=Wei(10**18))
    assert idle(owes).startswith("drained: still owed: 1 seat, 1 tok of stake locked; ")
    drawn = replace(seen(LEAVES), subscribed=ZERO_DIGEST, left=HOME, drawn_until=51)
    assert idle(drawn).startswith("drained: no seat is owed yet; until block 51 it may be drawn")
    assert "stopped" in idle(replace(drawn, clock=counted(NOW, 51))) and "stopped" in idle(
        replace(drawn, staked=Wei(0))
    )
    assert "stopped" not in idle(drawn)
    out = replace(seen(PAUSES), subscribed=ZERO_DIGEST)
    assert idle(out) == "joins no class: this machine's load is over 4, so nothing new is taken"
    assert idle(seen(PAUSES)) == idle(seen(LIMITS)), "in its class it goes on"
