"""Verifiers in a fake market: they find, vote, convict and survive restarts; and what cheats can hide."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from assay.node.manifests import raw_cid
from assay.node.states import open_state_provider
from assay.program.fault import StateFault
from assay.protocol.errors import BlockNotFound
from assay.protocol.types import JobId, Kind, Phase, Role, Seconds
from assay.verifier.service import VerifierService
from drills.orders import Plan, WeightPlan, restart
from drills.solvers import FaultySolver, WrongInputSolver
from drills.verifiers import ColludingVerifier
from tests.fakes.jobs import RESOURCE_LIMITS, account
from tests.fakes.market_day import MarketDay
from tests.fakes.port import Killed
from tests.fakes.shapes import lone


def settled_or_convicted(day: MarketDay, job_id: JobId) -> Callable[[], bool]:
    return lambda: Phase.CONVICTED in day.phases(job_id)


def test_attack_05_a_drawn_verifier_that_finds_a_fault_votes_invalid_and_convicts(day: MarketDay) -> None:
    job_id = day.post(rounds=1, shards=1, samples=4)
    day.solver("ann", partial(FaultySolver, plan=WeightPlan(0, 3, 0, 5)))
    day.verifiers(3)
    assert day.run(settled_or_convicted(day, job_id)), [s.status for s in day.services.values()]
    game = next(p.view for p in day.market_state.games.values() if p.view.challenger_won)
    assert game.reason == "arithmetic" and game.game.defender == account("ann")
    assert not any(e["valid"] for e in day.named("replayed"))
    assert all(day.market_state.active[account(f"v{i}"), Role.VERIFIER] == 1_000 for i in range(3))


def test_an_invalid_vote_is_shown_only_once_its_game_is_open(day: MarketDay) -> None:
    """Otherwise the draw could be tallied before, and the honest whistleblower fined (rule 4.7)."""
    job_id = day.post(rounds=1, shards=1, samples=4)
    day.solver("ann", partial(FaultySolver, plan=WeightPlan(0, 3, 0, 5)))
    day.verifiers(3)
    shown: dict[str, set[str]] = {}

    def look() -> bool:
        """Records at each invalid vote's first observation which accounts had a game on the claim."""
        accusers: set[str] = {p.view.game.challenger for p in day.market_state.games.values()}
        for entry in day.market_state.claims.values():
            for vote in entry.votes.values():
                if vote.shown and not vote.valid:
                    shown.setdefault(vote.verifier, accusers)
        return Phase.CONVICTED in day.phases(job_id)

    assert day.run(look)
    assert len(shown) > 1 and all(finder in accusers for finder, accusers in shown.items())


@pytest.mark.parametrize(
    ("age", "waited"), [(0, 0), (20, 20), (10**6, 30)], ids=["none", "some", "half the time"]
)
def test_attack_31_a_vote_waits_until_its_seed_is_old_enough(day: MarketDay, age: int, waited: int) -> None:
    """No vote is sent under a seed that a shorter reorganisation could replace."""
    job_id = day.post(rounds=1, shards=1)
    day.solver("ann")
    for i in range(2):
        day.verifier(f"v{i}", seed_age=Seconds(age))
    voted: list[int] = []

    def look() -> bool:
        for entry in day.market_state.claims.values():
            if entry.status.phase == Phase.SEEDED and any(v.shown for v in entry.votes.values()):
                voted.append(day.market_state.time - entry.status.since)
        return day.closed(job_id)()

    assert day.run(look, turns=600)
    assert voted and waited <= voted[0] <= waited + 20 and day.market_state.burnt == 0


def test_attack_06_right_weights_with_a_wrong_moment_are_found(day: MarketDay) -> None:
    job_id = day.post(rounds=1, shards=1, samples=4)
    day.solver("ann", partial(FaultySolver, plan=Plan(0, 0, StateFault(step=5, slot=1, element=0))))
    day.verifiers(3)
    assert day.run(settled_or_convicted(day, job_id))
    assert next(p.view for p in day.market_state.games.values() if p.view.challenger_won).reason == "output"


def test_attack_07_a_wrong_initial_state_is_convicted_in_one_move(day: MarketDay) -> None:
    job_id = day.post()
    day.solver("ann", partial(WrongInputSolver, patch=restart))
    day.solver("bob", partial(WrongInputSolver, patch=restart))
    day.verifiers(3)
    assert day.run(settled_or_convicted(day, job_id)), [s.status for s in day.services.values()]
    convicted = [e for e in day.market_state.claims.values() if e.status.phase == Phase.CONVICTED]
    assert (convicted[0].claim.round, convicted[0].claim.kind) == (1, Kind.TASK)
    assert not day.market_state.games and day.named("convicted")


def test_attack_48_a_verifier_killed_after_voting_votes_once(day: MarketDay) -> None:
    job_id = day.post(rounds=1)
    day.solvers()
    day.verifier("v0")
    day.verifier("v1")
    day.markets["v0"].kill_after("vote")
    with pytest.raises(Killed):
        day.run(day.closed(job_id))
    replays = len(day.named("replayed"))
    day.verifier("v0")
    assert day.run(day.closed(job_id))
    assert day.market_state.burnt == 0
    assert day.phases(job_id) == [Phase.SETTLED] * 3
    assert max(replays, 4) <= len(day.named("replayed")) <= 5, "again what was not sent yet, at most"


def test_a_verifier_defends_its_true_vote_against_a_false_challenge(day: MarketDay) -> None:
    """14: the challenger has nothing sound to say, lets its clock run out, and loses its bond."""
    from assay.protocol import sampling, trees

    job_id = day.post(rounds=1, shards=1)
    day.solver("ann")
    day.verifier("v0")
    day.verifier("v1")
    troll = day.join("troll")
    assert day.run(lambda: Phase.ACCEPTED in day.phases(job_id, Kind.TASK))
    entry = next(e for e in day.market_state.claims.values() if e.claim.kind == Kind.TASK)
    vote = next(iter(entry.votes.values()))
    segment = sampling.sample_segments(entry.status.seed, vote.verifier, lone(1, 4))[0]
    state_provider = open_state_provider(troll, day.blocks(), troll.job(job_id), RESOURCE_LIMITS)
    view = troll.claim(entry.claim_id)
    roots = [c.root for c in state_provider.checkpoints(view)]
    salt = bytes(32)
    troll.announce("a", entry.claim_id, 0, vote.verifier, bytes(32), salt)
    proof = trees.build(roots).proof(segment)
    troll.open_vote_game("o", view.claim, vote.verifier, 0, roots[segment], proof, vote.traces_root, [], salt)
    assert day.run(day.closed(job_id)), [s.status for s in day.services.values()]
    game = day.market_state.games[1].view
    assert game.decided and not game.challenger_won and game.reason == "timeout"
    assert day.market_state.active[vote.verifier, Role.VERIFIER] == 1_000
    assert day.market_state.free[troll.me] == 10_000 - 40


def test_attack_33_a_false_claim_whose_checkpoints_are_withheld_is_convicted(day: MarketDay) -> None:
    job_id = day.post(rounds=1, shards=1, samples=4)
    plan = WeightPlan(0, 0, 0, 5)
    day.solver("ann", partial(FaultySolver, plan=plan), blocks=day.blocks(withholds=True))
    day.verifiers(3)
    assert day.run(lambda: Phase.CONVICTED in day.phases(job_id))
    (claim,) = [e.claim for e in day.market_state.claims.values() if e.status.phase == Phase.CONVICTED]
    with pytest.raises(BlockNotFound):
        day.blocks().get(raw_cid(claim.manifest))
    assert not any(e["valid"] for e in day.named("replayed"))
    assert "does not end in the state that the program gives" in day.named("replayed")[0]["finding"]


def test_attack_15_colluders_never_report_their_accomplice_but_do_report_others(day: MarketDay) -> None:
    job_id = day.post(rounds=1, shards=1, samples=4)
    day.solver("ann", partial(FaultySolver, plan=WeightPlan(0, 3, 0, 5)))
    cheat: VerifierService = day.verifier(
        "v0", partial(ColludingVerifier, accomplices=frozenset({account("zoe")}))
    )
    day.verifier("v1", partial(ColludingVerifier, accomplices=frozenset({account("ann")})))
    assert day.run(lambda: len(day.named("replayed")) >= 2)
    verdicts = {e["address"]: e["valid"] for e in day.named("replayed")}
    assert verdicts == {cheat.market.me: False, account("v1"): True}
    assert day.run(settled_or_convicted(day, job_id))
