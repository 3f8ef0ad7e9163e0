"""What a test has cost whom: read from the market's own events or ledger after the test, for `make attacks`.

A pytest plugin (`-p tests.adversaries.ledger --ledger FILE`): for each test one JSON line with its name, its
outcome and, where it had a market, each account's change by what happened there (its free balance and stake
together; deposits and withdrawals leave it as it is), what was burnt, and what the vault holds for jobs,
bonds and compensation. The three always make zero, or the line says so.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

FREE, STAKE, UNBONDING, HELD = 0, 1, 2, (3, 4, 5)
Money = dict[str, Any]


def money_of(events: Iterable[tuple[str, Mapping[str, Any]]], names: Mapping[str, str]) -> Money:
    """The changes that a market's Vault and Stakes events tell; `names` by address, lower case."""
    change: Counter[str] = Counter()
    burnt = held = 0

    def account(key: bytes | str) -> str:
        address = (key if isinstance(key, str) else "0x" + key[-20:].hex()).lower()
        return names.get(address, address[:8])

    for name, a in events:
        if name == "Transfer":
            source, target, amount = a["from"], a["to"], a["amount"]
            if source == FREE and target != STAKE:
                change[account(a["fromKey"])] -= amount
            if target == FREE and source != UNBONDING:
                change[account(a["toKey"])] += amount
            held += amount * ((target in HELD) - (source in HELD))
        elif name == "Paid":
            paid = a["first"] + a["rest"] * (len(a["to"]) - 1) if a["to"] else 0
            for place, to in enumerate(a["to"]):
                change[account(to)] += a["rest"] if place else a["first"]
            if a["from"] == FREE:
                change[account(a["fromKey"])] -= paid
            held -= paid * (a["from"] in HELD)
        elif name == "Burnt":
            burnt += a["amount"]
            if a["from"] == FREE:
                change[account(a["fromKey"])] -= a["amount"]
            held -= a["amount"] * (a["from"] in HELD)
        elif name == "Slashed":
            change[account(a["account"])] -= a["taken"]
    return told({who: amount for who, amount in change.items() if amount}, burnt, held)


def told(change: dict[str, int], burnt: int, held: int) -> Money:
    return {
        "change": change,
        "burnt": burnt,
        "held": held,
        "adds_up": sum(change.values()) + burnt + held == 0,
    }


class Watcher:
    """Notes the markets that a test makes, and writes what became of their money."""

    def __init__(self, path: Path) -> None:
        self._path, self._days, self._views = path, [], []
        self._money: dict[str, list[Money]] = {}

    def watch(self) -> None:
        """From now on, whoever makes a market is noticed."""
        from assay.chain.contracts.view import ChainView
        from tests.fakes.market import MarketState
        from tests.fakes.market_day import MarketDay

        MarketState.mint = _counting(MarketState.mint)  # type: ignore[method-assign]
        for kind, kept in ((MarketDay, self._days), (ChainView, self._views)):
            kind.__init__ = _noting(kind.__init__, kept)  # type: ignore[method-assign]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        money = [_of_day(day) for day in self._days] + [_of_chain(view) for view in self._views[:1]]
        self._money[item.nodeid] = [each for each in money if each]
        self._days.clear()
        self._views.clear()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown" or report.outcome != "passed":
            line = {"test": report.nodeid, "outcome": report.outcome, "money": self._money.get(report.nodeid)}
            with self._path.open("a") as file:
                file.write(json.dumps(line) + "\n")


def _noting(make: Any, kept: list[Any]) -> Any:
    def made(self: Any, *arguments: Any, **named: Any) -> None:
        make(self, *arguments, **named)
        kept.append(self)

    return made


def _counting(mint: Any) -> Any:
    def minted(self: Any, account: str, amount: int) -> None:
        mint(self, account, amount)
        self.__dict__.setdefault("minted", Counter())[account] += amount

    return minted


def _of_day(day: Any) -> Money | None:
    """Of a market in this process: everything that an account has, beside what it came with."""
    from spec.ledger import Bucket

    ledger = day.market_state.rules.funds.ledger
    names = {market.me: name for name, market in day.markets.items()}
    change: Counter[str] = Counter()
    for owner, minted in getattr(day.market_state, "minted", {}).items():
        change[names.get(owner, owner[:8])] -= minted
    held = 0
    for (bucket, key), amount in ledger.entries.items():
        owner = key[0] if bucket in (Bucket.STAKE, Bucket.UNBONDING) else key
        if bucket in (Bucket.ESCROW, Bucket.BOND, Bucket.COMPENSATION):
            held += amount
        else:
            change[names.get(owner, owner[:8])] += amount
    return told({name: int(n) for name, n in change.items() if n}, int(ledger.burnt), int(held))


def _of_chain(view: Any) -> Money | None:
    """Of a deployed market: what its events say, if its chain is still there."""
    from assay.protocol.errors import AssayError

    try:
        found = [(e.name, e.arguments) for e in view.events() if e.contract in ("Vault", "Stakes")]
    except (AssayError, ValueError, OSError):
        return None
    return money_of(found, {}) if found else None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--ledger", type=Path, help="file to which each test's money is written")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--ledger")
    if path is not None:
        watcher = Watcher(path)
        watcher.watch()
        config.pluginmanager.register(watcher)
