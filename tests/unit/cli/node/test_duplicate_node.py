"""Two homes with one account: the second node refuses, with the way to move an account."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from eth_account import Account

from assay.chain.eth.journal import Call, Journal
from assay.chain.eth.sender import Sender
from assay.cli.node.duplicate_node import DuplicateNode, Taken
from assay.node.obligations import obligations_of
from assay.protocol.types import Address, Role
from tests.fakes.market_day import MarketDay
from tests.unit.chain.eth.fake_node import FakeNode

ACCOUNT = Account.from_key(b"\x01" * 32)
OTHER = Account.from_key(b"\x02" * 32)


class Home:
    """A home of Ann's account: its journal, and the market as it sees it."""

    def __init__(self, day: MarketDay, node: FakeNode, folder: Path) -> None:
        self.journal = Journal(folder / "journal.db")
        self.market: Any = day.markets["ann"]
        self.sender = Sender(node, ACCOUNT, self.journal)

    def taken(self) -> Taken:
        self.market.sender = self.sender
        return Taken(self.market)

    def announce(self, url: str) -> None:
        """As a node does at its start."""
        self.sender.send(f"cli/endpoint/{url}/0a", Call("0x" + "11" * 20, url.encode(), "Stakes.setEndpoint"))
        self.market.set_endpoint(f"announce {url}", url)


@pytest.fixture
def day(tmp_path: Path) -> MarketDay:
    day = MarketDay(tmp_path / "day")
    day.post()
    day.solver("ann")
    return day


@pytest.fixture
def homes(day: MarketDay, tmp_path: Path) -> tuple[Home, Home]:
    node = FakeNode()
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    return Home(day, node, tmp_path / "here"), Home(day, node, tmp_path / "there")


def test_w10_the_second_home_of_an_account_refuses(homes: tuple[Home, Home]) -> None:
    here, there = homes
    here.taken().begin(False)
    here.announce("http://10.0.0.1:4001")
    with pytest.raises(DuplicateNode) as refused:
        there.taken().begin(False)
    assert refused.value.code == "account-elsewhere" and "http://10.0.0.1:4001" in refused.value.message
    assert "copy its folder" in refused.value.hint and "--take-over" in refused.value.hint
    here.taken().begin(False)  # a restart is no other home
    here.announce("http://10.0.0.1:4002")
    here.taken().begin(False)


def test_w10_a_home_that_takes_over_is_the_accounts_from_then_on_and_the_other_is_told(
    homes: tuple[Home, Home],
) -> None:
    here, there = homes
    first = here.taken()
    first.begin(False)
    here.announce("http://10.0.0.1:4001")
    assert first.elsewhere() is None
    second = there.taken()
    second.begin(True)
    assert second.elsewhere() is None
    there.announce("http://10.0.0.2:4001")
    there.taken().begin(False)
    told = first.elsewhere()
    assert told is not None and "10.0.0.2" in told.message
    with pytest.raises(DuplicateNode):
        here.taken().begin(False)


def test_w10_one_that_announces_nothing_and_owes_what_is_not_in_its_journal_refuses(
    day: MarketDay, homes: tuple[Home, Home]
) -> None:
    here, there = homes
    here.taken().begin(False)
    there.taken().begin(False)
    market, me = day.markets["ann"], day.address("ann")
    assert day.run(lambda: bool(obligations_of(market, me, Role.SOLVER)))
    here.sender.send("take", Call("0x" + "11" * 20, b"take", "Tasks.takeShard"))
    fresh = Home(day, here.sender.rpc, _folder(day))  # type: ignore[arg-type]
    with pytest.raises(DuplicateNode, match="journal lacks transactions"):
        fresh.taken().begin(False)
    here.taken().begin(False)
    fresh.taken().begin(True)
    fresh.taken().begin(False)


def _folder(day: MarketDay) -> Path:
    folder = day.folder / "fresh"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def test_an_account_that_a_wallet_has_used_and_that_owes_nothing_may_begin(
    homes: tuple[Home, Home],
) -> None:
    here, _ = homes
    node: Any = here.sender.rpc
    node.foreign(ACCOUNT.address)
    here.taken().begin(False)
    assert Address(here.sender.address) != OTHER.address
