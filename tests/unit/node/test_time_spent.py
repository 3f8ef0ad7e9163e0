"""Where a node's time goes: each second once, for the innermost of what is done."""

from __future__ import annotations

from collections.abc import Iterator

from assay.node.time_spent import COMPUTING, REST, STORING, WAITING, TimeSpent
from assay.solver.under_way import Times


def test_a_second_counts_once_for_the_innermost() -> None:
    times: Iterator[float] = iter([0.0, 10.0, 11.0, 15.0, 15.5, 16.0, 20.0, 20.0, 24.0])
    spent = TimeSpent(lambda: next(times))
    with spent.on(REST):  # from 10
        with spent.on(COMPUTING):  # from 11 to 15
            pass
        with spent.on(STORING):  # from 15.5 to 16
            pass
    with spent.on(WAITING):  # from 20 to 24
        pass
    assert spent.seconds() == {REST: 1.0 + 0.5 + 4.0, COMPUTING: 4.0, STORING: 0.5, WAITING: 4.0}
    assert spent.counters() == {
        "seconds_deciding": 6,
        "seconds_computing": 4,
        "seconds_storing": 0,
        "seconds_waiting": 4,
        "computing_percent": 29,
    }


def test_what_fails_has_taken_its_time_and_nothing_is_no_share() -> None:
    assert TimeSpent().counters() == {"computing_percent": 0}
    times = iter([0.0, 1.0, 3.0])
    spent = TimeSpent(lambda: next(times))
    try:
        with spent.on(COMPUTING):
            raise ValueError
    except ValueError:
        pass
    assert spent.seconds() == {COMPUTING: 2.0}


def test_computing_beside_counts_first_until_it_ends() -> None:
    clock = iter([0.0, 1.0, 2.0, 9.0, 10.0, 11.0, 13.0])
    spent, times = TimeSpent(lambda: next(clock)), Times(2.0)
    with spent.on(REST):  # from 1
        spent.begin_beside(COMPUTING, times.ended)  # at 2
        times.ended_s = 5.0
        spent.end_beside(times.ended)  # noticed at 9
    # at 10
    assert spent.seconds() == {REST: 1.0 + 4.0 + 1.0, COMPUTING: 3.0}
    times.ended_s = None  # as of one that was let go, and never began
    with spent.on(WAITING):  # from 11 to 13
        pass
    assert spent.seconds()[WAITING] == 2.0 and spent.seconds()[COMPUTING] == 3.0


def test_what_has_begun_since_is_not_ended() -> None:
    times = iter([0.0, 1.0, 2.0, 4.0, 5.0, 7.0])
    spent = TimeSpent(lambda: next(times))

    def first() -> float | None:
        return None

    def second() -> float | None:
        return None

    with spent.on(REST):  # from 1
        spent.begin_beside(COMPUTING, first)  # at 2
        spent.begin_beside(COMPUTING, second)  # at 4
        spent.end_beside(first)  # at 5: it is the second's now
    # at 7
    assert spent.seconds() == {REST: 1.0, COMPUTING: 5.0}
