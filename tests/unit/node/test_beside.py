"""A look beside long work: one at a time, waited for, and too old after a while."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from assay.node.beside import HOUSE_LONGEST_S, LONGEST_S, PATIENCE_S, TIMES, Beside
from assay.protocol.errors import AssayError, Retry
from tests.fakes.later import Later


class Scene:
    """A thread that a test moves, a clock, and what was done."""

    def __init__(self) -> None:
        self.later, self.at, self.done = Later(), 50.0, list[str]()
        self.failing: dict[str, AssayError] = {}
        self.takes_s = self.house_s = 0.0
        self.beside = Beside(self.later, self.work("look"), self.work("house"), lambda: self.at)

    def work(self, name: str) -> Callable[[], None]:
        def work() -> None:
            self.done.append(name)
            self.at += self.takes_s if name == "look" else self.house_s
            if name in self.failing:
                raise self.failing[name]

        return work


def test_a_look_is_told_until_it_is_too_old_to_decide_by() -> None:
    scene = Scene()
    beside, scene.takes_s = scene.beside, 0.5
    assert not beside.ready() and beside.since_s is None
    beside.begin()
    beside.begin()
    assert len(scene.later.given) == 2 and not beside.ready(), "one look, one round of housekeeping"
    scene.later.go()
    assert beside.ready() and scene.done == ["house", "look"]
    scene.at += 1.0
    beside.take()
    assert beside.since_s == 50.0 and not beside.ready()
    scene.at += TIMES * 0.5
    beside.take()
    assert beside.since_s == 50.0, "the next decision goes by it as well, ten times as long as it took"
    scene.at += 0.5
    assert beside.since_s is None and scene.done == ["house", "look"]
    at = scene.at
    beside.take()
    assert beside.since_s == at and scene.done == ["house", "look", "look"], "who decides now looks himself"


def test_a_look_that_ended_long_ago_is_not_taken() -> None:
    scene = Scene()
    scene.takes_s = 0.5
    for waited_s, looks in ((TIMES * 0.5, 1), (TIMES * 0.5 + 0.1, 2)):
        scene.at, scene.done = 50.0 + 100 * looks, []
        scene.beside.begin()
        scene.later.go()
        scene.at += waited_s
        scene.beside.take()
        assert scene.done.count("look") == looks


def test_a_look_that_took_very_long_does_not_count_for_long() -> None:
    scene = Scene()
    scene.beside.begin()
    scene.takes_s = 60.0
    scene.later.go()
    scene.beside.take()
    scene.at += LONGEST_S
    assert scene.beside.since_s == 50.0
    scene.at += 0.5
    assert scene.beside.since_s is None


def test_house_is_kept_by_one_thread_at_a_time() -> None:
    scene = Scene()
    beside = scene.beside
    beside.house()
    assert scene.done == ["house"], "the loop's own thread keeps it"
    beside.begin()
    beside.house()
    assert scene.done == ["house"], "it is under way"
    scene.later.go()
    beside.take()
    beside.begin()
    assert scene.done == ["house", "house", "look"] and len(scene.later.given) == 1, "nobody took the last"
    beside.house()
    assert scene.done.count("house") == 2
    beside.house()
    assert scene.done.count("house") == 3


def test_what_keeps_house_for_long_does_so_seldom() -> None:
    for house_s, rests_s in ((2.0, 2.0 * TIMES), (30.0, HOUSE_LONGEST_S)):
        scene = Scene()
        beside, scene.house_s = scene.beside, house_s
        beside.house()
        scene.at += rests_s - 0.1
        beside.house()
        beside.begin()
        assert scene.done == ["house"] and len(scene.later.given) == 1, "only a look"
        scene.at += 0.2
        beside.house()
        assert scene.done == ["house"] * 2


def test_what_was_raised_is_raised_where_it_is_taken_in() -> None:
    scene = Scene()
    scene.failing = {"look": Retry("the chain is away"), "house": Retry("a peer is")}
    scene.beside.begin()
    scene.later.go()
    with pytest.raises(Retry, match="chain"):
        scene.beside.take()
    assert scene.beside.since_s is None
    with pytest.raises(Retry, match="peer"):
        scene.beside.house()
    with pytest.raises(Retry, match="chain"):
        scene.beside.take()
    scene.failing, scene.at = {}, scene.at + 1.0
    scene.beside.house()
    scene.beside.take()
    assert scene.beside.since_s == scene.at


def test_a_look_before_something_was_sent_is_made_again() -> None:
    scene = Scene()
    beside, scene.takes_s = scene.beside, 2.0
    beside.begin()
    scene.later.go()
    scene.at += 1.0
    beside.moved()
    assert not beside.ready() and len(scene.later.given) == 1, "what it read has been let go"
    scene.at += 1.0
    scene.later.go()
    assert beside.ready() and scene.done == ["house", "look", "look"]
    assert not beside.ready(sending=True), "something is being sent"
    scene.at += LONGEST_S / 2
    assert beside.ready(sending=True), "which takes too long to wait for: what was read is half too old"
    beside.take()
    assert beside.since_s is not None
    beside.begin()
    scene.failing = {"look": Retry("the chain is away")}
    scene.later.go()
    scene.at += 1.0
    beside.moved()
    assert beside.ready(sending=True), "a failure is told"


def test_who_asks_quickly_asks_himself_where_a_look_has_been_overtaken() -> None:
    scene = Scene()
    beside, scene.takes_s = scene.beside, 0.1
    for waited_s, ready in ((0.8, False), (1.1, True)):
        beside.begin()
        scene.later.go()
        scene.at += waited_s
        beside.moved()
        assert beside.ready() == ready and beside.ready(sending=True) == ready
        scene.later.go()
        scene.at += 0.01
        at = scene.at
        beside.take()
        assert (beside.since_s == at) == ready, "the decision reads what there is now"
        scene.at += 10.0
    beside.begin()
    scene.later.go()
    scene.at += 0.01
    beside.moved()
    at = scene.at
    beside.take()
    assert beside.since_s == at, "a look that was overtaken is nothing to decide by"


def test_a_look_that_has_not_begun_is_not_waited_for() -> None:
    scene = Scene()
    beside = scene.beside
    beside.begin()
    assert not beside.ready()
    scene.at += PATIENCE_S + 0.1
    assert beside.ready(), "the house takes long: who decides looks for himself"
    beside.take()
    scene.later.go()
    assert beside.since_s == scene.at and scene.done == ["look", "house"]
