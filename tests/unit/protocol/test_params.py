"""Rules on a job's terms: the first field at fault is named, and the budget covers what can be paid."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from assay.protocol.params import (
    MAX_NODES,
    MAX_TIME,
    MAX_WORST_CASE,
    BadTerms,
    check_terms,
    shard_price,
    worst_case,
)
from assay.protocol.types import ZERO_DIGEST, Seconds, Wei
from tests.property.markets import TERMS


def test_sound_terms_are_taken() -> None:
    check_terms(TERMS)


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("inner", {"inner": replace(TERMS.inner, nodes=MAX_NODES + 1)}),
        ("inner", {"inner": replace(TERMS.inner, params=0)}),
        ("outer", {"outer": replace(TERMS.outer, params=TERMS.outer.slots + 1)}),
        ("outer.slots", {"outer": replace(TERMS.outer, slots=TERMS.outer.slots + 1)}),
        ("manifest", {"manifest": ZERO_DIGEST}),
        ("shards", {"shards": 0}),
        ("minShards", {"min_shards": TERMS.shards + 1}),
        ("rounds", {"rounds": 0}),
        ("stepsPerRound", {"steps_per_round": 0}),
        ("segmentSteps", {"segment_steps": TERMS.steps_per_round + 1}),
        ("segmentSteps", {"segment_steps": 65, "steps_per_round": 65}),
        ("samples", {"samples": TERMS.segments + 1}),
        ("verifiers", {"verifiers": 17}),
        ("quorum", {"quorum": TERMS.verifiers + 1}),
        ("maxUnsettled", {"max_unsettled": 0}),
        ("priceFloor", {"price_floor": Wei(TERMS.price_cap + 1)}),
        ("seedDelay", {"seed_delay": 0}),
        ("moveTime", {"move_time": Seconds(0)}),
        ("challengeWindow", {"challenge_window": Seconds(MAX_TIME + 1)}),
        ("priceCap", {"price_cap": Wei(MAX_WORST_CASE)}),
    ],
)
def test_the_field_at_fault_is_named(field: str, changes: dict[str, Any]) -> None:
    with pytest.raises(BadTerms) as refused:
        check_terms(replace(TERMS, **changes))
    assert refused.value.field == field and field in refused.value.hint


def test_of_several_faults_the_first_in_the_contracts_order_is_named() -> None:
    with pytest.raises(BadTerms) as refused:
        check_terms(replace(TERMS, seed_delay=0, quorum=0, rounds=0))
    assert refused.value.field == "rounds"


def test_the_worst_case_is_every_task_at_the_cap_with_every_fee() -> None:
    terms = replace(
        TERMS, rounds=3, shards=2, price_cap=Wei(10), verifiers=4, verifier_fee=Wei(2), outer_fee=Wei(5)
    )
    assert worst_case(terms) == 3 * (2 * (10 + 4 * 2) + 5)


def test_the_price_rises_from_floor_to_cap_and_is_rounded_down() -> None:
    terms = replace(TERMS, price_floor=Wei(10), price_cap=Wei(20), price_period=Seconds(3))
    assert [shard_price(terms, 100, now) for now in (99, 100, 101, 102, 103, 10_000)] == [
        10,
        10,
        13,
        16,
        20,
        20,
    ]
