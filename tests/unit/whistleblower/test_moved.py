"""An account that moves to another machine between an announcement and its opening, with its key alone."""

from __future__ import annotations

from pathlib import Path

from assay.protocol.types import Phase
from tests.fakes.market_day import MarketDay
from tests.fakes.port import FakeMarket
from tests.unit.solver.test_convictions import WrongMachine


def test_w11_what_was_announced_there_is_opened_here_by_the_same_announcement(tmp_path: Path) -> None:
    day = MarketDay(tmp_path / "there")
    job_id = day.post(rounds=1, shards=1, task_time=100_000)
    day.solver("ann", WrongMachine)
    day.whistleblower("wendy")
    assert day.run(lambda: bool(day.market_state.announced))
    (first,) = day.market_state.announced
    assert not day.market_state.games
    day.folder = tmp_path / "here"  # another home: no journal, no record, no block of the first
    day.markets["wendy"] = FakeMarket(day.market_state, day.address("wendy"))
    day.whistleblower("wendy")
    seen: set[bytes] = set()

    def convicted() -> bool:
        seen.update(day.market_state.announced)  # until it is spent
        return Phase.CONVICTED in day.phases(job_id)

    assert day.run(convicted), day.phases(job_id)
    assert seen <= {first} and day.market_state.games, "nothing had to be announced anew"
