"""Questions that go at once: each asked once, answered once, and none of them where it was not asked for."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

import pytest

from assay.chain.eth.concurrent_requests import PrefetchingRpc
from assay.chain.eth.rpc import Rpc
from assay.protocol.errors import RpcUnreachable


class Node(Rpc):
    """A node that counts requests, and waits at some."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.failing: set[str] = set()
        self.held = set[str]()
        """While it is not open, these alone wait; none: all."""
        self.open = threading.Event()
        self.open.set()
        self.waited: list[str] = []

    def request(self, method: str, params: list[Any]) -> Any:
        self.asked[method] += 1
        if not self.held or method in self.held:
            found = self.open.wait(10)
            self.waited.append(method)
            assert found
        if method in self.failing:
            raise RpcUnreachable(f"no answer to {method}", hint="wait")
        return f"{method} {params} {self.asked[method]}"


@pytest.fixture(params=[1, 3], ids=["in turn", "together"])
def at_once(request: pytest.FixtureRequest) -> int:
    found: int = request.param
    return found


def test_what_was_begun_is_asked_once_and_given_once(at_once: int) -> None:
    node = Node()
    rpc = PrefetchingRpc(node, at_once)
    rpc.begin([("a", [1]), ("b", [])])
    rpc.begin([("a", [1])])
    assert rpc.request("a", [1]) == "a [1] 1"
    assert rpc.request("b", []) == "b [] 1"
    assert node.asked == {"a": 1, "b": 1}
    assert rpc.request("a", [1]) == "a [1] 2", "an answer is not given twice"


def test_other_parameters_are_another_question(at_once: int) -> None:
    rpc = PrefetchingRpc(Node(), at_once)
    rpc.begin([("a", [1])])
    assert rpc.request("a", [2]).startswith("a [2] ")
    assert rpc.request("a", [1]).startswith("a [1] ")


def test_an_error_is_raised_where_its_answer_is_asked_for(at_once: int) -> None:
    node = Node()
    node.failing = {"bad"}
    rpc = PrefetchingRpc(node, at_once)
    rpc.begin([("bad", []), ("good", [])])
    assert rpc.request("good", []) == "good [] 1"
    with pytest.raises(RpcUnreachable, match="no answer to bad"):
        rpc.request("bad", [])
    with pytest.raises(RpcUnreachable, match="no answer to bad"):
        rpc.together([("good", []), ("bad", [])])
    node.failing = set()
    assert rpc.request("bad", []).startswith("bad [] "), "an error is not kept"


def test_together_asks_now_whatever_was_begun(at_once: int) -> None:
    node = Node()
    rpc = PrefetchingRpc(node, at_once)
    rpc.request("b", [])
    rpc.begin([("a", [])])
    while at_once > 1 and not node.asked["a"]:
        time.sleep(0.001)
    before = node.asked["a"]
    assert rpc.together([("a", []), ("c", [7])]) == [f"a [] {before + 1}", "c [7] 1"]
    assert rpc.together([]) == []


def test_what_was_dropped_is_asked_again(at_once: int) -> None:
    node = Node()
    node.failing = {"a"}
    rpc = PrefetchingRpc(node, at_once)
    rpc.begin([("a", [])])
    for each in rpc._begun.values():
        assert each.exception(10) is not None
    rpc.drop()
    node.failing = set()
    assert rpc.request("a", []).startswith("a [] ")


def test_closing_waits_for_nothing_and_begins_nothing(at_once: int) -> None:
    node, others = Node(), set(threading.enumerate())
    rpc = PrefetchingRpc(node, at_once)
    node.open.clear()
    rpc.begin([(name, []) for name in "abcde"])
    threads = set(threading.enumerate()) - others
    assert len(threads) == (at_once if at_once > 1 else 0)
    rpc.close()
    assert all(each.is_alive() for each in threads), "what is under way is not waited for"
    node.open.set()
    for each in threads:
        each.join(10)
    assert sum(node.asked.values()) == len(threads), "what had not begun never begins"


def test_one_question_at_once_begins_none_before_it_is_asked_for() -> None:
    node = Node()
    rpc = PrefetchingRpc(node, 1)
    rpc.begin([("a", [])])
    assert not node.asked
    rpc.together([("a", []), ("b", [])])
    assert node.asked == {"a": 1, "b": 1}
    with pytest.raises(ValueError, match="at least one"):
        PrefetchingRpc(node, 0)


def test_questions_that_hang_and_were_dropped_hold_no_other_up() -> None:
    """As after a poll that one answer has ended: the next one begins at once."""
    node = Node()
    rpc = PrefetchingRpc(node, 3)
    node.open.clear()
    rpc.begin([(name, []) for name in "abc"])
    while sum(node.asked.values()) < 3:
        time.sleep(0.001)
    rpc.drop()
    node.held = {"a", "b", "c"}
    rpc.begin([("d", []), ("e", [])])
    assert rpc.request("d", []) == "d [] 1"
    assert rpc.together([("f", []), ("g", [])]) == ["f [] 1", "g [] 1"]
    assert not node.waited, "those still hang"
    node.open.set()
    assert rpc.request("e", []).startswith("e [] ")
