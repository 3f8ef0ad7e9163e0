"""One honest whistleblower against cheats: convictions through the real player on both sides."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch

from program.fault import Fault, NodeFault, StateFault
from protocol.types import Kind, Phase, Role
from solver.adversary import FaultySolver, Plan, WrongInputSolver, omit_last_shard
from tests.fakes.jobs import account, inner_program
from tests.fakes.market_day import MarketDay
from verifier.adversary import ColludingVerifier, LazyVerifier
from whistleblower.policy import Mode

torch.set_num_threads(1)

NODES = len(inner_program().nodes)


@pytest.fixture
def day(tmp_path: Path) -> MarketDay:
    return MarketDay(tmp_path)


def conspiracy(day: MarketDay, plan: Plan) -> None:
    """A cheat on each shard's chair that may be drawn, and verifiers that all collude with them."""
    cheats = frozenset({account("ann"), account("bob")})
    for name in ("ann", "bob"):
        day.solver(name, partial(FaultySolver, plan=plan))
    for i in range(2):
        day.verifier(f"v{i}", partial(ColludingVerifier, accomplices=cheats))


@pytest.mark.parametrize(
    "fault",
    [
        NodeFault(step=3, node=NODES - 1, element=0),
        NodeFault(step=2, node=4, element=5),
        StateFault(step=1, slot=1, element=7),
        StateFault(step=7, slot=0, element=0),
    ],
    ids=["a wrong instruction", "a wrong input conversion", "a wrong state", "a wrong last state"],
)
def test_05_15_one_ulp_by_a_solver_with_all_verifiers_is_convicted(day: MarketDay, fault: Fault) -> None:
    job_id = day.post(rounds=1)
    conspiracy(day, Plan(0, 1, fault))
    whistle = day.whistleblower("wendy")
    supply = day.world.supply
    assert day.run(lambda: Phase.CONVICTED in day.phases(job_id)), [s.status for s in day.services.values()]
    game = next(p.view for p in day.world.games.values() if p.view.decided)
    assert game.challenger_won and game.reason in ("arithmetic", "output"), game.reason
    assert game.game.challenger == whistle.market.me
    cheat = game.game.defender
    assert day.world.active[cheat, Role.SOLVER] == 1_900
    assert day.world.supply == supply
    assert sum(1 for entry in day.world.log if entry[0] == "RevealTrace") >= 1


def test_after_a_conviction_the_job_goes_on_to_its_end_with_honest_work(day: MarketDay) -> None:
    job_id = day.post()
    cheats = frozenset({account("ann")})
    plan = Plan(0, 0, NodeFault(step=3, node=NODES - 1, element=0))
    day.solver("ann", partial(FaultySolver, plan=plan))
    for i in range(2):
        day.verifier(f"v{i}", partial(ColludingVerifier, accomplices=cheats))
    while day.markets["ann"].me not in (h.solver for h in day.world.jobs[job_id].holders):
        day.services["ann"].tick()
    taken = [h.solver for h in day.world.jobs[job_id].holders].index(account("ann"))
    ann = day.services["ann"]
    assert isinstance(ann, FaultySolver)
    ann.plan = Plan(0, taken, plan.fault)
    ann._shops.clear()
    day.solver("bob")
    day.whistleblower("wendy")
    assert day.run(lambda: Phase.CONVICTED in day.phases(job_id)), day.events[-5:]
    del day.services["ann"]
    day.solver("carol")
    assert day.run(day.closed(job_id), turns=600), [s.status for s in day.services.values()]
    phases = day.phases(job_id)
    assert phases.count(Phase.CONVICTED) == 1 and phases.count(Phase.SETTLED) == 6
    assert set(phases) <= {Phase.CONVICTED, Phase.SETTLED, Phase.VOID}
    assert all(not locked for locked in day.world.locked.values())


def test_09_a_lazy_verifier_loses_its_stake_whatever_becomes_of_the_claim(day: MarketDay) -> None:
    job_id = day.post(rounds=1, shards=1)
    day.solver("ann")
    day.verifier("lazy", LazyVerifier)
    day.verifier("vera")
    day.whistleblower("wendy")
    assert day.run(lambda: any(p.view.challenger_won for p in day.world.games.values())), day.events[-5:]
    game = next(p.view for p in day.world.games.values() if p.view.challenger_won)
    assert game.game.defender == account("lazy")
    assert day.world.active[account("lazy"), Role.VERIFIER] == 950
    assert day.world.active[account("vera"), Role.VERIFIER] == 1_000
    assert day.run(day.closed(job_id))
    assert Phase.CONVICTED not in day.phases(job_id)


def test_in_mode_advise_it_accuses_nobody(day: MarketDay) -> None:
    job_id = day.post(rounds=1)
    conspiracy(day, Plan(0, 1, NodeFault(step=3, node=NODES - 1, element=0)))
    day.whistleblower("wendy", Mode.ADVISE)
    assert day.run(lambda: bool(day.named("advice")))
    assert "bond" in day.named("advice")[0]["reason"]
    assert not day.world.games and not day.world.announced
    assert Phase.CONVICTED not in day.phases(job_id)


def test_a_challenge_beyond_the_budget_is_not_brought(day: MarketDay) -> None:
    day.post(rounds=1)
    conspiracy(day, Plan(0, 1, NodeFault(step=3, node=NODES - 1, element=0)))
    day.whistleblower("wendy", bonds=39)
    assert day.run(lambda: bool(day.named("advice")))
    assert "budget" in day.named("advice")[0]["reason"]
    assert not day.world.games


def test_an_honest_job_is_audited_and_nobody_is_accused(day: MarketDay) -> None:
    job_id = day.post(rounds=1)
    for name in ("ann", "bob"):
        day.solver(name)
    for i in range(2):
        day.verifier(f"v{i}")
    whistle = day.whistleblower("wendy")
    assert day.run(day.closed(job_id))
    assert not whistle.findings and not day.world.games
    audited = {e["claim"] for e in day.named("audited")}
    assert len(audited) == len(day.phases(job_id)) == 3
    assert [e.claim.kind for e in day.world.claims.values()].count(Kind.OUTER) == 1


def test_08_an_aggregate_that_omits_a_shard_is_convicted_in_one_move(day: MarketDay) -> None:
    job_id = day.post()
    for name in ("ann", "bob"):
        day.solver(name, partial(WrongInputSolver, patch=omit_last_shard))
    for i in range(2):
        day.verifier(f"v{i}")
    day.whistleblower("wendy")
    assert day.run(lambda: Phase.CONVICTED in day.phases(job_id, Kind.OUTER)), day.events[-5:]
    assert not day.world.games and Phase.CONVICTED not in day.phases(job_id, Kind.TASK)
    progress = day.world.jobs[job_id].view.progress
    assert (progress.round, progress.epoch) == (0, 1)


def test_19_a_sock_puppets_lost_challenge_does_not_clear_the_claim(day: MarketDay) -> None:
    from protocol import trees
    from tests.fakes.jobs import APPETITE
    from training.lineage import open_lineage

    job_id = day.post(rounds=1, shards=1)
    plan = Plan(0, 0, NodeFault(step=3, node=NODES - 1, element=0))
    day.solver("ann", partial(FaultySolver, plan=plan))
    for i in range(2):
        day.verifier(f"v{i}", partial(ColludingVerifier, accomplices=frozenset({account("ann")})))
    assert day.run(lambda: Phase.ACCEPTED in day.phases(job_id, Kind.TASK))
    puppet = day.join("puppet")
    view = next(v for v in puppet.claims(job_id) if v.claim.kind == Kind.TASK)
    lineage = open_lineage(puppet, day.blocks(), puppet.job(job_id), APPETITE)
    roots = [c.root for c in lineage.checkpoints(view)]  # type: ignore[union-attr]
    tree = trees.build(roots)
    puppet.announce("a", view.claim_id, 0, "0x" + "0" * 40, bytes(32))  # type: ignore[arg-type]
    puppet.open_game("o", view.claim, 0, roots[0], tree.proof(0), roots[1], tree.proof(1), bytes(32))
    day.whistleblower("wendy")
    assert day.run(lambda: Phase.CONVICTED in day.phases(job_id)), day.events[-5:]
    won = [p.view.game.challenger for p in day.world.games.values() if p.view.challenger_won]
    assert won == [account("wendy")]


def test_a_restarted_whistleblower_goes_on_with_its_game(day: MarketDay) -> None:
    job_id = day.post(rounds=1)
    conspiracy(day, Plan(0, 1, NodeFault(step=3, node=NODES - 1, element=0)))
    day.whistleblower("wendy")
    assert day.run(lambda: bool(day.named("opened")))
    day.whistleblower("wendy")
    assert day.run(lambda: Phase.CONVICTED in day.phases(job_id))
    assert len(day.world.games) == 1


def test_a_lazy_vote_over_several_samples_is_reported_as_unprovable(day: MarketDay) -> None:
    day.post(rounds=1, shards=1, samples=2)
    day.solver("ann")
    day.verifier("lazy", LazyVerifier)
    day.verifier("vera")
    day.whistleblower("wendy")
    assert day.run(lambda: bool(day.named("advice")))
    assert account("lazy") in day.named("advice")[0]["reason"]
    assert not day.world.games and not day.world.announced
