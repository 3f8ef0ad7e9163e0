"""Verifiers that join classes by themselves go where they are paid, and leave what only looks open."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.chain.eth.contract import WrongAnswer
from assay.protocol.types import ZERO_DIGEST, JobId, JobView, Phase, Seconds, Vote, Wei
from assay.verifier.class_choice import (
    ClassLimits,
    Past,
    Prospect,
    Stay,
    choose,
    falls_short,
    outside,
    owes,
    payable,
    prospects,
)
from assay.verifier.class_history import LOOKS_EVERY, Stays
from tests.fakes.classes import ROOM, class_id, conditions_of
from tests.fakes.jobs import account
from tests.fakes.market_day import MarketDay, fees_of

TRIAL = Seconds(2_000)
LIMITS = ClassLimits(Wei(200), Wei(0), Seconds(1), ROOM, ROOM, ROOM, ROOM, Wei(0), TRIAL)
NOW = Seconds(100_000)
HOME, LURE, THIRD = b"h" * 32, b"l" * 32, b"t" * 32
JUNK: dict[str, Any] = {"verifiers": 4, "verifier_stake": Wei(200), "solver_stake": Wei(800)}


def one(class_id: bytes, *, open: bool = True, pays: bool = True, rate: float = 0, left: int = 0) -> Prospect:
    return Prospect(class_id, open, pays, rate, Seconds(left))


def stay(class_id: bytes, since: int, paid_at: int = 0) -> Stay:
    return Stay(class_id, Seconds(NOW + since), Wei(0), Seconds(NOW + paid_at if paid_at else 0))


def chosen(own: bytes, found: list[Prospect], *stays: Stay) -> bytes | None:
    choice = choose(NOW, own, found, stays, TRIAL)
    return None if choice is None else choice.class_id


def test_whoever_has_no_class_takes_an_open_one_first() -> None:
    assert chosen(ZERO_DIGEST, [one(LURE, open=False), one(HOME)]) == HOME
    assert chosen(ZERO_DIGEST, [one(LURE, open=False), one(HOME, open=False)]) == LURE
    assert chosen(ZERO_DIGEST, []) is None


def test_a_class_that_pays_is_left_only_for_one_that_pays_over_twice_as_much() -> None:
    own, long_ago = one(HOME, rate=1.0), stay(HOME, -TRIAL, -1)
    assert chosen(HOME, [own, one(LURE)], long_ago) is None
    assert chosen(HOME, [own, one(LURE, rate=2.0)], long_ago) is None
    assert chosen(HOME, [own, one(LURE, rate=2.1)], long_ago) == LURE
    assert chosen(HOME, [own, one(LURE, rate=2.1)], stay(HOME, -TRIAL + 1, -1)) is None, "no sooner"
    assert chosen(HOME, [own, one(LURE, rate=2.1, open=False)], long_ago) is None


def test_a_class_that_has_paid_nothing_is_left_at_once_for_one_that_has() -> None:
    found = [one(LURE), one(HOME, rate=1.0)]
    assert chosen(LURE, found, stay(LURE, -1)) == HOME
    assert chosen(LURE, [one(LURE), one(THIRD)], stay(LURE, -1)) is None, "both may pay yet"


def test_an_idle_class_that_has_paid_comes_before_a_stranger() -> None:
    lure = one(LURE, pays=False)
    assert chosen(LURE, [lure, one(THIRD)], stay(LURE, -TRIAL)) == THIRD
    assert chosen(LURE, [lure, one(THIRD), one(HOME, open=False, rate=1.0)], stay(LURE, -TRIAL)) == HOME


def test_a_market_of_one_class_is_not_left() -> None:
    assert chosen(HOME, [one(HOME, pays=False)], stay(HOME, -9 * TRIAL)) is None


def test_classes_of_which_none_pays_are_tried_by_turns_a_trial_each() -> None:
    found = [one(HOME, pays=False), one(LURE, pays=False, left=5), one(THIRD, pays=False, left=3)]
    assert chosen(HOME, found, stay(HOME, -TRIAL)) == THIRD
    assert chosen(HOME, found, stay(HOME, -TRIAL + 1)) is None


def test_an_idle_class_that_has_paid_is_left_for_strangers_half_of_the_time() -> None:
    found = [one(HOME, open=False, rate=1.0), one(LURE)]
    assert chosen(HOME, found, stay(HOME, -1)) == LURE, "nobody has wasted its time yet"
    wasted = stay(THIRD, -3 * TRIAL - 100)
    assert chosen(HOME, found, wasted, stay(HOME, -100)) is None
    assert chosen(HOME, found, stay(THIRD, -6 * TRIAL), stay(HOME, -3 * TRIAL)) == LURE


def test_an_idle_class_that_never_paid_holds_nobody() -> None:
    assert chosen(HOME, [one(HOME, open=False), one(LURE)], stay(HOME, -1)) == LURE


def test_a_class_outside_of_the_limits_is_left_but_not_for_nothing() -> None:
    assert chosen(THIRD, [one(HOME)], stay(THIRD, -1)) == HOME
    assert chosen(THIRD, [one(HOME, open=False)], stay(THIRD, -1)) is None


def job(day: MarketDay, **changes: Any) -> JobView:
    job_id = day.post(rounds=1, shards=1, **changes)
    return day.market_state.jobs[job_id].view


@pytest.mark.parametrize(
    ("changes", "limits"),
    [
        ({"verifier_stake": Wei(201)}, {}),
        ({}, {"least_fee": Wei(1)}),
        ({}, {"least_vote": Seconds(10**6)}),
        ({}, {"state_bytes": 1}),
    ],
)
def test_conditions_beyond_the_operators_are_outside(
    tmp_path: Path, changes: dict[str, Any], limits: dict[str, Any]
) -> None:
    terms = job(MarketDay(tmp_path)).terms
    assert outside(conditions_of(terms), LIMITS) == ""
    assert outside(conditions_of(replace(terms, **changes)), replace(LIMITS, **limits))


def test_a_job_is_worth_joining_for_only_while_it_can_pay_as_the_operator_asks(tmp_path: Path) -> None:
    view = job(MarketDay(tmp_path))
    terms, progress = view.terms, view.progress
    assert payable(view, LIMITS)
    per_tera = terms.verifier_fee * 10**12 // (2 * terms.step_operations)  # one sample of two steps
    assert payable(view, replace(LIMITS, least_rate=Wei(per_tera)))
    assert not payable(view, replace(LIMITS, least_rate=Wei(per_tera + 1)))
    assert not payable(replace(view, escrow=Wei(terms.verifier_fee - 1)), LIMITS)
    assert not payable(replace(view, progress=replace(progress, final_round=progress.round)), LIMITS)
    assert not payable(replace(view, progress=replace(progress, closed=True)), LIMITS)
    assert not payable(replace(view, progress=replace(progress, halted=True)), LIMITS)
    bare = replace(terms, solver_stake=Wei(terms.verifiers * terms.verifier_stake - 1))
    assert not payable(replace(view, terms=bare), LIMITS)


def test_votes_that_are_not_paid_show_a_job_for_what_it_is(day: MarketDay) -> None:
    view = job(day)
    day.solver("ann")
    assert day.run(lambda: bool(day.phases(view.job_id)))
    claim = day.markets["ann"].claims(view.job_id)[0]
    me, fee = account("v"), view.terms.verifier_fee
    vote = Vote(me, True, True, False, b"t" * 32)
    ended = replace(claim, status=replace(claim.status, phase=Phase.VOID), votes=(vote,))
    assert falls_short(me, view, [ended] * 8, Wei(4 * fee - 1))
    assert not falls_short(me, view, [ended] * 8, Wei(4 * fee))
    assert not falls_short(me, view, [ended] * 7, Wei(0)), "too few to tell"
    waiting = replace(claim, votes=(vote,))
    assert not falls_short(me, view, [waiting] * 8, Wei(0)), "not over yet"
    assert owes(me, [waiting]) and not owes(me, [ended]) and not owes(account("w"), [waiting])
    assert not falls_short(me, view, [replace(ended, votes=(replace(vote, gone=True),))] * 8, Wei(0))


def test_what_a_class_is_worth_is_what_it_has_paid_this_account(day: MarketDay) -> None:
    view = job(day)
    kept = conditions_of(view.terms)
    other = replace(kept, samples=2)
    classes = {class_id(c): c for c in (kept, other)}
    idle, own = class_id(other), view.terms.class_id
    stays = (stay(idle, -5 * TRIAL, -4 * TRIAL), stay(own, -2 * TRIAL, -TRIAL))
    past = Past(stays, {}, {own: Wei(10 * TRIAL)})
    found = prospects(account("v"), NOW, [(view, ())], classes, past, LIMITS)
    assert found == [
        one(own, pays=False, rate=5.0, left=NOW),
        one(idle, open=False, pays=False, left=NOW - 2 * TRIAL),
    ]
    narrow = replace(LIMITS, most_stake=Wei(1))
    assert prospects(account("v"), NOW, [(view, ())], classes, past, narrow) == []


def test_stays_outlast_a_restart_and_time_off_is_not_time_without_pay(tmp_path: Path) -> None:
    kept = Stays(tmp_path / "stays")
    assert kept.look(ZERO_DIGEST, NOW, {}) == ()
    assert kept.look(HOME, NOW, {}) == (Stay(HOME, NOW, Wei(0)),)
    kept.look(HOME, Seconds(NOW + 10), {HOME: Wei(3)})
    paid = Stay(HOME, NOW, Wei(3), Seconds(NOW + 10))
    soon, late = Seconds(NOW + 20), Seconds(NOW + 10 + LOOKS_EVERY + 500)
    assert Stays(tmp_path / "stays").look(HOME, soon, {HOME: Wei(3)}) == (paid,)
    (shifted,) = Stays(tmp_path / "stays").look(HOME, late, {HOME: Wei(3)})
    assert shifted == replace(paid, paid_at=late)
    *_, moved = Stays(tmp_path / "stays").look(LURE, Seconds(late + 1), {HOME: Wei(3)})
    assert moved == Stay(LURE, Seconds(late + 1), Wei(0))


def test_a_damaged_record_of_stays_counts_as_none(tmp_path: Path) -> None:
    Stays(tmp_path / "stays").look(HOME, NOW, {})
    (tmp_path / "stays").write_bytes(b"junk")
    later = Seconds(NOW + 1)
    assert Stays(tmp_path / "stays").look(HOME, later, {}) == (Stay(HOME, later, Wei(0)),)


@pytest.mark.parametrize("broken", ["a key of no job", "an error", "a bug"])
def test_a_verifier_votes_whatever_is_wrong_with_what_it_was_paid(day: MarketDay, broken: str) -> None:
    """A conviction once put a rewind's key among the jobs that had paid, and every verifier failed in every
    look from then on."""
    job_id = day.post(rounds=1, shards=1, samples=1)

    def fees() -> dict[JobId, Wei]:
        if broken == "an error":
            raise WrongAnswer("the node's events contradict one another")
        if broken == "a bug":
            raise KeyError(job_id)
        return {JobId(b"r" * 32): Wei(3)}

    day.solver("ann")
    for i in range(3):
        day.verifier(f"v{i}", join=LIMITS, fees=fees)
    assert day.run(day.closed(job_id), turns=100), [service.status for service in day.services.values()]
    assert len(day.named("voted")) >= 2


def test_attack_A7_a_junk_job_in_a_class_of_its_own_keeps_no_verifier(day: MarketDay) -> None:
    """Nobody ever works on the junk job. It was posted last, and every verifier has agreed to its class. The
    good one draws each of them."""
    good = day.post(rounds=2, shards=1, nonce=1, verifiers=3, solver_stake=Wei(400))
    for i in range(3):
        day.verifier(f"v{i}", join=LIMITS)
    junk = day.post(rounds=1, shards=1, nonce=2, **JUNK)
    home, lure = (day.market_state.jobs[job_id].view.terms.class_id for job_id in (good, junk))

    def agreed() -> set[bytes]:
        return {day.markets[f"v{i}"].subscription(day.address(f"v{i}")) for i in range(3)}

    assert agreed() == {lure}
    assert not day.run(lambda: agreed() != {lure}, turns=TRIAL // 100, seconds=99), "a trial it may have"
    assert day.run(lambda: agreed() == {home}, turns=4, seconds=99)
    day.solver("ann").report.abandon(junk, "nobody works on it")
    left: set[bytes] = set()

    def over() -> bool:
        left.update(agreed())
        return day.closed(good)()

    assert day.run(over, turns=600) and left == {home}
    del day.services["ann"]
    assert all(fees_of(day.markets[f"v{i}"]) for i in range(3))
    assert not day.closed(junk)(), "it stays open"
    assert not day.run(lambda: agreed() != {home}, turns=TRIAL // 100, seconds=99), "nor has it another now"
