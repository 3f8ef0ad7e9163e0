"""A whistleblower's decisions while its operator or its machine wants no new work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from assay.protocol.demands import DemandView
from assay.protocol.types import ZERO_ADDRESS, JobView, Kind, Phase, Progress, Seconds, Wei
from assay.whistleblower.policy import (
    AuditClaim,
    Demand,
    JobObservation,
    Limits,
    Mode,
    Observation,
    Pursue,
    Suspicion,
    decide,
    idle,
)
from tests.fakes.clock import counted
from tests.unit.solver.test_solver_policy import JOB, ME, NOW, claim, terms

BEGUN = Progress(0, 0, 0, False, False, Seconds(NOW), Seconds(NOW), 2)
VIEW = claim(Kind.TASK, 0, 0, Phase.SEEDED)
LIMITS = Limits(Mode.PLAY, Wei(1_000), demand=True)
LEAVES, PAUSES = replace(LIMITS, leave="drained"), replace(LIMITS, pause="this machine runs on battery")


def seen(limits: Limits, *, found: bool = False, unpublished: bool = False) -> Observation:
    demands: tuple[DemandView, ...] = ()
    job = JobObservation(JobView(JOB, terms(min_shards=1), BEGUN, Wei(1_000)), "", (VIEW,), (), demands)
    suspicions = {(VIEW.claim_id, ZERO_ADDRESS): Suspicion("a wrong segment")} if found else {}
    hidden = frozenset({VIEW.claim_id}) if unpublished else frozenset()
    return Observation(
        ME, Seconds(NOW), counted(NOW), Wei(1_000), (job,), frozenset(), suspicions, limits, hidden
    )


def kinds(looks: Observation) -> list[type]:
    return [type(action) for action in decide(looks)]


@pytest.mark.parametrize("limits", [LEAVES, PAUSES])
def test_nothing_new_is_audited_or_demanded_and_what_was_found_is_brought(limits: Limits) -> None:
    assert kinds(seen(LIMITS)) == [AuditClaim] and kinds(seen(limits)) == []
    assert kinds(seen(LIMITS, unpublished=True)) == [Demand]
    assert kinds(seen(limits, unpublished=True)) == []
    assert kinds(seen(limits, found=True)) == [Pursue]
    assert kinds(seen(limits, found=True, unpublished=True)) == [Pursue]


def test_why_it_does_nothing() -> None:
    assert idle(seen(LEAVES)) == "drained: nothing is owed, it can be stopped"
    assert idle(seen(replace(LEAVES, mode=Mode.OFF))) == "drained: nothing is owed, it can be stopped"
    assert idle(seen(PAUSES)) == "rechecks nothing new: this machine runs on battery"
