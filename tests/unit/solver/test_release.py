"""Letting a shard go costs what `cost_of` says, at every moment of a job, by the contracts' twin."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from assay.disk.record import DamagedRecord
from assay.protocol.errors import Retry
from assay.protocol.game_state import GameView
from assay.protocol.types import ZERO_ADDRESS, JobId, Kind, Phase, Seconds
from assay.solver import policy
from assay.solver.release import RELEASED_FILE, Cost, Missed, Released, cost_of
from assay.solver.service import SolverService
from drills.orders import WeightPlan
from drills.solvers import FaultySolver
from tests.fakes.jobs import account
from tests.fakes.market_day import MarketDay
from tests.unit.solver.test_solver_policy import ME, OTHER, observation

PENALTY = 7


def cost_now(day: MarketDay, job_id: JobId, name: str) -> tuple[int, Cost]:
    """A shard that somebody holds, and what is said of it."""
    market = day.markets[name]
    shard = [holder.solver for holder in day.market_state.jobs[job_id].holders].index(account(name))
    seen = market.claims(job_id), market.games(job_id), market.demands(job_id)
    return shard, cost_of(market.job(job_id), shard, market.me, *seen, day.market_state.time)


def burnt_by_release(day: MarketDay, job_id: JobId, name: str, shard: int) -> int:
    """The actual cost of a release, which is tried on the market and undone."""
    rules, block, before = day.market_state.rules, day.market_state.block, day.market_state.burnt
    day.markets[name].release(f"try/{day.market_state.time}", job_id, shard)
    cost = day.market_state.burnt - before
    day.market_state.rules, day.market_state.block = rules, block
    return cost


def followed(day: MarketDay, job_id: JobId, over: Callable[[], bool]) -> set[str]:
    """Play the market, and at every moment compare for every holder; the reasons that were given."""
    seen: set[str] = set()

    def compared() -> bool:
        for name in ("ann", "bob"):
            if account(name) in [holder.solver for holder in day.market_state.jobs[job_id].holders]:
                shard, cost = cost_now(day, job_id, name)
                assert burnt_by_release(day, job_id, name, shard) == cost.penalty, cost
                assert cost.penalty + cost.freed == PENALTY
                seen.add("owed" if cost.penalty else re.sub(r"\d+", "N", cost.why.split(":")[0]))
        return over()

    assert day.run(compared), day.events[-5:]
    return seen


def staffed(day: MarketDay) -> None:
    day.verifiers()
    day.solver("bob")


def test_at_every_moment_of_a_job_it_costs_what_is_said(day: MarketDay) -> None:
    job_id = day.post(max_unsettled=1)
    day.solver("ann")
    staffed(day)
    seen = followed(day, job_id, day.closed(job_id))
    assert {"owed", "its task of round N is committed"} <= seen, seen
    assert "no task is owed before round N is settled" in seen


def test_while_a_claim_is_in_dispute_it_costs_nothing(day: MarketDay) -> None:
    job_id = day.post()
    day.solver("ann", partial(FaultySolver, plan=WeightPlan(0, 3, 0, 5)))
    staffed(day)
    day.whistleblower("wendy")
    assert day.run(lambda: len(day.named("took")) == 2)
    del day.services["bob"]  # his task is owed from now on
    seen = followed(day, job_id, lambda: Phase.CONVICTED in day.phases(job_id))
    assert "while a claim of the job is in dispute nothing is owed" in seen


def test_a_dispute_excuses_for_eighteen_moves_and_no_longer() -> None:
    looks = observation((ME, OTHER))
    (seen,) = looks.jobs
    job, shown = seen.view, cast(GameView, SimpleNamespace(decided=False, game=SimpleNamespace(ballot=0)))
    end = job.progress.round_start + 18 * job.terms.move_time

    def penalty(now: int, *games: GameView) -> int:
        return cost_of(job, 0, ME, seen.claims, games, (), Seconds(now)).penalty

    assert penalty(end) == PENALTY
    assert penalty(end, shown) == 0
    assert penalty(end + 1, shown) == PENALTY
    over = cast(GameView, SimpleNamespace(decided=True, game=SimpleNamespace(ballot=0)))
    about_a_vote = cast(GameView, SimpleNamespace(decided=False, game=SimpleNamespace(ballot=3)))
    assert penalty(end, over, about_a_vote) == PENALTY


def test_a_running_node_learns_of_it_and_gives_back_what_it_owes_first(day: MarketDay) -> None:
    job_id = day.post()
    staffed(day)
    ann = day.solver("ann")
    assert day.run(lambda: bool(day.named("took")))
    released = Released(day.folder / "ann" / RELEASED_FILE)
    released.add(job_id, range(2))
    assert day.run(lambda: bool(day.named("released")))
    assert day.market_state.burnt == 0, "its task was committed first"
    for _ in range(5):
        ann.tick()
    assert len(day.named("took")) == 2, "bob's and ann's, and none again"
    assert "--again" in ann.why(job_id)
    released.forget(job_id)
    assert "--again" not in ann.why(job_id)
    assert day.run(lambda: len(day.named("took")) == 3)


def test_a_shard_is_not_given_back_by_a_look_of_the_round_before(day: MarketDay) -> None:
    """A decision may be based on a view that is seconds old, and a shard whose task is owed costs a
    penalty."""
    job_id = day.post(rounds=2)
    staffed(day)
    ann = day.solver("ann")
    assert day.run(lambda: bool(day.named("took")))
    (shard,) = (k for k in range(2) if ann.market.holder(job_id, k).solver == ann.market.me)
    since = ann.market.holder(job_id, shard).since
    early, late = (policy.Release(job_id, shard, since, why) for why in ("the one before is done", "it is"))
    release = ann.handlers()[policy.Release]
    assert not ann.actions.attempt("early", job_id, partial(release, early)) and "owed" in ann.status.error
    assert not day.named("released") and day.market_state.burnt == 0
    assert day.run(lambda: ann.market.current(job_id, Kind.TASK, 0, shard) is not None)
    assert ann.actions.attempt("late", job_id, partial(release, late))
    assert day.named("released") and day.market_state.burnt == 0


def test_the_record_outlasts_a_restart_and_a_damaged_one_is_said(tmp_path: Path) -> None:
    path = tmp_path / RELEASED_FILE
    first, second = JobId(bytes([1]) * 32), JobId(bytes([2]) * 32)
    assert Released(path).read() == frozenset()
    Released(path).add(first, [0, 3])
    Released(path).add(second, [1])
    assert Released(path).read() == {(first, 0), (first, 3), (second, 1)}
    Released(path).forget(first)
    assert Released(path).read() == {(second, 1)}
    path.write_bytes(path.read_bytes().replace(b"02", b"03", 1))
    with pytest.raises(DamagedRecord):
        Released(path).read()


class Slow(SolverService):
    """Never finds the time to train."""

    async def _train(self, action: policy.TrainSegment | policy.TrainAhead) -> None:
        raise Retry("busy", hint="wait")


@pytest.mark.parametrize("asleep", [False, True])
def test_a_job_whose_task_was_missed_awake_is_left_until_told(day: MarketDay, asleep: bool) -> None:
    job_id = day.post(rounds=2, shards=1)
    day.solver("ann", Slow)
    ann, job = day.services["ann"], day.market_state.jobs[job_id]
    assert day.run(lambda: len(day.named("took")) == 1)
    due = day.market_state.time + job.view.terms.task_time + 1
    if asleep:
        day.market_state.advance(due - day.market_state.time)
    day.run(lambda: day.market_state.time > due)
    day.market_state.run_out(day.market_state.time)
    day.run(lambda: len(day.named("took")) == 2, turns=60)
    assert isinstance(ann, SolverService)
    assert len(day.named("took")) == (2 if asleep else 1)
    assert len(ann.status.lost) == (0 if asleep else 1)
    if not asleep:
        assert ann.status.lost[0].startswith("task 0/0 of job")
        assert "lost by being too slow" in ann.why(job_id) and "--again" in ann.status.lost[0]


def test_a_node_and_a_command_that_record_shards_at_once_lose_none(tmp_path: Path) -> None:
    path, jobs = tmp_path / RELEASED_FILE, [JobId(bytes([n] * 32)) for n in range(4)]

    def add(job_id: JobId) -> None:
        for shard in range(25):
            Released(path).add(job_id, [shard])

    with ThreadPoolExecutor(len(jobs)) as pool:
        list(pool.map(add, jobs))
    assert len(Released(path).read()) == 100


def test_a_shard_that_was_given_back_while_nothing_was_owed_is_no_loss() -> None:
    """The pipeline is full, and the round's start is long ago."""
    seen = observation((ME, OTHER))
    (job,) = seen.jobs
    full = replace(job.view, progress=replace(job.view.progress, round=job.view.terms.max_unsettled))
    late = Seconds(full.progress.due_since + 2 * job.view.terms.task_time)
    before = replace(seen, now=Seconds(late - 1), jobs=(replace(job, view=full),))
    nobody = replace(job.holders[0], solver=ZERO_ADDRESS)
    after = replace(seen, now=late, jobs=(replace(job, view=full, holders=(nobody, *job.holders[1:])),))
    found = Missed()
    found._awake = {job.view.job_id: Seconds(0)}
    found._before = before
    assert found.look(after) == []
    given_back = replace(after.limits, release=frozenset({(job.view.job_id, 0)}))
    found._before = replace(before, jobs=(job,))
    told = replace(after, limits=given_back, jobs=(replace(job, holders=(nobody, *job.holders[1:])),))
    assert found.look(told) == []
    found._before = replace(before, jobs=(job,))
    assert [shard for _, shard in found.look(replace(told, limits=after.limits))] == [0]
