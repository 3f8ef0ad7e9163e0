"""What `make attacks` tells of money is what the events say, and adds up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.adversaries.ledger import Watcher, money_of
from tests.fakes.market_day import MarketDay

CHEAT, FINDER = "0x" + "aa" * 20, "0x" + "bb" * 20
NAMES = {CHEAT: "cheat", FINDER: "finder"}


def key(account: str) -> bytes:
    return bytes.fromhex(account[2:]).rjust(32, b"\0")


def transfer(source: int, source_key: bytes, target: int, target_key: bytes, amount: int) -> tuple[str, dict]:
    names = {"from": source, "fromKey": source_key, "to": target, "toKey": target_key, "amount": amount}
    return "Transfer", names


NOBODY = bytes(32)
CONVICTION = [
    ("Deposited", {"payer": CHEAT, "account": CHEAT, "amount": 1_000}),
    transfer(0, key(CHEAT), 1, NOBODY, 800),
    ("Staked", {"account": CHEAT, "role": 0, "amount": 800}),
    transfer(0, key(FINDER), 4, NOBODY, 40),
    ("Slashed", {"account": CHEAT, "role": 0, "asked": 100, "taken": 100}),
    ("Burnt", {"from": 1, "fromKey": NOBODY, "amount": 50}),
    ("Paid", {"from": 1, "fromKey": NOBODY, "to": [FINDER], "first": 30, "rest": 0}),
    transfer(1, NOBODY, 5, NOBODY, 20),
    transfer(4, NOBODY, 0, key(FINDER), 40),
]


def test_a_conviction_is_told_as_it_was() -> None:
    found = money_of(CONVICTION, NAMES)
    assert found == {"change": {"cheat": -100, "finder": 30}, "burnt": 50, "held": 20, "adds_up": True}


@pytest.mark.parametrize("missing", range(4, len(CONVICTION) - 1))
def test_what_is_left_out_does_not_add_up(missing: int) -> None:
    assert not money_of(CONVICTION[:missing] + CONVICTION[missing + 1 :], NAMES)["adds_up"]


def test_a_bond_is_held_until_it_is_paid_back() -> None:
    found = money_of(CONVICTION[:4], NAMES)
    assert found["change"] == {"finder": -40} and found["held"] == 40 and found["adds_up"]


def test_the_plugin_writes_what_a_day_has_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.fakes.market import MarketState

    for kind, name in ((MarketDay, "__init__"), (MarketState, "mint")):
        monkeypatch.setattr(kind, name, getattr(kind, name))  # put back what `watch` replaces
    watcher = Watcher(tmp_path / "ledger")
    watcher.watch()
    day = MarketDay(tmp_path)
    day.join("ann", solver=2_000)
    day.post(rounds=1)

    class Item:
        nodeid = "a test"

    watcher.pytest_runtest_teardown(Item())  # type: ignore[arg-type]
    report = pytest.TestReport("a test", ("", 0, ""), {}, "passed", None, "teardown")
    watcher.pytest_runtest_logreport(report)
    line = json.loads((tmp_path / "ledger").read_text())
    (money,) = line["money"]
    assert (
        money["adds_up"]
        and list(money["change"]) == ["client"]
        and money["held"] == -money["change"]["client"]
    )
