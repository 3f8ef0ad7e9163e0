"""Calls that anyone may make: one after the other, from when each of us has seen that they are due."""

from __future__ import annotations

from assay.node.intents import turn
from assay.node.upkeep import Poke, Turns
from assay.protocol.types import ClaimId, JobId, Seconds
from tests.fakes.jobs import account

CLAIM = ClaimId(b"\x01" * 32)


def poke(turn_s: int) -> Poke:
    return Poke("tally", CLAIM, JobId(b"\x02" * 32), Seconds(0), "every seat has voted", turn_s)


def test_a_turn_counts_from_when_the_call_was_first_seen_to_be_due() -> None:
    turns = Turns()
    assert turns.over({"a": poke(3)}, Seconds(100)) == set()
    assert turns.over({"a": poke(3), "b": poke(1)}, Seconds(102)) == set()
    assert turns.over({"a": poke(3), "b": poke(1)}, Seconds(103)) == {"a", "b"}


def test_a_call_that_is_due_again_is_waited_for_again() -> None:
    turns = Turns()
    turns.over({"a": poke(2)}, Seconds(100))
    turns.over({}, Seconds(101))
    assert turns.over({"a": poke(2)}, Seconds(102)) == set()
    assert turns.over({"a": poke(2)}, Seconds(104)) == {"a"}


def test_of_many_watchers_few_have_the_same_turn() -> None:
    turns = [turn(account(f"node {i}"), CLAIM) for i in range(64)]
    assert max(turns.count(place) for place in range(8)) <= 16
