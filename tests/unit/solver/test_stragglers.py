"""Rounds that are closed without a shard: a solver that stops, one that comes later, cheats about either."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from assay.client.following import follow
from assay.client.verifying import verify
from assay.node.artifacts import State
from assay.node.findings import WrongInput
from assay.node.states import StateProvider, open_state_provider
from assay.program.state import state_root
from assay.protocol.loops import FromClaim
from assay.protocol.types import JobId, Kind, Phase, Role
from drills.solvers import WrongInputSolver
from tests.fakes.jobs import RESOURCE_LIMITS, account
from tests.fakes.market_day import MarketDay

SHORT = {"min_shards": 1, "task_time": 120, "straggler_time": 140, "outer_time": 20, "max_unsettled": 4}
SHORT["solver_stake"] = 267  # 8/3 of what three more rounds may waste
SHORT |= {"vote_time": 15}


def staffed(day: MarketDay) -> None:
    day.verifiers()
    day.whistleblower("wendy")


def in_round(day: MarketDay, job_id: JobId, round_: int) -> bool:
    return day.market_state.jobs[job_id].view.progress.round >= round_


def shard_of(day: MarketDay, job_id: JobId, name: str) -> int:
    return [holder.solver for holder in day.market_state.jobs[job_id].holders].index(account(name))


def state_provider_of(day: MarketDay, job_id: JobId) -> StateProvider:
    market = day.markets["wendy"]
    return open_state_provider(market, day.blocks(), market.job(job_id), RESOURCE_LIMITS)


def test_a_round_closes_without_a_dead_solver_and_its_shard_goes_on_from_its_task(
    day: MarketDay, tmp_path: Path
) -> None:
    job_id = day.post(rounds=3, **SHORT)
    staffed(day)
    day.solver("ann")
    day.solver("bob")
    assert day.run(lambda: in_round(day, job_id, 1)), day.events[-5:]
    dead = shard_of(day, job_id, "bob")
    del day.services["bob"]
    assert day.run(lambda: in_round(day, job_id, 2)), day.events[-5:]
    assert day.market_state.burnt == 7, "the dead solver's penalty, and nothing else"
    shown = {(t.round, t.shard) for t in follow(day.markets["client"], job_id).tasks if t.missing}
    assert shown == {(1, dead)}
    day.solver("carol")
    assert day.run(day.closed(job_id)), [s.status for s in day.services.values()]
    assert day.phases(job_id).count(Phase.SETTLED) == 8, "five tasks and three outer steps"
    assert not day.market_state.games and day.market_state.burnt == 7
    assert all(not locked for locked in day.market_state.locked.values())

    claims = {(v.claim.round, v.claim.kind, v.claim.shard): v for v in day.markets["client"].claims(job_id)}
    state_provider = state_provider_of(day, job_id)
    assert state_provider.source_of(Kind.TASK, 2, dead, 1) == FromClaim((Kind.TASK, 0, dead), 1)
    before, last = (state_provider.output(Kind.OUTER, r, 0)[1] for r in (0, 1))
    own = state_provider.output(Kind.TASK, 0, dead)[1]
    assert claims[2, Kind.TASK, dead].claim.input_root == state_root([*last[:1], *own[1:]])
    summed = state_provider.input_state(Kind.OUTER, 1, 0)
    assert torch.equal(summed[2 + dead], before[0]), "a missing shard has not moved"

    day.fetch(job_id, tmp_path)
    found = verify(tmp_path)
    assert (found.tasks, found.missing) == (5, ((1, dead),))
    assert day.markets["client"].free(day.address("client")) == 10_000 - sum(
        claims[place].claim.price + (2 if place[1] == Kind.TASK else 0) for place in claims
    )


Honest = Callable[[Kind, int, int], State]


def missing_shards_moved(kind: Kind, round_: int, shard: int, honest: Honest) -> State:
    """An outer input in which a missing shard counts with something else than the base."""
    state = honest(kind, round_, shard)
    if kind == Kind.TASK:
        return state
    return [*state[:2], *(2 * x if torch.equal(x, state[0]) else x for x in state[2:])]


def last_shard_missing(kind: Kind, round_: int, shard: int, honest: Honest) -> State:
    """An outer input in which the last shard counts with the base, whether it is missing or not."""
    state = honest(kind, round_, shard)
    return state if kind == Kind.TASK else [*state[:-1], state[0].clone()]


def test_attack_08_a_wrong_base_for_a_missing_shard_is_convicted_in_one_move(day: MarketDay) -> None:
    job_id = day.post(rounds=1, **SHORT)
    staffed(day)
    day.solver("ann", partial(WrongInputSolver, patch=missing_shards_moved))
    assert day.run(lambda: Phase.CONVICTED in day.phases(job_id, Kind.OUTER)), day.events[-5:]
    assert day.named("fault-planted") and not day.market_state.games, "one move"
    (found,) = (e["finding"] for e in day.named("found"))
    assert found.startswith(WrongInput.__name__)
    assert day.market_state.active[account("ann"), Role.SOLVER] == 2_000 - SHORT["solver_stake"]


def test_attack_08_an_aggregate_that_skips_a_present_shard_is_convicted_in_one_move(
    day: MarketDay,
) -> None:
    job_id = day.post(rounds=1, **SHORT)
    staffed(day)
    for name in ("ann", "bob"):
        day.solver(name, partial(WrongInputSolver, patch=last_shard_missing))
    assert day.run(lambda: Phase.CONVICTED in day.phases(job_id, Kind.OUTER)), day.events[-5:]
    assert day.named("fault-planted") and not day.market_state.games, "one move"
    assert day.phases(job_id, Kind.TASK).count(Phase.ACCEPTED) == 2, "no shard was missing"
    assert day.named("found")[0]["finding"].startswith(WrongInput.__name__)


def test_attack_36_nobody_else_commits_the_outer_claim_while_it_is_reserved(day: MarketDay) -> None:
    job_id = day.post(rounds=2, **SHORT)
    staffed(day)
    day.solver("ann")
    day.solver("bob")
    assert day.run(day.closed(job_id))
    holders = {
        v.claim.shard: v.claim.claimant
        for v in day.markets["client"].claims(job_id)
        if v.claim.kind == Kind.TASK
    }
    outer = [v.claim for v in day.markets["client"].claims(job_id) if v.claim.kind == Kind.OUTER]
    assert [claim.claimant for claim in outer] == [holders[0], holders[1]], "each in turn"
    assert all(s.status.counters.get("reverted", 0) == 0 for s in day.services.values())
