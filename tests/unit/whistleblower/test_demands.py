"""Attack 33: a solver that hides states that it has committed to must show the leaves that could not be
fetched, or loses the claim."""

from __future__ import annotations

from itertools import count
from random import Random
from typing import Any

import pytest

from assay.compute.node_calls import Home
from assay.compute.orders import WorkerConfig
from assay.compute.pool import Pool
from assay.compute.process import ProcessWorker
from assay.node.checkpoints import read_checkpoints
from assay.node.orders import FindGap, JobSpec, WantedLeaves
from assay.node.slot_index import MAX_INDEX_BYTES, decode_index
from assay.protocol.demands import StateLeaf
from assay.protocol.errors import Retry
from assay.protocol.types import ClaimView, JobId, Kind, Phase, Role
from drills.solvers import HidingSolver
from tests.fakes.jobs import RESOURCE_LIMITS
from tests.fakes.market_day import MarketDay
from tests.fakes.port import Killed


def crew(day: MarketDay, job_id: JobId) -> None:
    """Two solvers that publish nothing, and two honest verifiers, which recompute."""
    for name in ("ann", "bob"):
        day.solver(name, blocks=day.blocks(withholds=True))
    day.verifiers()


def test_attack_33_who_shows_nothing_on_demand_is_convicted_and_no_verifier_is(
    day: MarketDay,
) -> None:
    job_id = day.post(rounds=1)
    for name in ("ann", "bob"):
        day.solver(name, HidingSolver, blocks=day.blocks(withholds=True))
    day.verifiers()
    whistle = day.whistleblower("wendy", demand=True)
    supply = day.market_state.supply
    assert day.run(lambda: Phase.CONVICTED in day.phases(job_id)), [s.status for s in day.services.values()]
    assert day.named("fault-planted"), "the fault was planted"
    assert day.named("demanded") and not day.named("supplied")
    fallen = next(c for c in day.market_state.claims.values() if c.status.phase == Phase.CONVICTED)
    assert day.market_state.active[fallen.claim.claimant, Role.SOLVER] == 1_900
    assert all(day.market_state.active[day.address(f"v{i}"), Role.VERIFIER] == 1_000 for i in range(2))
    assert not day.market_state.games, "no game was needed, and nothing was computed again"
    assert not whistle.findings
    assert day.market_state.supply == supply


def test_attack_33_an_unreachable_honest_solver_answers_demands_and_is_paid(
    day: MarketDay,
) -> None:
    job_id = day.post(rounds=1)
    crew(day, job_id)
    day.whistleblower("wendy", demand=True)
    assert day.run(day.closed(job_id)), [s.status for s in day.services.values()]
    demands = list(day.market_state.demands.values())
    assert demands and all(d.outcome == "supplied" for d in demands)
    assert len(demands) == len({d.claim_id for d in demands}), "one demand for each claim"
    assert Phase.CONVICTED not in day.phases(job_id)
    bond = day.market_state.jobs[job_id].view.terms.challenge_bond
    assert day.market_state.free[day.address("wendy")] == 10_000 - len(demands) * bond


def test_attack_33_a_solver_that_has_lost_its_states_computes_them_again(day: MarketDay) -> None:
    job_id = day.post(rounds=1)
    crew(day, job_id)
    day.whistleblower("wendy", demand=True)

    def demanded() -> bool:
        return bool(day.market_state.demands)

    assert day.run(demanded)
    for cid in list(day.network.withheld):
        del day.network.blocks[cid]  # the solvers' disks are gone
    assert day.run(lambda: all(d.outcome for d in day.market_state.demands.values()))
    assert {d.outcome for d in day.market_state.demands.values()} == {"supplied"}


def test_without_the_option_nobody_demands_anything(day: MarketDay) -> None:
    job_id = day.post(rounds=1)
    crew(day, job_id)
    day.whistleblower("wendy")
    assert day.run(day.closed(job_id))
    assert not day.market_state.demands


def published_claim(day: MarketDay) -> ClaimView:
    """A task that ann has committed, with all of its states published."""
    job_id = day.post(rounds=1)
    day.solver("ann")

    def mine() -> list[ClaimView]:
        views = day.markets["ann"].claims(job_id)
        return [v for v in views if v.claim.kind == Kind.TASK and v.claim.claimant == day.address("ann")]

    assert day.run(lambda: bool(mine()))
    return mine()[0]


def tear(day: MarketDay, view: ClaimView, end: int, slot: int, *spans: range) -> None:
    """The fault: these bytes of a slot of the state at a segment's end are served to nobody."""
    index = read_checkpoints(day.blocks(), view.claim.manifest, view.roots)[end].cid
    cid = decode_index(day.blocks().read_file(index, MAX_INDEX_BYTES), 3)[slot].cid
    day.network.torn[cid] = list(spans)
    with pytest.raises(Retry):
        day.blocks().read_file(cid, 1 << 20)


def test_attack_33_the_leaf_that_could_not_be_fetched_is_the_one_that_is_demanded(day: MarketDay) -> None:
    view = published_claim(day)
    tear(day, view, 2, 1, range(32))  # the momentum: the only leaf of slot 1
    day.services.clear()
    day.whistleblower("wendy", demand=True)
    assert day.run(lambda: bool(day.market_state.demands))
    (made,) = day.market_state.demands.values()
    assert (made.claim_id, made.segment_end, made.places) == (view.claim_id, 2, (StateLeaf(1, 0),))
    (told,) = day.named("demanded")
    assert (told["segment_end"], told["places"]) == (2, "1:0")
    assert day.run(lambda: bool(day.named("collected")))
    assert day.market_state.claims[view.claim_id].status.phase == Phase.CONVICTED


@pytest.mark.long
def test_attack_33_a_worker_of_its_own_process_finds_the_gap(day: MarketDay) -> None:
    view = published_claim(day)
    tear(day, view, 2, 1, range(32))
    market, job_id = day.join("wendy"), view.claim.job_id
    spec = JobSpec(job_id, market.job(job_id).terms, RESOURCE_LIMITS)
    config = WorkerConfig(threads=1, me=market.me)
    with Pool([ProcessWorker(config, Home(market, day.blocks()))]) as pool:
        found = pool.submit(FindGap(spec, "test", view)).result(60)
    assert found == WantedLeaves(2, (StateLeaf(1, 0),))


@pytest.mark.parametrize("mined", [False, True])
def test_attack_33_48_after_a_restart_the_same_is_demanded_whatever_can_be_fetched(
    day: MarketDay, mined: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = published_claim(day)
    tear(day, view, 2, 1, range(32))
    day.services.clear()
    day.whistleblower("wendy", demand=True)
    market = day.markets["wendy"]
    meant: list[tuple[Any, ...]] = []
    send = market.demand

    def demand(*arguments: Any) -> int:
        meant.append(arguments)
        if len(meant) > 1:
            return send(*arguments)
        if mined:
            send(*arguments)
        raise Killed("demand")

    monkeypatch.setattr(market, "demand", demand)
    with pytest.raises(Killed):
        day.run(lambda: bool(day.market_state.demands))
    day.network.torn.clear()
    tear(day, view, 3, 0, range(32))  # what a fresh look would choose
    day.whistleblower("wendy", demand=True)
    assert day.run(lambda: bool(day.named("collected")))
    assert len(meant) == (1 if mined else 2) and all(arguments == meant[0] for arguments in meant)
    (made,) = day.market_state.demands.values()
    assert (made.segment_end, made.places) == (2, (StateLeaf(1, 0),))


def test_attack_33_who_could_fetch_nothing_demands_leaves_that_nobody_can_foresee(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds = count()
    monkeypatch.setattr("assay.node.orders.SystemRandom", lambda: Random(next(seeds)))
    day.post(rounds=1)
    for name in ("ann", "bob"):
        day.solver(name, HidingSolver, blocks=day.blocks(withholds=True))
    for i in range(4):
        day.whistleblower(f"w{i}", demand=True)
    assert day.run(lambda: len(day.market_state.demands) >= 8)
    made = list(day.market_state.demands.values())
    assert day.named("fault-planted"), "the fault was planted"
    assert all(1 <= len(d.places) <= 4 and len(set(d.places)) == len(d.places) for d in made)
    assert {place for d in made for place in d.places} == {StateLeaf(slot, 0) for slot in range(3)}
    assert len({d.segment_end for d in made}) > 1 and len({d.places for d in made}) > 1


def test_what_is_published_after_all_is_not_demanded(day: MarketDay) -> None:
    view = published_claim(day)
    tear(day, view, 2, 1, range(32))
    day.services.clear()
    wendy = day.whistleblower("wendy", demand=True)
    wendy._unpublished.add(view.claim_id)  # as it found a moment ago
    day.network.torn.clear()
    assert day.run(lambda: bool(day.named("audited")))
    assert not day.market_state.demands and not wendy.findings


def test_attack_33_a_malformed_state_file_counts_as_withheld_and_stops_nobody(
    day: MarketDay,
) -> None:
    view = published_claim(day)
    checkpoints = read_checkpoints(day.blocks(), view.claim.manifest, view.roots)
    day.network.malformed = {checkpoint.cid for checkpoint in checkpoints[1:]}  # the fault
    day.services.clear()
    wendy = day.whistleblower("wendy")
    assert day.run(lambda: bool(day.named("audited"))), wendy.status
    assert not wendy.findings and not wendy.status.questions
    day.whistleblower("walt", demand=True)
    assert day.run(lambda: bool(day.market_state.demands))
