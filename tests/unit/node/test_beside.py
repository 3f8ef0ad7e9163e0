"""A look beside long work: one at a time, waited for, and too old after a while."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from assay.node.beside import (
    HOUSE_LONGEST_S,
    INHERITED_S,
    LONGEST_S,
    PATIENCE_S,
    TAKEN_S,
    TIMES,
    TIMES_HOUSE,
    Beside,
)
from assay.protocol.errors import AssayError, Retry
from tests.fakes.later import Later


class Scene:
    """A thread that a test moves, a clock, and what was done."""

    def __init__(self, takes_s: float = 0.0) -> None:
        self.later, self.at, self.done = Later(), 50.0, list[str]()
        self.failing: dict[str, AssayError] = {}
        self.takes_s, self.house_s = takes_s, 0.0
        self.beside = Beside(self.later, self.work("look"), self.work("house"), lambda: self.at)

    def work(self, name: str) -> Callable[[], None]:
        def work() -> None:
            self.done.append(name)
            self.at += self.takes_s if name == "look" else self.house_s
            if name in self.failing:
                raise self.failing[name]

        return work

    def looked(self) -> Beside:
        """With a look that is over."""
        self.beside.begin()
        self.later.go()
        return self.beside

    @property
    def looks(self) -> int:
        return self.done.count("look")


def test_a_look_is_told_until_it_is_too_old_to_decide_by() -> None:
    scene = Scene(0.2)
    beside = scene.beside
    assert not beside.ready() and beside.since_s is None
    beside.begin()
    beside.begin()
    assert len(scene.later.given) == 2 and not beside.ready(), "one look, one round of housekeeping"
    scene.later.go()
    assert beside.ready() and scene.done == ["house", "look"]
    scene.at += 1.0
    beside.take()
    assert beside.since_s == 50.0 and not beside.ready()
    scene.at += TIMES * 0.2 - 0.1
    beside.take()
    assert beside.since_s == 50.0, "the next decision goes by it as well, thirty times as long as it took"
    scene.at += 0.5
    assert beside.since_s is None and scene.looks == 1
    at = scene.at
    beside.take()
    assert beside.since_s == at and scene.looks == 2, "who decides now looks himself"


def test_who_has_rested_goes_by_no_look_of_before() -> None:
    scene = Scene(0.5)
    scene.looked().take()
    scene.beside.take(again=False)
    assert scene.looks == 2 and scene.beside.since_s == 50.5
    scene.looked().take(again=False)
    assert scene.looks == 3, "but by one that was made meanwhile"


@pytest.mark.parametrize(("took_s", "good_s"), [(0.5, TIMES * 0.5), (0.125, TIMES * 0.125), (20.0, TAKEN_S)])
def test_a_look_that_ended_long_ago_is_not_taken(took_s: float, good_s: float) -> None:
    for late_s, looks in ((0.0, 1), (0.1, 2)):
        scene = Scene(took_s)
        scene.looked()
        scene.at += good_s + late_s
        scene.beside.take()
        assert scene.looks == looks


@pytest.mark.parametrize(
    ("took_s", "counted_s"),
    [
        ((0.5, 0.0), 0.25),
        ((0.5, 0.0, 0.0), 0.125),
        ((0.5, 0.375), 0.375),
        ((120.0, 0.0, 0.0), INHERITED_S / 2),
    ],
)
def test_a_look_that_asked_nothing_counts_half_as_long_as_the_one_before(
    took_s: tuple[float, ...], counted_s: float
) -> None:
    """A look in the block of the one before has its answers."""
    for late_s, own in ((0.0, 0), (0.1, 1)):
        scene = Scene()
        for scene.takes_s in took_s[:-1]:
            scene.looked().take()
        scene.takes_s = took_s[-1]
        scene.looked()
        scene.at += TIMES * counted_s + late_s
        scene.beside.take()
        assert scene.looks == len(took_s) + own


def test_a_look_that_took_very_long_does_not_count_for_long() -> None:
    scene = Scene(60.0)
    scene.looked().take()
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
    scene.later.go()
    beside.take()
    beside.house()
    assert scene.done.count("house") == 3


def test_what_keeps_house_for_long_does_so_seldom() -> None:
    for house_s, rests_s in ((2.0, 2.0 * TIMES_HOUSE), (30.0, HOUSE_LONGEST_S)):
        scene = Scene()
        beside, scene.house_s = scene.beside, house_s
        beside.house()
        scene.at += rests_s - 0.1
        beside.house()
        beside.begin()
        assert scene.done == ["house"] and len(scene.later.given) == 1, "only a look"
        scene.at += 0.2
        beside.house()
        assert scene.done == ["house"], "left to the thread, which looks"
        scene.later.go()
        beside.take()
        beside.house(busy=True)
        assert scene.done.count("house") == 1, "or is about to"
        beside.house()
        assert scene.done.count("house") == 2
        scene.at += rests_s + HOUSE_LONGEST_S
        beside.house(busy=True)
        assert scene.done.count("house") == 3, "which has not come to it"


def test_a_house_that_could_not_be_kept_is_kept_again_soon() -> None:
    scene = Scene()
    beside, scene.house_s, scene.failing = scene.beside, 20.0, {"house": Retry("a peer is away")}
    with pytest.raises(Retry):
        beside.house()
    beside.house()
    assert scene.done == ["house"]
    scene.at += LONGEST_S
    scene.failing = {}
    beside.house()
    assert scene.done == ["house"] * 2


def test_what_was_raised_is_raised_where_it_is_taken_in() -> None:
    scene = Scene(0.5)
    scene.looked().take()
    scene.failing = {"look": Retry("the chain is away"), "house": Retry("a peer is")}
    scene.beside.house()
    scene.looked()
    scene.at += 0.1
    assert scene.beside.ready(sending=True), "a failure is told at once"
    with pytest.raises(Retry, match="chain"):
        scene.beside.take()
    assert scene.beside.since_s is None, "nobody goes by the look before"
    with pytest.raises(Retry, match="peer"):
        scene.beside.house()
    with pytest.raises(Retry, match="chain"):
        scene.beside.take()
    assert scene.beside.since_s is None
    scene.failing = {}
    at = scene.at
    scene.beside.take()
    assert scene.beside.since_s == at


def test_a_look_before_something_was_sent_is_made_again() -> None:
    scene = Scene(2.0)
    beside = scene.looked()
    scene.at += 1.0
    beside.moved()
    assert not beside.ready() and len(scene.later.given) == 1, "what it read has been let go"
    scene.at += 1.0
    scene.later.go()
    assert beside.ready() and scene.looks == 2
    assert not beside.ready(sending=True), "something is being sent"
    scene.at += LONGEST_S / 2 - 0.1
    assert not beside.ready(sending=True)
    scene.at += 0.1
    assert beside.ready(sending=True), "which takes too long to wait for: what was read is half too old"
    beside.take()
    assert beside.since_s is not None and scene.looks == 2


def test_a_short_look_waits_for_what_is_sent_half_as_long_as_it_counts() -> None:
    scene = Scene(0.2)
    beside = scene.looked()
    scene.at += 0.9
    assert not beside.ready(sending=True)
    scene.at += 0.2
    assert beside.ready(sending=True)


def test_looks_that_are_overtaken_again_and_again_put_a_decision_off_no_further() -> None:
    scene = Scene(2.0)
    beside, begun = scene.beside, scene.at
    beside.begin()
    while scene.at - begun <= PATIENCE_S:
        scene.later.go()
        scene.at += 1.0
        beside.moved()
        assert not beside.ready() or scene.at - begun > PATIENCE_S
    scene.later.go()
    assert beside.ready()


def test_who_asks_quickly_asks_himself_where_a_look_has_been_overtaken() -> None:
    for took_s, waits_s in ((0.1, 1.0), (2.0, 20.0)):
        for late_s, ready in ((-0.1, False), (0.1, True)):
            scene = Scene(took_s)
            beside = scene.looked()
            scene.at += waits_s + late_s
            beside.moved()
            assert beside.ready() == ready and beside.ready(sending=True) == ready
            scene.later.go()
            scene.at += 0.01
            at = scene.at
            beside.take()
            assert (beside.since_s == at) == ready, "the decision reads what there is now"
    scene = Scene(0.1)
    scene.looked()
    scene.at += 0.01
    scene.beside.moved()
    at = scene.at
    scene.beside.take()
    assert scene.beside.since_s == at, "a look that was overtaken is nothing to decide by"


def test_a_look_that_has_not_begun_is_not_waited_for() -> None:
    scene = Scene()
    beside = scene.beside
    beside.begin()
    scene.at += PATIENCE_S
    assert not beside.ready()
    scene.at += 0.1
    assert beside.ready(), "the house takes long: who decides looks for himself"
    beside.take()
    scene.later.go()
    assert beside.since_s == scene.at and scene.done == ["look", "house"]


def test_a_look_that_has_begun_is_waited_for() -> None:
    scene = Scene()
    beside = scene.beside
    beside.begin()
    look = beside._look
    assert look is not None and look.set_running_or_notify_cancel()
    scene.at += PATIENCE_S + 0.1
    assert not beside.ready()


def under_way(scene: Scene) -> Future[object]:
    """A look was taken; the next one has begun, and is not over."""
    scene.looked()
    scene.beside.take()
    scene.at += 1.0
    scene.beside.begin()
    look = scene.beside._look
    assert look is not None and look.set_running_or_notify_cancel()
    return look


def test_a_look_under_way_is_not_waited_for_while_the_last_one_serves() -> None:
    """As at the end of a task, where the next decision need not stand still for seconds over a far link."""
    scene = Scene(2.0)
    look: Any = under_way(scene)
    look.result = lambda timeout=None: pytest.fail("it was waited for")
    scene.beside.take()
    assert (scene.beside.since_s, scene.beside._look, scene.looks) == (50.0, look, 1)
    look.set_result(None)
    assert scene.beside.ready(), "it is taken once it is over"


@pytest.mark.parametrize("cause", ["rested", "moved", "old"])
def test_a_look_under_way_is_waited_for_where_the_last_one_serves_no_longer(cause: str) -> None:
    scene = Scene(0.2)
    look: Any = under_way(scene)
    if cause == "moved":
        scene.beside.moved()
    elif cause == "old":
        scene.at += LONGEST_S
    asked = []

    def wait(timeout: float | None = None) -> None:
        asked.append(scene.at)
        scene.beside._looked()

    look.result = wait
    scene.beside.take(again=cause != "rested")
    assert len(asked) == 1 and scene.beside._look is None
    assert scene.beside.since_s == asked[0], "what is decided by began after that"


def taken(scene: Scene) -> Beside:
    """A look of two seconds was taken, which counts for ten."""
    scene.takes_s = 2.0
    scene.looked().take()
    return scene.beside


@pytest.mark.parametrize(("ends_in_s", "looks"), [(3.9, False), (4.1, True), (float("inf"), True)])
def test_no_look_is_begun_that_may_last_beyond_the_work(ends_in_s: float, looks: bool) -> None:
    scene = Scene()
    beside = taken(scene)
    beside.begin(ends_in_s)
    assert (beside._look is not None) == looks == bool(scene.later.given)
    assert not beside.ready()


@pytest.mark.parametrize("cause", ["moved", "too old then", "none taken"])
def test_one_is_begun_where_the_last_one_would_not_serve_until_then(cause: str) -> None:
    scene = Scene()
    beside = taken(scene) if cause != "none taken" else scene.beside
    if cause == "moved":
        beside.moved()
    elif cause == "too old then":
        scene.at += LONGEST_S - 0.9
    beside.begin(1.0)
    assert beside._look is not None


def test_work_that_does_not_end_when_it_was_to_has_its_look_later() -> None:
    scene = Scene()
    beside = taken(scene)
    beside.begin(3.0)
    scene.at += LONGEST_S - 0.1
    assert not beside.ready() and beside._look is None
    scene.at += 0.2
    assert not beside.ready() and beside._look is not None
    scene.later.go()
    assert beside.ready() and scene.looks == 2
