"""Rules on terms and classes: the first field at fault is named, and the budget covers what can be paid."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from assay.protocol.params import (
    DEVNET_BOUNDS,
    L1_BOUNDS,
    L2_BOUNDS,
    MAX_NODES,
    MAX_SLICES,
    MAX_SLOTS,
    MAX_WORST_CASE,
    BadConditions,
    BadTerms,
    admitting,
    check_conditions,
    check_terms,
    shard_price,
    worst_case,
)
from assay.protocol.types import ZERO_DIGEST, Seconds, Wei
from tests.fakes.classes import WIDE, conditions_of
from tests.property.markets import TERMS

CLASS = conditions_of(TERMS)
LOOP = TERMS.loops[0]


def test_sound_terms_and_classes_are_taken() -> None:
    check_terms(TERMS, CLASS, WIDE)
    check_conditions(CLASS, WIDE)


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("slots", {"slots": MAX_SLOTS + 1}),
        ("outerSlots", {"outer_slots": MAX_SLOTS + 1}),
        ("params", {"params": 0}),
        ("params", {"params": TERMS.slots + 1}),
        ("slices", {"slices": 0}),
        ("slices", {"slices": MAX_SLICES + 1}),
        ("params", {"slices": TERMS.params + 1}),
        ("params", {"slices": 3, "params": 2}),
        ("loops", {"loops": ()}),
        ("loops", {"loops": TERMS.loops * 9}),
        ("loops", {"loops": (replace(LOOP, nodes=MAX_NODES + 1),)}),
        ("loops", {"loops": (replace(LOOP, steps=0),)}),
        ("loops", {"loops": (replace(LOOP, segment_steps=LOOP.steps + 1),)}),
        ("loops", {"loops": (replace(LOOP, slow_by=0),)}),
        ("loops", {"loops": (replace(LOOP, slow_by=LOOP.segment_steps + 1),)}),
        ("outerLoops", {"outer_loops": (replace(TERMS.outer_loops[0], slow_by=2),)}),
        ("samples", {"loops": (LOOP, replace(LOOP, samples=0)), "segments": 2 * TERMS.segments}),
        ("segments", {"segments": TERMS.segments + 1}),
        ("outerSegments", {"outer_segments": 2}),
        ("samples", {"outer_loops": (replace(TERMS.outer_loops[0], samples=1),)}),
        ("links", {"links": TERMS.links[:1]}),
        ("links", {"links": (replace(TERMS.links[0], lag=0), TERMS.links[1])}),
        ("links", {"links": (replace(TERMS.links[0], lag=256), TERMS.links[1])}),
        ("links", {"links": (TERMS.links[0], replace(TERMS.links[1], lag=256))}),
        ("links", {"links": (replace(TERMS.links[0], first=TERMS.outer_slots), TERMS.links[1])}),
        ("links", {"links": (replace(TERMS.links[0], times=2), TERMS.links[1])}),
        ("links", {"links": (replace(TERMS.links[0], mod=2, stride=TERMS.outer_slots), TERMS.links[1])}),
        ("links", {"links": (replace(TERMS.links[0], mod=2, stride=0), TERMS.links[1])}),
        ("links", {"links": (replace(TERMS.links[0], div=0), TERMS.links[1])}),
        ("links", {"links": (replace(TERMS.links[0], mod=0), TERMS.links[1])}),
        ("links", {"links": (replace(TERMS.links[0], otherwise=TERMS.slots), TERMS.links[1])}),
        ("outerLinks", {"outer_links": (TERMS.outer_links[0], replace(TERMS.outer_links[1], count=0))}),
        ("outerLinks", {"outer_links": (TERMS.outer_links[0], replace(TERMS.outer_links[1], times=3))}),
        ("outerLinks", {"outer_links": TERMS.outer_links * 9}),
        ("manifest", {"manifest": ZERO_DIGEST}),
        ("shards", {"shards": 0}),
        ("minShards", {"min_shards": TERMS.shards + 1}),
        ("rounds", {"rounds": 0}),
        ("maxUnsettled", {"max_unsettled": 0}),
        ("priceFloor", {"price_floor": Wei(TERMS.price_cap + 1)}),
        ("taskTime", {"task_time": Seconds(0)}),
        ("stragglerTime", {"straggler_time": Seconds(0)}),
        ("outerTime", {"outer_time": Seconds(WIDE.most_time + 1)}),
        ("pricePeriod", {"price_period": Seconds(0)}),
        ("pricePeriod", {"price_period": Seconds(WIDE.most_time + 1)}),
        ("stragglerTime", {"min_shards": 1, "straggler_time": Seconds(4 * TERMS.vote_time)}),
        ("samples", {"samples": TERMS.samples + 1}),
        ("verifiers", {"verifiers": TERMS.verifiers + 1}),
        ("seedDelay", {"seed_delay": TERMS.seed_delay - 1}),
        ("moveTime", {"move_time": Seconds(TERMS.move_time + 1)}),
        ("challengeBond", {"challenge_bond": Wei(0)}),
        ("solverStake", {"solver_stake": Wei(CLASS.solver_stake - 1)}),
        ("solverStake", {"outer_fee": Wei(3 * TERMS.solver_stake // 8 + 1)}),
        ("solverStake", {"verifier_fee": Wei(TERMS.solver_stake // (16 * TERMS.verifiers) + 1)}),
        ("priceCap", {"price_cap": Wei(MAX_WORST_CASE)}),
    ],
)
def test_the_field_of_the_terms_at_fault_is_named(field: str, changes: dict[str, Any]) -> None:
    with pytest.raises(BadTerms) as refused:
        check_terms(replace(TERMS, **changes), CLASS, WIDE)
    assert refused.value.field == field and field in refused.value.hint


def test_of_several_faults_the_first_in_the_contracts_order_is_named() -> None:
    """First the terms alone, then the class, then sums over all terms."""
    wrong: dict[str, Any] = {
        "rounds": {"rounds": 0},
        "taskTime": {"task_time": Seconds(0)},
        "stragglerTime": {"straggler_time": Seconds(0)},
        "outerTime": {"outer_time": Seconds(0)},
        "pricePeriod": {"price_period": Seconds(0)},
        "seedDelay": {"seed_delay": 0},
        "solverStake": {"solver_stake": Wei(0)},
    }
    fields = list(wrong)
    for i, field in enumerate(fields):
        changes = {name: value for later in fields[i:] for name, value in wrong[later].items()}
        with pytest.raises(BadTerms) as refused:
            check_terms(replace(TERMS, **changes), CLASS, WIDE)
        assert refused.value.field == field


def test_a_round_that_waits_for_no_straggler_needs_no_time_for_its_votes() -> None:
    """Rule 3.1: else a task that is committed in the last second is voted on before its round can close."""
    short = replace(TERMS, straggler_time=Seconds(1))
    assert short.min_shards == short.shards
    check_terms(short, CLASS, WIDE)
    slow = replace(WIDE, clock_lag=25, block_time=Seconds(12))
    least = 4 * TERMS.vote_time + (TERMS.seed_delay + 1 + 4 * 50) * 12 + WIDE.least_time
    check_terms(replace(TERMS, min_shards=1, straggler_time=Seconds(least)), CLASS, slow)
    with pytest.raises(BadTerms) as refused:
        check_terms(replace(TERMS, min_shards=1, straggler_time=Seconds(least - 1)), CLASS, slow)
    assert refused.value.field == "stragglerTime" and str(least) in refused.value.why


def test_a_solver_puts_up_at_least_what_its_claims_verifiers_do() -> None:
    """Rules 3.1 and 3.4: otherwise a claimant that falsifies its own input gains from its voters' stakes."""
    seats = TERMS.verifiers * TERMS.verifier_stake
    check_conditions(replace(CLASS, solver_stake=Wei(seats)), WIDE)
    with pytest.raises(BadConditions) as refused:
        check_conditions(replace(CLASS, solver_stake=Wei(seats - 1)), WIDE)
    assert refused.value.field == "solverStake"
    check_terms(replace(TERMS, solver_stake=Wei(seats), verifier_fee=Wei(0)), CLASS, WIDE)


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("verifierFee", {"verifier_fee": Wei(TERMS.verifier_fee + 1)}),
        ("solverStake", {"solver_stake": Wei(TERMS.solver_stake + 1)}),
        ("nodes", {"nodes": TERMS.loops[0].nodes - 1}),
        ("segmentSteps", {"segment_steps": TERMS.segment_steps - 1}),
        ("segments", {"segments": TERMS.segments - 1}),
        ("records", {"data_bytes": TERMS.records * TERMS.record_size - 1}),
        ("stateBytes", {"state_bytes": TERMS.state_bytes - 1}),
        ("stepOperations", {"step_operations": TERMS.step_operations - 1}),
    ],
)
def test_a_job_is_no_larger_and_pays_no_less_than_its_class_says(field: str, changes: dict[str, Any]) -> None:
    with pytest.raises(BadTerms) as refused:
        check_terms(TERMS, replace(CLASS, **changes), WIDE)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("verifiers", {"verifiers": 5}),
        ("segments", {"segments": 257}),
        ("samples", {"samples": 9}),
        ("segmentSteps", {"segment_steps": 65}),
        ("nodes", {"nodes": 0}),
        ("seedDelay", {"seed_delay": WIDE.most_delay + 1}),
        ("voteTime", {"vote_time": Seconds(WIDE.least_vote - 1)}),
        ("challengeWindow", {"challenge_window": Seconds(WIDE.most_window + 1)}),
        ("missPenalty", {"miss_penalty": Wei(CLASS.verifier_stake // 2 + 1)}),
        ("challengeBond", {"challenge_bond": Wei(CLASS.verifier_stake + 1)}),
        ("solverStake", {"solver_stake": Wei(CLASS.verifiers * CLASS.verifier_stake - 1)}),
    ],
)
def test_the_field_of_a_class_at_fault_is_named(field: str, changes: dict[str, Any]) -> None:
    with pytest.raises(BadConditions) as refused:
        check_conditions(replace(CLASS, **changes), WIDE)
    assert refused.value.field == field


@pytest.mark.parametrize("bounds", [DEVNET_BOUNDS, L2_BOUNDS, L1_BOUNDS])
def test_a_class_at_the_least_of_a_markets_bounds_is_admitted_there(bounds: Any) -> None:
    least = replace(
        CLASS,
        seed_delay=bounds.least_delay,
        vote_time=bounds.least_vote,
        challenge_window=bounds.least_window,
        move_time=bounds.least_move,
        verifier_stake=bounds.least_stake,
        miss_penalty=Wei(0),
        challenge_bond=bounds.least_bond,
        solver_stake=Wei(CLASS.verifiers * bounds.least_stake),
    )
    check_conditions(least, bounds)
    assert admitting(least) is not None
    with pytest.raises(BadConditions):
        admitting(replace(least, vote_time=Seconds(1)))


def test_the_worst_case_is_every_task_at_the_cap_with_every_fee() -> None:
    terms = replace(TERMS, rounds=3, shards=2, price_cap=Wei(10), verifiers=4)
    assert worst_case(replace(terms, verifier_fee=Wei(2), outer_fee=Wei(5))) == 3 * (2 * (10 + 4 * 2) + 5)


def test_the_price_rises_from_floor_to_cap_and_is_rounded_down() -> None:
    terms = replace(TERMS, price_floor=Wei(10), price_cap=Wei(20), price_period=Seconds(3))
    prices = [shard_price(terms, 100, now) for now in (99, 100, 101, 102, 103, 10_000)]
    assert prices == [10, 10, 13, 16, 20, 20]
