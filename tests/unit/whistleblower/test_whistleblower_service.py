"""One honest whistleblower against cheats: convictions through the real player on both sides."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from assay.node.manifests import raw_cid
from assay.node.states import open_state_provider
from assay.node.upkeep import window_end
from assay.program.fault import Fault, NodeFault, StateFault
from assay.program.state import state_root
from assay.protocol import trees
from assay.protocol.dispute import Split
from assay.protocol.game import opened_levels
from assay.protocol.game_state import INPUT_SEGMENT
from assay.protocol.types import ZERO_ADDRESS, ClaimId, ClaimView, JobId, Kind, Phase, Role, Wei
from assay.solver.service import SolverService
from assay.whistleblower.policy import Limits, Mode
from drills.orders import Plan, invent, omit_last_shard
from drills.solvers import FaultySolver, WrongInputSolver
from drills.verifiers import LazyVerifier
from drills.whistleblowers import LATE_S, LateChallenger
from tests.fakes.clock import FakeClock
from tests.fakes.conspiracy import conspiracy, vouched
from tests.fakes.jobs import RESOURCE_LIMITS, account, inner_program
from tests.fakes.market_day import MarketDay, secret
from tests.fakes.opened import states_of

ROOT = b"r" * 32
NODES = len(inner_program().nodes)


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
def test_attack_05_15_one_ulp_by_a_solver_with_all_verifiers_is_convicted(
    day: MarketDay, fault: Fault
) -> None:
    job_id = day.post(rounds=1)
    conspiracy(day, Plan(0, 1, fault))
    whistle = day.whistleblower("wendy")
    supply = day.market_state.supply
    assert day.run(lambda: Phase.CONVICTED in day.phases(job_id)), [s.status for s in day.services.values()]
    game = next(p.view for p in day.market_state.games.values() if p.view.decided)
    assert game.challenger_won and game.reason in ("arithmetic", "output"), game.reason
    assert game.game.challenger == whistle.market.me
    cheat = game.game.defender
    assert day.market_state.active[cheat, Role.SOLVER] == 1_900
    assert day.market_state.supply == supply
    assert sum(1 for entry in day.market_state.log if entry[0] == "RevealTrace") >= 1


def test_after_a_conviction_the_job_goes_on_to_its_end_with_honest_work(day: MarketDay) -> None:
    job_id = day.post()
    plan = Plan(0, 0, NodeFault(step=3, node=NODES - 1, element=0))
    conspiracy(day, plan, "ann")
    while day.markets["ann"].me not in (h.solver for h in day.market_state.jobs[job_id].holders):
        day.services["ann"].tick()
    taken = [h.solver for h in day.market_state.jobs[job_id].holders].index(account("ann"))
    ann = day.services["ann"]
    assert isinstance(ann, FaultySolver)
    ann.cheat["plan"] = Plan(0, taken, plan.fault)
    day.solver("bob")
    day.whistleblower("wendy")
    assert day.run(lambda: Phase.CONVICTED in day.phases(job_id)), day.events[-5:]
    del day.services["ann"]
    day.solver("carol")
    assert day.run(day.closed(job_id), turns=600), [s.status for s in day.services.values()]
    phases = day.phases(job_id)
    assert phases.count(Phase.CONVICTED) == 1 and phases.count(Phase.SETTLED) == 6
    assert set(phases) <= {Phase.CONVICTED, Phase.SETTLED, Phase.VOID}
    assert all(not locked for locked in day.market_state.locked.values())


@pytest.mark.parametrize("samples", [1, 2])
def test_attack_09_a_lazy_verifier_loses_its_stake_whatever_becomes_of_the_claim(
    day: MarketDay, samples: int
) -> None:
    job_id = day.post(rounds=1, shards=1, samples=samples)
    day.solver("ann")
    day.verifier("lazy", LazyVerifier)
    day.verifier("vera")
    day.whistleblower("wendy")
    assert day.run(lambda: any(p.view.challenger_won for p in day.market_state.games.values())), day.events[
        -5:
    ]
    (view,) = (v for v in day.markets["wendy"].claims(job_id) if v.claim.kind == Kind.TASK)
    traces = view.traces[account("lazy")]
    assert len(traces) == len(set(traces)) == samples
    game = next(p.view for p in day.market_state.games.values() if p.view.challenger_won)
    assert game.game.defender == account("lazy") and game.game.out_root in traces
    assert day.market_state.active[account("lazy"), Role.VERIFIER] == 950
    assert day.market_state.active[account("vera"), Role.VERIFIER] == 1_000
    assert day.run(day.closed(job_id))
    assert Phase.CONVICTED not in day.phases(job_id)


def test_in_mode_advise_it_accuses_nobody(day: MarketDay) -> None:
    job_id = day.post(rounds=1)
    conspiracy(day, Plan(0, 1, NodeFault(step=3, node=NODES - 1, element=0)))
    day.whistleblower("wendy", Mode.ADVISE)
    assert day.run(lambda: bool(day.named("advice")))
    assert "bond" in day.named("advice")[0]["reason"]
    assert not day.market_state.games and not day.market_state.announced
    assert Phase.CONVICTED not in day.phases(job_id)


@pytest.mark.parametrize("await_votes", [False, True])
def test_who_awaits_the_votes_has_false_ones_pay_too(day: MarketDay, await_votes: bool) -> None:
    """Verifiers that are slow, and a cheat's accomplices, have not voted when the fault is found."""
    job_id = day.post(rounds=1)
    conspiracy(day, Plan(0, 1, NodeFault(step=3, node=NODES - 1, element=0)))
    day.whistleblower("wendy", await_votes=await_votes)
    slow = {name: day.services.pop(name) for name in ("v0", "v1")}
    assert day.run(lambda: bool(day.named("found")))
    assert day.run(lambda: bool(day.market_state.announced), turns=3) != await_votes
    day.services |= slow
    assert day.run(lambda: bool(day.market_state.announced))
    assert (Phase.ACCEPTED in day.phases(job_id)) == await_votes
    assert day.run(lambda: Phase.CONVICTED in day.phases(job_id))
    assert all(vote.valid for vote in convicted(day).votes)


def test_a_challenge_beyond_the_budget_is_not_brought(day: MarketDay) -> None:
    day.post(rounds=1)
    conspiracy(day, Plan(0, 1, NodeFault(step=3, node=NODES - 1, element=0)))
    day.whistleblower("wendy", bonds=39)
    assert day.run(lambda: bool(day.named("advice")))
    assert "budget" in day.named("advice")[0]["reason"]
    assert not day.market_state.games


def test_an_honest_job_is_audited_and_nobody_is_accused(day: MarketDay) -> None:
    job_id = day.post(rounds=1)
    day.solvers()
    day.verifiers()
    whistle = day.whistleblower("wendy")
    assert day.run(day.closed(job_id))
    assert not whistle.findings and not day.market_state.games
    audited = {e["claim"] for e in day.named("audited")}
    assert len(audited) == len(day.phases(job_id)) == 3
    assert [e.claim.kind for e in day.market_state.claims.values()].count(Kind.OUTER) == 1


def test_attack_08_an_aggregate_that_omits_a_shard_is_convicted_in_one_move(day: MarketDay) -> None:
    job_id = day.post()
    for name in ("ann", "bob"):
        day.solver(name, partial(WrongInputSolver, patch=omit_last_shard))
    day.verifiers()
    day.whistleblower("wendy")
    assert day.run(lambda: Phase.CONVICTED in day.phases(job_id, Kind.OUTER)), day.events[-5:]
    assert not day.market_state.games and Phase.CONVICTED not in day.phases(job_id, Kind.TASK)
    progress = day.market_state.jobs[job_id].view.progress
    assert (progress.round, progress.rewinds) == (0, 1)


def test_attack_19_a_sock_puppets_lost_challenge_does_not_clear_the_claim(day: MarketDay) -> None:
    from assay.protocol import trees

    job_id = day.post(rounds=1, shards=1)
    plan = Plan(0, 0, NodeFault(step=3, node=NODES - 1, element=0))
    conspiracy(day, plan, "ann")
    assert day.run(lambda: Phase.ACCEPTED in day.phases(job_id, Kind.TASK))
    puppet = day.join("puppet")
    view = next(v for v in puppet.claims(job_id) if v.claim.kind == Kind.TASK)
    roots = view.roots
    tree = trees.build(roots)
    puppet.announce("a", view.claim_id, 0, "0x" + "0" * 40, ROOT, bytes(32))  # type: ignore[arg-type]
    puppet.open_game("o", view.claim, 0, roots[0], tree.proof(0), roots[1], tree.proof(1), ROOT, bytes(32))
    day.whistleblower("wendy")
    assert day.run(lambda: Phase.CONVICTED in day.phases(job_id)), day.events[-5:]
    won = [p.view.game.challenger for p in day.market_state.games.values() if p.view.challenger_won]
    assert won == [account("wendy")]


def test_a_restarted_whistleblower_goes_on_with_its_game(day: MarketDay) -> None:
    job_id = day.post(rounds=1)
    conspiracy(day, Plan(0, 1, NodeFault(step=3, node=NODES - 1, element=0)))
    day.whistleblower("wendy")
    assert day.run(lambda: bool(day.named("opened")))
    day.whistleblower("wendy")
    assert day.run(lambda: Phase.CONVICTED in day.phases(job_id))
    assert len(day.market_state.games) == 1


def convicted(day: MarketDay) -> ClaimView:
    """The one convicted claim, as everybody sees it."""
    (entry,) = [e for e in day.market_state.claims.values() if e.status.phase == Phase.CONVICTED]
    return day.market_state.view(entry)


def collusion(day: MarketDay, solver: Callable[..., SolverService], **terms: int) -> JobId:
    """A cheat that publishes nothing, and a quorum that attests whatever it claims."""
    job_id = day.post(shards=1, **terms)
    day.solver("ann", solver, blocks=day.blocks(withholds=True))
    vouched(day, "ann")
    return job_id


def test_attack_33_34_an_unpublished_false_claim_is_convicted_with_its_quorum(
    day: MarketDay,
) -> None:
    plan = Plan(0, 0, NodeFault(step=3, node=NODES - 1, element=0))
    job_id = collusion(day, partial(FaultySolver, plan=plan), rounds=1, samples=4)
    assert day.run(lambda: Phase.ACCEPTED in day.phases(job_id, Kind.TASK))
    day.whistleblower("wendy")
    assert day.run(lambda: Phase.CONVICTED in day.phases(job_id)), day.events[-5:]
    view = convicted(day)
    state_provider = open_state_provider(
        day.markets["wendy"], day.blocks(), day.markets["wendy"].job(job_id), RESOURCE_LIMITS
    )
    replay = state_provider.work.replay(Kind.TASK, 0, 0, 0, state_provider.genesis(Kind.TASK))
    honest = tuple(replay.root(2 * i) for i in range(5))
    assert view.roots[:2] == honest[:2] and view.roots[2] != honest[2], "the fault is in step 3"
    assert raw_cid(view.claim.manifest) in day.network.withheld, "and nobody was shown the states"
    game = next(p.view for p in day.market_state.games.values() if p.view.decided)
    assert game.challenger_won and game.game.challenger == account("wendy")
    assert day.market_state.active[account("ann"), Role.SOLVER] == 1_900


def test_attack_35_a_task_that_starts_from_a_state_nobody_knows_is_convicted(day: MarketDay) -> None:
    job_id = collusion(day, partial(WrongInputSolver, patch=invent), rounds=2)
    whistle = day.whistleblower("wendy")
    supply = day.market_state.supply
    assert day.run(lambda: Phase.CONVICTED in day.phases(job_id)), day.events[-5:]
    view = convicted(day)
    assert (view.claim.kind, view.claim.round) == (Kind.TASK, 1)
    right = states_of(whistle, job_id).input_state(Kind.TASK, 1, 0)
    assert state_root(right) != view.claim.input_root, "the fault was planted"
    assert len(view.traces) == 2 and all(view.traces.values()), "the whole quorum vouched for it"
    assert [day.market_state.active[account(v), Role.VERIFIER] for v in ("v0", "v1")] == [950, 950]
    assert next(e["finding"] for e in day.named("found")).startswith("HiddenInput")
    assert [e["move"] for e in day.named("moved")] == ["Split"], (
        "the cheat knew the state, and had to open it"
    )
    (game,) = (p for p in day.market_state.games.values() if p.view.game.steps == 0)
    assert not game.view.decided and game.bond == 40
    assert day.run(lambda: game.view.decided), "its claim has fallen: the bond comes back"
    assert (game.bond, game.view.challenger_won) == (0, False)
    assert day.market_state.free[whistle.market.me] > 10_000
    assert day.market_state.supply == supply


def test_attack_35_an_input_state_that_is_opened_falsely_is_convicted_by_that(day: MarketDay) -> None:
    job_id = collusion(day, partial(WrongInputSolver, patch=invent), rounds=2)
    day.whistleblower("wendy")
    assert day.run(lambda: bool(day.named("opened")))
    del day.services["ann"]
    (game_id,) = day.market_state.games
    ann = day.markets["ann"]
    game = ann.game(game_id).game
    children = (b"\x07" * 32,) * (1 << opened_levels(game.level))
    assert trees.root(children) != game.digest, "the fault was planted"
    ann.move("false", game_id, game, Split(children))
    assert day.run(lambda: Phase.CONVICTED in day.phases(job_id)), day.events[-5:]
    view = ann.game(game_id)
    assert (view.reason, view.challenger_won, view.moves) == ("children", True, 2)


def test_attack_35_what_is_opened_after_the_window_still_convicts(day: MarketDay) -> None:
    times = {"challenge_window": 40, "move_time": 300}
    job_id = collusion(day, partial(WrongInputSolver, patch=invent), rounds=2, **times)
    day.whistleblower("wendy")
    assert day.run(lambda: bool(day.named("opened")))
    slow = day.services.pop("ann")
    (game,) = day.market_state.games.values()
    accused = day.market_state.claims[game.view.game.claim_id]
    assert day.run(lambda: accused.status.phase == Phase.ACCEPTED)
    window_ends = accused.status.since + 40
    assert day.run(lambda: day.market_state.time > window_ends)
    assert game.view.moves == 0 and accused.status.phase == Phase.ACCEPTED
    day.services["ann"] = slow
    assert day.run(lambda: Phase.CONVICTED in day.phases(job_id)), day.events[-5:]
    assert [e["move"] for e in day.named("moved")] == ["Split"] and not game.view.decided


def test_attack_35_who_does_not_open_its_input_is_convicted_by_the_clock(day: MarketDay) -> None:
    job_id = collusion(day, partial(WrongInputSolver, patch=invent), rounds=2)
    day.whistleblower("wendy")
    assert day.run(lambda: bool(day.named("opened")))
    del day.services["ann"]
    assert day.run(lambda: Phase.CONVICTED in day.phases(job_id)), day.events[-5:]
    game = next(p.view for p in day.market_state.games.values())
    assert (game.reason, game.challenger_won, game.game.steps) == ("timeout", True, 0)
    assert convicted(day).claim.round == 1


def test_whoever_makes_an_honest_claimant_open_its_input_pays(day: MarketDay) -> None:
    job_id = day.post(rounds=1, shards=1)
    ann = day.solver("ann")
    assert day.run(lambda: bool(day.phases(job_id)))
    troll = day.join("troll")
    (view,) = troll.claims(job_id)
    troll.announce("a", view.claim_id, INPUT_SEGMENT, ZERO_ADDRESS, ROOT, bytes(32))
    game_id = troll.open_input("o", view.claim, ROOT, bytes(32))
    assert day.run(lambda: troll.game(game_id).decided)
    assert troll.game(game_id).moves == 2 and not troll.game(game_id).challenger_won
    assert troll.free(troll.me) == 10_000 - 40
    assert day.market_state.free[ann.market.me] == 10_000 - 2_000 + 20
    assert Phase.CONVICTED not in day.phases(job_id)


def test_attack_26_a_challenge_in_the_last_seconds_is_taken_and_settlement_waits(day: MarketDay) -> None:
    job_id = day.post(rounds=1)
    conspiracy(day, Plan(0, 1, NodeFault(step=3, node=NODES - 1, element=0)))
    market = day.join("wendy")
    parts = (market, day.blocks(), FakeClock(day.market_state), day.folder / "wendy", secret("wendy"))
    late = LateChallenger(*parts, Limits(Mode.PLAY, Wei(1_000)), RESOURCE_LIMITS, emit=day.events.append)
    day.services["wendy"] = late
    assert day.run(lambda: bool(day.named("late")))
    (told,) = day.named("late")
    assert 0 <= told["left"] <= LATE_S
    false = ClaimId(bytes.fromhex(told["claim"]))
    assert day.market_state.claims[false].status.phase == Phase.ACCEPTED
    end = window_end(market.claim(false), market.job(job_id).terms)
    assert day.run(lambda: day.market_state.time > end)
    assert day.market_state.claims[false].status.phase != Phase.SETTLED, "a game holds it up"
    assert day.run(lambda: day.market_state.claims[false].status.phase == Phase.CONVICTED)
