"""A solver keeps within its disk: fewer states, computed again when asked, and a wait when it is full."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from assay.app.units import parse_bytes
from assay.blocks.blockstore import BlockStore
from assay.cli.node.disk_budget import disk_budget
from assay.node.checkpoints import read_checkpoints
from assay.node.orders import WantedLeaves
from assay.protocol.demands import StateLeaf
from assay.protocol.errors import Stop
from assay.protocol.types import ClaimView, JobId, Kind, Phase, Seconds
from assay.solver.disk_budget import DiskBudget, DiskFull
from assay.whistleblower.service import ask
from tests.fakes.jobs import WIDTH
from tests.fakes.market_day import MarketDay

STATE = 8 * WIDTH + 4
SEGMENTS = 4


def tight(states: int, used: int = 0) -> DiskBudget:
    """Room for so many states of each of two unsettled tasks."""
    return DiskBudget(2 * states * STATE, lambda: used)


def task(day: MarketDay, job_id: JobId) -> ClaimView:
    return next(v for v in day.markets["client"].claims(job_id) if v.claim.kind == Kind.TASK)


def kept(day: MarketDay, view: ClaimView) -> list[bool]:
    states = read_checkpoints(day.blocks(), view.claim.manifest, view.roots)
    return [bool(checkpoint.cid) for checkpoint in states]


@pytest.mark.parametrize(
    ("limit", "segment_s", "stride"),
    [(10, 0, 1), (5, 0, 1), (4, 0, 2), (3, 0, 2), (2, 0, 4), (0, 0, 4), (2, 10, 2), (2, 20, 1), (10, 99, 1)],
)
def test_every_so_many_ends_are_kept(day: MarketDay, limit: int, segment_s: float, stride: int) -> None:
    job_id = day.post(rounds=1)
    terms = day.market_state.jobs[job_id].view.terms
    terms = replace(terms, move_time=Seconds(60))
    assert terms.segments == SEGMENTS and terms.max_unsettled == 2
    assert tight(limit).stride(terms, STATE, segment_s) == stride


def test_blocks_are_counted_again_once_a_quarter_of_the_room_is_given_away() -> None:
    used, counted = [600], list[int]()

    def count() -> int:
        counted.append(used[0])
        return used[0]

    budget = DiskBudget(1_000, count)
    for _ in range(5):
        budget.require(20)
    assert counted == [600], "100 of 400"
    used[0] = 985
    with pytest.raises(DiskFull, match="985 of 1,000 bytes"):
        budget.require(20)
    used[0] = 100
    budget.require(20)
    assert counted == [600, 985, 100], "whatever is refused is counted before"


@pytest.mark.parametrize(("states", "ends"), [(9, "11111"), (3, "10101"), (2, "10001")])
def test_a_job_is_carried_out_with_few_states_kept(day: MarketDay, states: int, ends: str) -> None:
    job_id = day.post(rounds=2, shards=1, samples=SEGMENTS)
    day.solver("ann", budget=tight(states))
    day.verifiers()
    wendy = day.whistleblower("wendy", demand=True)
    assert day.run(day.closed(job_id)), [s.status for s in day.services.values()]
    assert set(day.phases(job_id)) == {Phase.SETTLED}
    assert kept(day, task(day, job_id)) == [end == "1" for end in ends]
    assert not day.market_state.demands and not wendy.findings, "what is not published is not withheld"


def test_a_state_that_was_not_kept_is_supplied_when_it_is_demanded(day: MarketDay) -> None:
    job_id = day.post(rounds=1, shards=1)
    day.solver("ann", budget=tight(2))
    assert day.run(lambda: bool(day.named("committed")))
    view = task(day, job_id)
    assert kept(day, view) == [True, False, False, False, True]
    market = day.join("curious")
    ask(market, market.claim(view.claim_id), WantedLeaves(3, (StateLeaf(1, 0),)))
    assert day.run(lambda: all(d.outcome for d in day.market_state.demands.values()))
    assert [d.outcome for d in day.market_state.demands.values()] == ["supplied"]


def test_a_restart_trains_again_from_the_last_end_that_is_on_the_disk(day: MarketDay) -> None:
    job_id = day.post(rounds=1, shards=1)
    day.solver("ann", budget=tight(3))
    assert day.run(lambda: len(day.named("trained")) == 3)
    day.solver("ann", budget=tight(3))
    day.verifiers()
    assert day.run(day.closed(job_id))
    assert [e["segment"] for e in day.named("trained")] == [0, 1, 2, 0, 1, 2, 3]
    assert set(day.phases(job_id)) == {Phase.SETTLED}


def test_a_full_disk_makes_the_pipeline_wait(day: MarketDay) -> None:
    job_id = day.post(rounds=1, shards=1)
    used = [2 * 9 * STATE]
    ann = day.solver("ann", budget=DiskBudget(2 * 9 * STATE, lambda: used[0]))
    day.verifiers()
    assert not day.run(lambda: bool(day.named("trained")), turns=6)
    assert "disk-full" in {e.get("code") for e in day.named("retry")}
    assert "settled" in ann.status.error and "--disk" in ann.status.error
    used[0] = 0
    assert day.run(day.closed(job_id)) and not ann.status.error


def test_what_the_operator_gives_or_most_of_what_is_free(tmp_path: Path) -> None:
    store = BlockStore(tmp_path / "store")
    given = disk_budget(store, "2MB", 4)
    assert (given.limit_bytes, given.shards) == (2_000_000, 4)
    store.put(b"x" * 1000)
    given.require(1_999_000)
    with pytest.raises(DiskFull, match="1,000 of 2,000,000 bytes"):
        given.require(1_999_001)
    assert disk_budget(store, None, 1).limit_bytes > 1000
    assert parse_bytes("3kB") == 3000
    for wrong in ("2", "2 MiB", "-1GB", "1.5GB"):
        with pytest.raises(Stop, match="is not a size"):
            parse_bytes(wrong)
