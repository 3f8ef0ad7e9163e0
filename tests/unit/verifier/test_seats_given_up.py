"""Seats of claims that can no longer be accepted are given up at once, without a useless replay."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest

from assay.node.actions import Awaited
from assay.node.orders import JudgeInput
from assay.protocol.types import (
    ZERO_DIGEST,
    ClaimView,
    JobId,
    JobView,
    Kind,
    Phase,
    Progress,
    Seconds,
    Vote,
    Wei,
)
from assay.verifier.policy import (
    Abstain,
    Ballot,
    JobObservation,
    Limits,
    Observation,
    Pursue,
    Replay,
    SendVote,
    Wait,
    decide,
)
from tests.fakes.clock import counted
from tests.fakes.manual_pool import ManualPool
from tests.fakes.market_day import MarketDay
from tests.unit.solver.test_solver_policy import JOB, ME, NOW, OTHER, STRAGGLERS_END, claim, terms

TERMS = terms(min_shards=1)
SEAT = Vote(ME, False, False, False, ZERO_DIGEST)
BEGUN = Progress(0, 0, 0, False, False, Seconds(NOW), Seconds(NOW), 2)
ACCEPTED = claim(Kind.TASK, 0, 0, Phase.ACCEPTED)
FOUND = Ballot(False, (), True)


def drawn(since: int, vote: Vote = SEAT, **changes: Any) -> ClaimView:
    """A task of shard 1 for which this account has a seat."""
    return replace(claim(Kind.TASK, 0, 1, Phase.SEEDED, since=since), votes=(vote,), **changes)


def done(
    now: int,
    *claims: ClaimView,
    progress: Progress = BEGUN,
    ballot: Ballot | None = None,
    kinds: Sequence[type] = (Abstain, Replay, SendVote, Pursue, Wait),
) -> list[type]:
    view = JobView(JOB, TERMS, progress, Wei(1_000))
    ballots = {} if ballot is None else {(each.claim_id, each.status.seed): ballot for each in claims}
    job = JobObservation(view, "", claims, (), ballots)
    limits = Limits(Seconds(20), Wei(1_000), Seconds(0))
    actions = decide(Observation(ME, Seconds(now), counted(now), Wei(1_000), (job,), limits))
    return [type(action) for action in actions if isinstance(action, tuple(kinds))]


@pytest.mark.parametrize("later", [0, 10 * TERMS.vote_time], ids=["in time", "too late to vote"])
@pytest.mark.parametrize(
    ("how", "progress"),
    [
        ({"stale": True}, BEGUN),
        ({"stale": True, "left_out": True}, replace(BEGUN, round=1)),
        ({"stale": True, "left_out": True}, replace(BEGUN, round=1, closed=True)),
    ],
    ids=["overtaken", "left out", "left out of a closed job"],
)
def test_a_seat_of_a_claim_that_no_longer_stands_is_given_up_at_any_time(
    how: dict[str, Any], progress: Progress, later: int
) -> None:
    view = drawn(NOW, **how)
    assert done(NOW + later, view, progress=progress) == [Abstain]
    assert done(NOW + later, view, progress=progress, ballot=Ballot(True, (ZERO_DIGEST,), False)) == [Abstain]
    for gone in (replace(SEAT, gone=True), replace(SEAT, shown=True, valid=True)):
        assert not done(NOW + later, drawn(NOW, gone, **how), progress=progress), "there is nothing to give"


def test_a_seat_is_given_up_once_the_round_can_be_closed_without_the_task() -> None:
    view = drawn(STRAGGLERS_END - 5)
    ballot = Ballot(True, (ZERO_DIGEST,), False)
    assert done(STRAGGLERS_END, ACCEPTED, view, ballot=ballot) == [SendVote]
    assert done(STRAGGLERS_END + 1, ACCEPTED, view, ballot=ballot) == [Abstain]


def test_no_replay_begins_where_the_round_can_be_closed_within_the_time_to_vote() -> None:
    in_vain = STRAGGLERS_END - TERMS.vote_time + 1
    assert done(in_vain - 1, ACCEPTED, drawn(in_vain - 1)) == [Replay]
    assert done(in_vain, ACCEPTED, drawn(in_vain)) == [Wait]
    assert done(in_vain, drawn(in_vain)) == [Replay], "not while too few are accepted"
    other = replace(claim(Kind.TASK, 0, 0, Phase.SEEDED, OTHER), votes=())
    assert done(in_vain, other, drawn(in_vain)) == [Replay]
    late = in_vain + TERMS.vote_time * 3 // 4 + 1
    assert done(late, ACCEPTED, drawn(in_vain)) == [Abstain], "before it is fined for its silence"


def test_T49_a_task_of_a_round_that_was_stalled_is_replayed_if_its_vote_is_in_time() -> None:
    """The round waits for voteTime after the acceptance that suffices, for verifiers that were drawn
    before."""
    accepted = replace(ACCEPTED, status=replace(ACCEPTED.status, since=Seconds(STRAGGLERS_END + 100)))
    soon = STRAGGLERS_END + 101
    assert done(soon, accepted, drawn(STRAGGLERS_END + 100)) == [Replay]
    assert done(soon, accepted, drawn(STRAGGLERS_END + 101)) == [Wait]


def test_a_false_task_that_is_left_out_is_pursued_as_long_as_it_may_be_challenged() -> None:
    view = drawn(NOW, replace(SEAT, shown=True), stale=True, left_out=True)
    over = replace(BEGUN, round=1)
    end = NOW + TERMS.challenge_window
    assert done(end, view, progress=over, ballot=FOUND) == [Pursue]
    assert done(end, view, progress=replace(over, closed=True), ballot=FOUND) == [Pursue]
    assert not done(end + 1, view, progress=over, ballot=FOUND)
    overtaken = replace(view, left_out=False)
    assert not done(end, overtaken, progress=over, ballot=FOUND), "the chain refuses it (NotStanding)"


def test_a_replay_of_a_seat_that_was_given_up_ends_for_another_one(day: MarketDay) -> None:
    """A worker that continues for hours with a replay that is too late for its vote misses the others."""
    day.solvers()
    v0 = day.verifier("v0", pool=ManualPool)
    day.verifier("v1")
    pool = v0.pool
    assert isinstance(pool, ManualPool)

    def judged(job_id: JobId) -> bool:
        """True if the worker runs orders of that job's claim only."""
        orders = pool.orders()
        return [order.job.job_id for order in orders if isinstance(order, JudgeInput)] == [job_id]

    first = day.post(rounds=1, shards=1, challenge_window=Seconds(5_000))
    assert day.run(lambda: judged(first))
    assert day.run(lambda: bool(day.named("abstained"))) and judged(first), "it may still find a fault"
    other = day.post(rounds=1, shards=1, nonce=7, vote_time=Seconds(5_000))
    assert day.run(lambda: judged(other))
    assert "bugs" not in v0.status.counters


def test_a_replay_that_is_given_up_is_ended_in_its_worker(day: MarketDay) -> None:
    v0 = day.verifier("v0")
    waits, orders = Future[None](), [Future[None]() for _ in range(2)]

    async def judges() -> None:
        try:
            await Awaited(waits)
        finally:
            for order in orders:
                order.cancel()

    v0.actions.attempt("judge", None, judges)
    assert v0.actions.is_running("judge")
    v0.actions.give_up("judge")
    v0.actions.give_up("judge")
    assert not v0.actions.waiting and all(order.cancelled() for order in (waits, *orders))
