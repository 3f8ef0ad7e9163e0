"""A reader that resumes has the events of a reader from the beginning, and gets none twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.chain.eth import events
from assay.chain.eth.event_reader import EventReader
from assay.chain.eth.events import Event, EventFollower
from tests.unit.chain.eth.fake_node import FakeNode
from tests.unit.chain.eth.test_events import follow, log

WANTED = (7).to_bytes(32, "big").hex()


def transaction(number: int, *games: int) -> list[dict]:
    return [{**log(game), "transactionHash": f"0x{number + 2**200:064x}"} for game in games]


def mine(node: FakeNode, *transactions: list[dict]) -> None:
    """A block of these transactions' logs: the node names one transaction for all that it is handed."""
    block = node.mine([each for one in transactions for each in one])
    hashes = [each["transactionHash"] for one in transactions for each in one]
    for each, tx_hash in zip(block.logs, hashes, strict=True):
        each["transactionHash"] = tx_hash


def games(transactions: list[list[Event]]) -> list[list[int]]:
    return [[event.arguments["game"] for event in group] for group in transactions]


def heeds(row: str) -> bool:
    return WANTED in row


def test_a_transaction_comes_whole_if_one_log_of_it_is_heeded(tmp_path: Path) -> None:
    node = FakeNode()
    mine(node, transaction(1, 1, 2), transaction(2, 3, 7, 4), transaction(3, 5))
    mine(node, transaction(4, 6))
    mine(node, transaction(5, 7), transaction(6, 8))
    follower = follow(node, tmp_path)
    follower.poll()
    reader = EventReader(follower, heeds)
    first = reader.news()
    assert first.stays is None and games(first.transactions) == [[3, 7, 4], [7]]
    assert reader.news().transactions == []
    mine(node, transaction(7, 7, 9))
    follower.poll()
    assert games(reader.news().transactions) == [[7, 9]]


def test_what_was_taken_back_is_told_to_who_has_read_it(tmp_path: Path) -> None:
    node = FakeNode()
    for number in range(5):
        mine(node, transaction(number, 7, number))
    follower = follow(node, tmp_path)
    follower.poll()
    reader = EventReader(follower, heeds)
    reader.news()
    node.reorganise(2)
    mine(node, transaction(9, 7, 90))
    follower.poll()
    node.reorganise(1)
    mine(node, transaction(10, 7, 100))
    mine(node, transaction(11, 7, 110))
    follower.poll()
    late = EventReader(follower, heeds).news()
    news = reader.news()
    assert news.stays == 3, "the lower of two forks"
    assert games(news.transactions) == [[7, 100], [7, 110]]
    assert late.stays is None and games(late.transactions)[-2:] == [[7, 100], [7, 110]]
    follower.start_over()
    follower.poll()
    again = reader.news()
    assert again.stays == -1 and again.transactions == late.transactions


def rows_read(follower: EventFollower, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    read = [0]
    rows = follower._db.rows

    def counted(*arguments: Any) -> Iterator[Any]:
        for row in rows(*arguments):
            read[0] += arguments[0] == "logs"
            yield row

    monkeypatch.setattr(follower._db, "rows", counted)
    return read


def test_a_look_reads_what_is_new_and_parses_what_is_heeded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = FakeNode()
    for number in range(300):
        mine(node, transaction(number, 7 if number % 100 == 0 else 1000 + number))
    follower = follow(node, tmp_path)
    follower.poll()
    parsed: list[bytes] = []
    loads = events.bounded_json.loads
    monkeypatch.setattr(events.bounded_json, "loads", lambda row: parsed.append(row) or loads(row))
    reader = EventReader(follower, heeds)
    assert len(reader.news().transactions) == len(parsed) == 3
    read = rows_read(follower, monkeypatch)
    mine(node, transaction(400, 7))
    follower.poll()
    read[0] = 0
    assert len(reader.news().transactions) == 1 and read[0] == 1


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("mine"), st.lists(st.integers(0, 9), max_size=4)),
            st.tuples(st.just("lose"), st.integers(1, 6)),
            st.tuples(st.just("read"), st.just(0)),
        ),
        max_size=24,
    )
)
def test_all_that_was_told_is_what_is_there(
    tmp_path_factory: pytest.TempPathFactory, moves: list[tuple]
) -> None:
    node = FakeNode()
    follower = follow(node, tmp_path_factory.mktemp("reader"))
    reader, had, number = EventReader(follower, heeds), list[list[Event]](), 0
    for what, much in [*moves, ("read", 0)]:
        if what == "mine":
            number += 1
            mine(node, *(transaction(100 * number + i, game, 20 + i) for i, game in enumerate(much)))
        elif what == "lose":
            node.reorganise(min(much, len(node.blocks) - 1) or 0) if len(node.blocks) > 1 else None
        else:
            follower.poll()
            news = reader.news()
            if news.stays is not None:
                had = [group for group in had if group[0].block_number <= news.stays]
            had += news.transactions
            assert had == list(follower.transactions(heeds))
    follower.close()
