"""A ledger that is read on has every entry once, whatever fails on the way."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from assay.chain.contracts.ledger import Book
from assay.chain.eth.event_reader import News
from assay.chain.eth.events import Event
from assay.disk.database import DamagedDatabase
from assay.protocol.types import Address, StakeView, Wei

ME = Address("0x" + "11" * 20)
RESOLVED = {"type": "event", "name": "Resolved", "inputs": []}


def transaction(block: int, amount: int) -> list[Event]:
    """A settlement that pays this account."""
    claim_id = bytes([block]) * 32
    paid = {"from": 3, "fromKey": bytes(32), "to": [ME], "first": amount, "rest": 0}
    told: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("Tasks", "Settled", {"claimId": claim_id, "claimant": ME}),
        ("Vault", "Paid", paid),
    )
    return [
        Event(name, contract, arguments, block, "0x", place, f"0x{block}")
        for place, (contract, name, arguments) in enumerate(told)
    ]


@dataclass
class View:
    """A market whose events' file fails at the claims of some blocks."""

    block: int = 9
    failing: set[int] = field(default_factory=set)
    contracts: dict[str, Any] = field(default_factory=lambda: {"Challenges": SimpleNamespace(abi=[RESOLVED])})
    snapshot = staticmethod(nullcontext)

    def free(self, account: str) -> Wei:
        return Wei(6)

    def stake(self, account: str, role: Any) -> StakeView:
        return StakeView(Wei(0), Wei(0), Wei(0))

    def committed(self, claim_id: bytes) -> None:
        if claim_id[0] in self.failing:
            raise DamagedDatabase("a page is gone", hint="start again")

    def reader(self, heeded: Any) -> Any:
        untold = [[transaction(block, block)] for block in (1, 2, 3)]

        def news() -> News:
            told = [group for part in untold for group in part]
            untold.clear()
            return News(None, told)

        return SimpleNamespace(news=news)


def test_a_failure_while_the_news_is_read_loses_no_entry() -> None:
    view: Any = View(failing={2})
    book = Book(view, ME)
    with pytest.raises(DamagedDatabase):
        book.read()
    view.failing.clear()
    found = book.read()
    assert [entry.amount for entry in found.entries] == [1, 2, 3] and not found.gaps
    assert book.read() == found
