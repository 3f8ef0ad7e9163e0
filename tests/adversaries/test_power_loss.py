"""Power cut at any write: nothing is sent or committed twice, no vote is lost, nothing is lost in silence."""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from assay.disk import record
from assay.protocol.types import Phase
from tests.adversaries import power_loss
from tests.adversaries.power_loss import MODES, Entry
from tests.fakes.market_day import MarketDay
from tests.fakes.port import Killed
from tests.fakes.power import Power
from tests.marked import long

STEP = int(os.environ.get("STEP", "23"))
"""The power is cut after every so many of the calls of a sending node."""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[Entry]:
    return power_loss.record(tmp_path_factory.mktemp("recorded"))


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="assay")  # as it was again after each test


@pytest.mark.parametrize("mode", MODES)
def test_attack_48_power_lost_at_any_write_of_the_journal_sends_once(
    written: list[Entry], mode: str, tmp_path: Path
) -> None:
    assert len(written) > 200 and sum(entry.what == "sync" for entry in written) > 20
    tried = list(power_loss.cuts(written, mode, STEP, 1, tmp_path / "left"))
    assert len(tried) > len(written) // STEP
    assert not [(point, fault) for point, fault in tried if fault]


def test_a_journal_that_synced_nothing_would_send_twice(written: list[Entry], tmp_path: Path) -> None:
    """So the cuts do lose what is not synced."""
    careless = [entry for entry in written if not (entry.what == "sync" and ".db" in entry.name)]
    assert len(careless) < len(written)
    tried = power_loss.cuts(careless, "strict", STEP, 1, tmp_path / "left")
    assert [fault for _, fault in tried if fault]


def test_what_is_left_is_what_was_synced() -> None:
    def entry(what: str, name: str, at: int = 0, data: bytes = b"") -> Entry:
        return Entry(what, name, at, data)

    calls = [entry("create", "a"), entry("write", "a", 0, b"one"), entry("sync", "a")]
    assert power_loss.left_after(calls, "strict", random.Random(1)) == {}
    calls += [entry("syncdir", "."), entry("write", "a", 3, b"two"), entry("rename", "a", 0, b"b")]
    assert power_loss.left_after(calls, "strict", random.Random(1)) == {"a": b"one"}
    assert power_loss.left_after(calls, "late", random.Random(1)) == {"b": b"onetwo"}
    calls += [entry("syncdir", "."), entry("unlink", "b")]
    assert power_loss.left_after(calls, "strict", random.Random(1)) == {"b": b"one"}


def ends_well(day: MarketDay) -> None:
    (job_id,) = day.market_state.jobs
    assert day.run(day.closed(job_id)), [s.status for s in day.services.values()]
    assert day.phases(job_id) == [Phase.SETTLED] * 2
    assert day.market_state.burnt == 0 and not day.market_state.games
    for market in day.markets.values():
        assert len(market.sent) == len(set(market.sent))


def cut(day: MarketDay, who: str, power: Power, monkeypatch: pytest.MonkeyPatch) -> bool:
    """A market day until it ends or the power of one node is cut; whether it was."""

    def powered(tick: Callable[[], None]) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(record, "os", power)
            tick()

    day.post(rounds=1, shards=1, verifiers=1)
    (job_id,) = day.market_state.jobs
    for name in ("ann", "v0"):
        service = day.solver(name) if name == "ann" else day.verifier(name)
        if name == who:
            service.tick = partial(powered, service.tick)
    try:
        day.run(day.closed(job_id))
    except Killed:
        return True
    return False


def calls_of(who: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    (folder / who).mkdir()
    power = Power(folder / who)
    assert not cut(MarketDay(folder), who, power, monkeypatch)
    return power.calls


@pytest.mark.parametrize(("who", "files", "writes", "locks"), [("ann", 5, 5, 0), ("v0", 4, 7, 3)])
def test_as_many_calls_are_cut_as_there_are(
    who: str, files: int, writes: int, locks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file: open, its writes, sync, rename, open folder, sync. A verifier writes the state that its vote
    is defended from, its mark, which is empty, where its replay ended, and the ballot: a state has three
    slots, a write each. It opens the folder of marks to lock it."""
    assert calls_of(who, tmp_path, monkeypatch) == 5 * files + writes + locks


CUT = [
    *(("ann", n) if n % 4 == 0 else long(("ann", n)) for n in range(0, 30, 2)),
    *(("v0", n) if n % 4 == 0 else long(("v0", n)) for n in range(30)),
]


@pytest.mark.parametrize("who_at", CUT)
def test_attack_48_power_lost_at_any_write_of_a_role_loses_nothing(
    who_at: tuple[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    who, at = who_at
    (tmp_path / who).mkdir()
    day, power = MarketDay(tmp_path), Power(tmp_path / who, at)
    assert cut(day, who, power, monkeypatch), "the power was cut"
    power.lose()
    if who == "ann":
        day.solver("ann")
    else:
        day.verifier("v0")
    ends_well(day)
    assert not list(tmp_path.rglob("*.damaged"))
