"""Before a job is posted on a devnet, its verifiers can be drawn for it; elsewhere nothing is done."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assay.app.devnet_record import Devnet, NodeRecord, write_devnet
from assay.devnet import seats
from assay.devnet.seats import seat_verifiers
from assay.node.artifacts import publish_job
from tests.fakes.classes import class_id, conditions_of
from tests.fakes.jobs import tiny_files, tiny_terms
from tests.fakes.market_day import MarketDay

DEVNET = "http://127.0.0.1:1"


class Home:
    """A home's App whose accounts are a fake market's."""

    def __init__(self, folder: Path, day: MarketDay) -> None:
        self.settings, self.day = SimpleNamespace(home=folder, rpc_urls=[DEVNET]), day
        self.said: list[str] = []
        self.output = SimpleNamespace(say=self.said.append)

    def connect(self, name: str) -> Any:
        market = self.day.markets[name]
        return SimpleNamespace(writer=market, close=lambda: None, intent=lambda *parts: repr((name, parts)))

    def wait(self, seconds: float) -> None:
        self.day.market_state.advance(4)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    day = MarketDay(tmp_path / "day")
    day.join("client")
    for name in ("v0", "v1"):
        day.join(name, verifier=1_000)
    nodes = tuple(NodeRecord(name, "verifier", 0, "") for name in ("v0", "v1"))
    write_devnet(tmp_path, Devnet(DEVNET, os.getpid(), nodes))
    monkeypatch.setattr("assay.app.devnet_record.process_alive", lambda pid: True)
    monkeypatch.setattr(seats, "WAIT_S", 1.0)
    return Home(tmp_path, day)


def conditions(home: Home) -> Any:
    published = publish_job(home.day.blocks(), tiny_files(2))
    return conditions_of(tiny_terms(published, home.day.markets["client"].me))


def test_idle_verifiers_agree_and_count_before_it_returns(home: Home) -> None:
    wanted, client = conditions(home), home.day.markets["client"]
    chosen = client.class_id(wanted)
    seat_verifiers(home, client, wanted, home.wait)  # type: ignore[arg-type]
    assert client.class_weight(chosen) == 2_000
    assert all(client.subscription(home.day.markets[name].me) == chosen for name in ("v0", "v1"))
    assert len(home.said) == 1 and "waiting until the devnet's verifiers can be drawn" in home.said[0]
    seat_verifiers(home, client, wanted, home.wait)  # type: ignore[arg-type]
    assert len(home.said) == 1, "nothing is waited for the second time"


def test_verifiers_whose_class_has_an_open_job_are_left_there_and_that_is_said(home: Home) -> None:
    day, client = home.day, home.day.markets["client"]
    day.post(vote_time=40)
    before = {name: client.subscription(day.markets[name].me) for name in ("v0", "v1")}
    wanted = conditions(home)
    assert class_id(wanted) not in before.values()
    seat_verifiers(home, client, wanted, home.wait)  # type: ignore[arg-type]
    assert before == {name: client.subscription(day.markets[name].me) for name in ("v0", "v1")}
    assert home.said == [
        "WARNING: no verifier of the devnet can be drawn yet: the first tasks may stay unchecked"
    ]


def test_the_wait_is_bounded(home: Home) -> None:
    client = home.day.markets["client"]
    seat_verifiers(home, client, conditions(home), lambda seconds: None)  # type: ignore[arg-type]
    assert home.said[-1].startswith("WARNING: no verifier")


@pytest.mark.parametrize("elsewhere", ["no devnet", "another chain"])
def test_elsewhere_nothing_is_done(home: Home, elsewhere: str) -> None:
    if elsewhere == "no devnet":
        (home.settings.home / "devnet.json").unlink()
    else:
        home.settings.rpc_urls = ["http://127.0.0.1:2"]
    client, wanted = home.day.markets["client"], conditions(home)
    seat_verifiers(home, client, wanted, home.wait)  # type: ignore[arg-type]
    assert not home.said and client.class_id(wanted) not in client.classes()
