"""A whistleblower's actions on tasks that their round left out, and on closed jobs."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from assay.node.upkeep import challengeable_until, others_suffice
from assay.protocol.game_state import Found, WaitingReward
from assay.protocol.types import (
    ZERO_ADDRESS,
    ZERO_DIGEST,
    ClaimView,
    JobView,
    Kind,
    Phase,
    Progress,
    Seconds,
    Vote,
    Wei,
)
from assay.whistleblower.policy import (
    Action,
    AuditClaim,
    AuditVote,
    JobObservation,
    Limits,
    Mode,
    Observation,
    Pursue,
    Suspicion,
    decide,
)
from tests.fakes.clock import counted
from tests.unit.solver.test_solver_policy import JOB, ME, NOW, OTHER, STRAGGLERS_END, claim, terms

TERMS = terms(min_shards=1)
WINDOW = TERMS.challenge_window
BEGUN = Progress(0, 0, 0, False, False, Seconds(NOW), Seconds(NOW), 2)
CLOSED = Progress(2, 2, 0, False, True, Seconds(NOW), Seconds(NOW), 2)
LEFT_OUT = replace(claim(Kind.TASK, 0, 1, Phase.SEEDED), stale=True, left_out=True)
FALSE = {(LEFT_OUT.claim_id, ZERO_ADDRESS): Suspicion("a wrong segment")}
VOTE = Vote(OTHER, True, True, False, ZERO_DIGEST)


def done(
    now: int,
    *claims: ClaimView,
    progress: Progress = BEGUN,
    found: bool = False,
    await_votes: bool = False,
    rewards: tuple[WaitingReward, ...] = (),
) -> list[Action]:
    job = JobObservation(JobView(JOB, TERMS, progress, Wei(1_000)), "", claims, (), (), rewards)
    limits = Limits(Mode.PLAY, Wei(1_000), await_votes=await_votes)
    suspicions = FALSE if found else {}
    return decide(
        Observation(ME, Seconds(now), counted(now), Wei(1_000), (job,), frozenset(), suspicions, limits)
    )


@pytest.mark.parametrize("progress", [replace(BEGUN, round=1), CLOSED], ids=["open", "closed"])
def test_a_task_that_is_left_out_is_audited_and_accused_for_its_window(progress: Progress) -> None:
    (audit,) = done(NOW + WINDOW, LEFT_OUT, progress=progress)
    assert isinstance(audit, AuditClaim) and audit.reason.endswith("0 s left")
    (pursuit,) = done(NOW + WINDOW, LEFT_OUT, progress=progress, found=True, await_votes=True)
    assert isinstance(pursuit, Pursue), "no vote on it comes any more"
    for found in (False, True):
        assert not done(NOW + WINDOW + 1, LEFT_OUT, progress=progress, found=found)


def test_a_task_is_left_out_by_the_clock_before_any_event_tells() -> None:
    tasks = claim(Kind.TASK, 0, 0, Phase.SETTLED), claim(Kind.TASK, 0, 1, Phase.SEEDED)
    job, view = JobView(JOB, TERMS, BEGUN, Wei(0)), tasks[1]
    assert challengeable_until(job, tasks, view, Seconds(STRAGGLERS_END)) == inf
    assert challengeable_until(job, tasks, view, Seconds(STRAGGLERS_END + 1)) is None, (
        "since + window is over"
    )
    late = replace(view, status=replace(view.status, since=Seconds(STRAGGLERS_END)))
    end = STRAGGLERS_END + WINDOW
    assert challengeable_until(job, (tasks[0], late), late, Seconds(STRAGGLERS_END + 1)) == end
    assert challengeable_until(job, (tasks[0], late), late, Seconds(end + 1)) is None
    assert not others_suffice(Seconds(end), job, (tasks[0], late), late, ()), "nobody plays"


@pytest.mark.parametrize("progress", [BEGUN, CLOSED], ids=["open", "closed"])
def test_votes_on_a_fallen_claim_are_audited_also_once_its_job_has_closed(progress: Progress) -> None:
    fallen = replace(claim(Kind.TASK, 0, 1, Phase.CONVICTED), votes=(VOTE,))
    (audit,) = done(NOW + WINDOW, fallen, progress=progress)
    assert isinstance(audit, AuditVote) and audit.verifier == OTHER
    assert not done(NOW + WINDOW + 1, fallen, progress=progress)


@pytest.mark.parametrize("winner", [ME, OTHER], ids=["ours", "another's"])
def test_a_reward_that_nobody_is_shown_to_have_found_is_asked_for_by_its_winner(winner: str) -> None:
    fallen = claim(Kind.TASK, 0, 1, Phase.CONVICTED)
    waiting = (WaitingReward(fallen.claim_id, Wei(5), winner, ()),)  # type: ignore[arg-type]
    assert not done(NOW, fallen, rewards=waiting), "a claim may still be settled at its place"
    asked = done(NOW, fallen, progress=CLOSED, rewards=waiting)
    assert [(share.settled, share.won) for share in asked] == [(None, True)] * (winner == ME)  # type: ignore[union-attr]


@pytest.mark.parametrize("gone", [False, True])
def test_T53_a_reward_of_a_claim_that_its_job_went_on_without_is_asked_for_at_once(gone: bool) -> None:
    fallen = claim(Kind.TASK, 0, 1, Phase.CONVICTED)
    found = Found(ME, 3, 1, 2, bytes(32), won=True), Found(OTHER, 4, 1, 2, bytes(32), won=True)
    asked = done(NOW, fallen, rewards=(WaitingReward(fallen.claim_id, Wei(5), OTHER, found, gone),))
    assert [(share.settled, share.won) for share in asked] == [(None, True)] * gone  # type: ignore[union-attr]
