"""A solver that trains the next round while this one is voted on: what it gains, what it may lose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from assay.compute.orders import Priority
from assay.node.states import Broken, Hidden, Known
from assay.node.upkeep import Poke
from assay.protocol.errors import Retry
from assay.protocol.types import (
    ZERO_ADDRESS,
    Claim,
    ClaimId,
    ClaimView,
    JobId,
    Kind,
    Phase,
    Progress,
    Seconds,
    Wei,
)
from assay.solver import policy
from assay.solver.convictions import Fallen
from assay.solver.drafting import Draft
from assay.solver.observation import Limits, Observation
from assay.solver.orders import Train
from assay.solver.policy import MOST_GUESSED, TrainAhead
from assay.solver.service import SolverService
from assay.solver.speculation import Speculation, SpeculativeStates, unmade
from assay.solver.trainer import TaskTrainer
from drills.solvers import WrongDataSolver
from tests.fakes.later import Later
from tests.fakes.manual_pool import ManualPool
from tests.fakes.market_day import MarketDay
from tests.unit.solver.test_solver_policy import JOB, ME, NOW, OTHER, claim, observation
from tests.unit.solver.test_solver_policy import kinds as all_kinds

LATER = {"max_unsettled": 4, "solver_stake": 267}
"""8/3 of what three more rounds may waste."""
COMMITTED = tuple(claim(Kind.TASK, 0, k, Phase.COMMITTED, by) for k, by in enumerate((ME, OTHER)))


def kinds(seen: Observation) -> list[type]:
    """The solver's actions, except those that anyone may do."""
    return [kind for kind in all_kinds(seen) if kind is not Poke]


def test_a_solver_goes_ahead_once_every_task_is_committed_and_only_one_round() -> None:
    assert kinds(observation((ME, OTHER), COMMITTED)) == [TrainAhead]
    seeded = (COMMITTED[0], claim(Kind.TASK, 0, 1, Phase.SEEDED))
    assert kinds(observation((ME, OTHER), seeded)) == [TrainAhead]
    assert kinds(observation((ME, OTHER), COMMITTED, trained={(1, 0): 4})) == [], "all of it is trained"
    assert kinds(observation((ME, OTHER), COMMITTED[:1])) == [], "nobody knows what shard 1 makes"
    assert TrainAhead not in kinds(observation((ME, OTHER), COMMITTED, examined=False))
    assert kinds(observation((ME, OTHER), COMMITTED, refusal="hostile")) == []
    assert kinds(observation((OTHER, OTHER), COMMITTED)) == [], "nothing of it is ours"


def test_a_learners_work_is_not_done_by_every_actor_as_well() -> None:
    """An outer step such as GRPO's is many tasks' work, and whose claim it is is paid for it."""
    (job,) = (seen := observation((ME, OTHER), COMMITTED)).jobs
    for share, does in ((MOST_GUESSED, [TrainAhead]), (MOST_GUESSED + Fraction(1, 100), [])):
        assert kinds(replace(seen, jobs=(replace(job, outer_share=share),))) == does


def changed(seen: Observation, **changes: Any) -> Observation:
    """The same with another progress."""
    (job,) = seen.jobs
    view = replace(job.view, progress=replace(job.view.progress, **changes))
    return replace(seen, jobs=(replace(job, view=view),))


def test_a_solver_does_not_go_ahead_of_what_may_never_come() -> None:
    seen = observation((ME, OTHER), COMMITTED)
    assert kinds(changed(seen, final_round=1)) == [], "this round is the last"
    last = Progress(1, 0, 0, False, False, Seconds(NOW - 100), Seconds(NOW - 100), 4)
    second = tuple(claim(Kind.TASK, 1, k, Phase.COMMITTED) for k in range(2))
    assert seen.jobs[0].view.terms.max_unsettled == 2
    assert kinds(observation((ME, OTHER), second, progress=last)) == [], "round 2 has to wait for round 0"
    assert kinds(observation((ME, OTHER), second, progress=replace(last, settled_rounds=1))) == [TrainAhead]
    retiring = Limits(Wei(0), 2, Seconds(20), retire=True)
    leaving = Limits(Wei(0), 2, Seconds(20), release=frozenset({(JOB, 0)}))
    assert TrainAhead not in kinds(observation((ME, OTHER), COMMITTED, limits=retiring))
    assert TrainAhead not in kinds(observation((ME, OTHER), COMMITTED, limits=leaving))


def outputs(day: MarketDay, job_id: JobId) -> dict[tuple[Kind, int, int], bytes]:
    """Output roots of the settled claims."""
    views = day.markets["client"].claims(job_id)
    settled = [view.claim for view in views if view.status.phase == Phase.SETTLED]
    return {(claim.kind, claim.round, claim.shard): claim.output_root for claim in settled}


def led(day: MarketDay) -> dict[tuple[Kind, int, int], bytes]:
    """A job of one shard to its end, whose verifiers come late."""
    job_id = day.post(rounds=3, shards=1, **LATER)
    day.solver("ann")
    late = [(name, day.verifier(name)) for name in ("v0", "v1")]
    del day.services["v0"], day.services["v1"]
    day.run(lambda: False, turns=12)
    day.services.update(late)
    assert day.run(day.closed(job_id)), [s.status for s in day.services.values()]
    return outputs(day, job_id)


def test_what_was_trained_ahead_is_the_task_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = MarketDay(tmp_path / "ahead")
    found = led(ahead)
    assert len(ahead.named("trained")) == 12, "nothing was trained twice"
    assert ahead.services["ann"].status.counters["segments_ahead"] >= 4
    before = [e["event"] for e in ahead.events if e["event"] in ("trained", "voted", "committed")]
    assert before[:9] == ["trained"] * 4 + ["committed"] + ["trained"] * 4, "round 1 before any vote"
    monkeypatch.setattr(policy, "_ahead", lambda *_: iter(()))
    behind = MarketDay(tmp_path / "behind")
    assert led(behind) == found and len(found) == 6
    assert "segments_ahead" not in behind.services["ann"].status.counters


def test_a_round_that_ends_otherwise_is_trained_again_from_what_it_left(day: MarketDay) -> None:
    job_id = day.post(rounds=2, **LATER)
    ann = day.solver("ann")
    day.solver("bob", WrongDataSolver)
    late = [(name, day.verifier(name)) for name in ("v0", "v1")]
    del day.services["v0"], day.services["v1"]
    day.run(lambda: ann.status.counters.get("segments_ahead", 0) >= 4)
    assert day.named("fault-planted") and ann.status.counters["segments_ahead"] == 4, "from bob's false task"
    assert isinstance(ann, SolverService)
    day.services.update(late)
    day.whistleblower("wendy")
    assert day.run(lambda: Phase.CONVICTED in day.phases(job_id)), day.events[-5:]
    del day.services["bob"]
    day.solver("carol")
    assert day.run(day.closed(job_id)), [s.status for s in day.services.values()]
    assert day.phases(job_id).count(Phase.SETTLED) == 6 and day.phases(job_id).count(Phase.CONVICTED) == 1
    ours = [e for e in day.named("trained") if e["address"] == ann.market.me]
    assert [e["round"] for e in ours].count(1) == 8, "four from the false task's base, four from the true one"
    assert "convicted" not in ann.status.counters


def sending(day: MarketDay, **options: Any) -> tuple[SolverService, Later]:
    """A solver that has taken its shard, and whose calls are sent when the test says so."""
    ann, later = day.solver("ann", **options), Later()
    assert day.run(lambda: bool(day.named("took")))
    ann.actions.sender = later
    return ann, later


def ordered(day: MarketDay, ann: SolverService, kind: type) -> ManualPool:
    """Go on until an order of this kind is the one that a worker takes next."""
    pool = ann.pool
    assert isinstance(pool, ManualPool)
    for _ in range(60):
        ann.tick()
        if any(isinstance(order, kind) for order in pool.orders()):
            return pool
        pool.step()
        day.market_state.advance(4)
    raise AssertionError([event["event"] for event in day.events])


@pytest.mark.parametrize(("what", "segments"), [("alone", 4), ("a vote waits", 1), ("not wanted", 1)])
def test_a_task_is_trained_until_it_is_over_or_something_else_is_wanted(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch, what: str, segments: int
) -> None:
    day.post(rounds=1, shards=1)
    ann = day.solver("ann", pool=ManualPool)
    pool = ordered(day, ann, Train)
    if what == "a vote waits":
        monkeypatch.setattr(pool, "waiting", lambda priority: int(priority >= Priority.VOTE))
    elif what == "not wanted":
        ann.wanted = frozenset()
    pool.step()
    ann.tick()
    assert [event["segment"] for event in day.named("trained")] == list(range(segments))


def test_outer_states_that_cannot_all_be_had_are_computed_anew(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise an outer claim would lack a segment end, or have another segment's in its place."""
    drafting, missed = [False], list[int]()
    leaf, draft = SpeculativeStates.leaf, TaskTrainer.outer_draft

    def hidden(states: SpeculativeStates, view: ClaimView, end: int) -> Known | Broken | Hidden:
        if drafting[0] and view.claim.claimant == ZERO_ADDRESS:
            missed.append(end)
            return Hidden("let go")
        return leaf(states, view, end)

    def drafted(shop: TaskTrainer, round_: int, number: int, *begins: Any) -> Draft:
        drafting[0] = True
        made = draft(shop, round_, number, *begins)
        drafting[0] = False
        return made

    monkeypatch.setattr(SpeculativeStates, "leaf", hidden)
    monkeypatch.setattr(TaskTrainer, "outer_draft", drafted)
    found = led(day)
    assert missed and len(found) == 6 and "bugs" not in day.services["ann"].status.counters


def test_a_commit_is_sent_beside_training_which_goes_on_as_if_it_stood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = led(MarketDay(tmp_path / "plain"))
    day = MarketDay(tmp_path / "beside")
    job_id = day.post(rounds=3, shards=1, **LATER)
    ann, later = sending(day)
    assert day.run(lambda: bool(later.given)), "all of round 0 is trained"
    assert ann.market.current(job_id, Kind.TASK, 0, 0) is None and not day.named("committed")
    assert day.run(lambda: ann.status.counters.get("segments_ahead", 0) == 4), (
        "round 1, before it is committed"
    )
    assert len(later.given) == 1, "it is sent once"
    expected = []
    monkeypatch.setattr(Speculation, "expect", lambda *_: expected.append(1))
    later.go()
    day.run(lambda: False, turns=2)
    assert [e["event"] for e in day.events if e["event"] == "committed"] == ["committed"]
    assert not expected, "what was worked out from our own claim holds for the one that stands"
    monkeypatch.undo()
    day.verifiers()
    assert day.run(lambda: later.go() or day.closed(job_id)()), [s.status for s in day.services.values()]
    assert outputs(day, job_id) == plain
    assert len(day.named("trained")) == 12, "nothing was trained twice"


def test_a_commit_that_fails_beside_training_is_made_again(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = day.post(rounds=2, shards=1, **LATER)
    (ann, later), tries = sending(day), list[str]()
    commit = ann.market.commit

    def away_once(key: str, claim: Claim, roots: Sequence[bytes]) -> ClaimId:
        tries.append(key)
        if len(tries) == 1:
            raise Retry("the chain is away")
        return commit(key, claim, roots)

    monkeypatch.setattr(ann.market, "commit", away_once)
    day.verifiers()
    assert day.run(lambda: later.go() or day.closed(job_id)()), [s.status for s in day.services.values()]
    assert tries[0] == tries[1] and len(tries) == 5, "the same intent, so that nothing is claimed twice"
    assert len(day.named("trained")) == 8


def test_a_commit_that_fails_is_seen_while_training_ahead_goes_on(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And neither is begun twice."""
    day.post(rounds=2, shards=1, **LATER)
    ann = day.solver("ann", pool=ManualPool)

    def away(*_: object) -> ClaimId:
        raise Retry("the chain is away for a moment")

    monkeypatch.setattr(ann.market, "commit", away)
    pool = ordered(day, ann, Train)
    ann.actions.sender = sender = Later()
    pool.step()
    ann.tick()
    ann.tick()
    (ahead,) = pool.orders()
    assert isinstance(ahead, Train) and ahead.ahead
    for _ in range(3):
        ann.tick()
    assert len(sender.given) == 1 and pool.orders() == [ahead], "both are under way, once"
    sender.go()
    ann.tick()
    assert [e["error"] for e in day.named("retry")] == ["the chain is away for a moment"]
    assert pool.orders() == [ahead] and ann.actions.is_running(ahead.what)


@pytest.mark.parametrize("what", ["alarm", "conviction", "rewind"])
def test_a_commit_that_waits_is_not_sent_after_an_alarm_a_conviction_or_a_rewind(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    job_id = day.post(rounds=2, shards=1, **LATER)
    ann, later = sending(day)
    assert day.run(lambda: bool(later.given))
    if what == "conviction":
        fallen = Fallen(unmade(COMMITTED[0].claim, COMMITTED[0].roots), silent=False)
        ann._convictions.heed([fallen], ann.clock.now())
    elif what == "alarm":
        ann._convictions.alarm = "this machine was convicted twice"
    else:
        job = ann.market.job(job_id)
        rewound = replace(job, progress=replace(job.progress, rewinds=job.progress.rewinds + 1))
        monkeypatch.setattr(ann.market, "job", lambda _: rewound)
    later.go()
    monkeypatch.undo()
    assert ann.market.current(job_id, Kind.TASK, 0, 0) is None
    ann.tick()
    assert not day.named("committed")


def test_one_slice_is_committed_after_the_other() -> None:
    accepted = tuple(claim(Kind.TASK, 0, k, Phase.ACCEPTED, by) for k, by in enumerate((ME, OTHER)))
    seen = observation((ME, ME), accepted)
    (job,) = seen.jobs
    assert kinds(seen) == [policy.CommitOuter]
    pending = replace(job, pending=frozenset({(Kind.OUTER, 0, 0)}))
    assert policy.CommitOuter not in kinds(replace(seen, jobs=(pending,)))
