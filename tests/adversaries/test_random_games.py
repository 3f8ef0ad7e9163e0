"""Random programs, random faults: each is convicted where it was planted, and the truth is acquitted.

`make games` plays ten thousand.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.adversaries.planting import KINDS
from tests.adversaries.random_games import arrange, judge, play_pure

PORTION, GAMES = 600, int(os.environ.get("GAMES", "600"))


def play(seeds: range) -> tuple[Counter[str], Counter[str]]:
    """Kinds of fault and operations of the first wrong nodes; raises AssertionError at a wrong verdict."""
    kinds: Counter[str] = Counter()
    operations: Counter[str] = Counter()
    for seed in seeds:
        case = arrange(seed)
        judge(case, *play_pure(case))
        kinds[case.planted.kind] += 1
        operations[case.op] += 1
    return kinds, operations


@pytest.mark.long
def test_every_kind_of_fault_is_convicted_and_the_truth_acquitted() -> None:
    kinds, _ = play(range(1_000_000, 1_000_060))
    assert set(kinds) == set(KINDS), "a kind was never planted"


def test_a_seed_is_one_case() -> None:
    one, other = arrange(3), arrange(3)
    assert one.accusation() == other.accusation()
    assert (one.planted.kind, one.planted.node, one.op) == (other.planted.kind, other.planted.node, other.op)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, GAMES, PORTION))
def test_faults_in_every_operation_are_convicted(first: int) -> None:
    kinds, operations = play(range(2_000_000 + first, 2_000_000 + first + PORTION))
    assert min(kinds.values()) >= 10 and len(kinds) == len(KINDS)
    assert len(operations) >= 35, sorted(operations)
