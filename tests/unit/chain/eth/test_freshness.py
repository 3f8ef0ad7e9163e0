"""How old an answer may be: a moment near the chain, a few times as long as asking took over a far link."""

from __future__ import annotations

import pytest

from assay.chain.eth.clock import ChainClock
from assay.chain.eth.freshness import LONGEST_S, PATIENCE, Freshness
from assay.chain.eth.rpc import Rpc
from assay.protocol.errors import RpcUnreachable


class Hands:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


def asked(freshness: Freshness, hands: Hands, took_s: float) -> None:
    with freshness.asking():
        hands.at += took_s


@pytest.mark.parametrize(("took_s", "good_s"), [(0.01, 0.2), (0.5, PATIENCE * 0.5), (60.0, LONGEST_S)])
def test_an_answer_is_good_for_a_few_times_as_long_as_it_took(took_s: float, good_s: float) -> None:
    freshness, hands = Freshness(0.2, hands := Hands()), hands
    assert freshness.stale(), "nothing was asked"
    begun = hands.at
    asked(freshness, hands, took_s)
    hands.at = max(begun + good_s - 0.01, begun)
    assert not freshness.stale()
    hands.at = begun + good_s + 0.01
    assert freshness.stale() and not freshness.stale(begun) and freshness.stale(begun + 0.1)


def test_what_failed_or_is_never_good_is_asked_again() -> None:
    freshness, hands = Freshness(0.2, hands := Hands()), hands
    asked(freshness, hands, 0.01)
    with pytest.raises(RpcUnreachable), freshness.asking():
        raise RpcUnreachable("away", hint="wait")
    assert freshness.stale() and freshness.stale(0.0)
    always = Freshness(-1.0, hands)
    asked(always, hands, 1.0)
    hands.at -= 1.0
    assert always.stale() and not always.stale(hands.at)


class Node(Rpc):
    """Has another latest block each time, or none."""

    def __init__(self) -> None:
        self.asked = 0

    def request(self, method: str, parameters: list[object]) -> dict[str, str] | None:
        self.asked += 1
        block = {"hash": "0x", "number": hex(self.asked), "timestamp": hex(1_000 + self.asked)}
        return None if self.asked == 3 else block


def test_a_clock_asks_once_for_a_moment_and_for_each_answer_without_one() -> None:
    node = Node()
    kept = ChainClock(node, 60.0)
    assert (kept.now(), kept.block(), kept.now(), node.asked) == (1_001, 1, 1_001, 1)
    fresh = ChainClock(node)
    assert (fresh.block(), node.asked) == (2, 2)
    with pytest.raises(RpcUnreachable):
        fresh.now()
