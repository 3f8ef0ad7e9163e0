"""Waiting rewards: a whistleblower against a parasite that announced without auditing (R12)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from assay.node.audit import audit_claim
from assay.node.findings import WrongSegment
from assay.node.rewards import shares
from assay.node.states import open_state_provider
from assay.node.upkeep import Play, plays
from assay.program.fault import NodeFault
from assay.protocol import trees
from assay.protocol.dispute import Timeout
from assay.protocol.game_state import Found, GamePhase, WaitingReward
from assay.protocol.types import ZERO_ADDRESS, ClaimView, JobId, Kind, Phase, Role, Seconds, Wei
from drills.orders import Plan
from tests.fakes.clock import counted
from tests.fakes.conspiracy import conspiracy
from tests.fakes.jobs import RESOURCE_LIMITS, account, inner_program
from tests.fakes.market_day import MarketDay
from tests.fakes.port import FakeMarket
from tests.unit.whistleblower.test_false_votes import close

GUESS, SALT = b"g" * 32, bytes(32)
NODES = len(inner_program().nodes)


def cheated(day: MarketDay, nonce: int = 1) -> tuple[JobId, ClaimView]:
    """A job of one shard, whose solver's first task is false and accepted."""
    job_id = day.post(rounds=1, shards=1, nonce=nonce)
    plan = Plan(0, 0, NodeFault(step=3, node=NODES - 1, element=0))
    conspiracy(day, plan, "ann")
    assert day.run(lambda: Phase.ACCEPTED in day.phases(job_id, Kind.TASK))
    view = next(v for v in day.markets["ann"].claims(job_id) if v.claim.kind == Kind.TASK)
    return job_id, view


def open_blindly(parasite: FakeMarket, view: ClaimView) -> None:
    tree = trees.build(view.roots)
    proofs = tree.proof(0), tree.proof(1)
    parasite.open_game("o", view.claim, 0, view.roots[0], proofs[0], view.roots[1], proofs[1], GUESS, SALT)


def test_R12_a_whistleblower_beside_a_parasite_has_its_reward(day: MarketDay) -> None:
    job_id, view = cheated(day, nonce=3)  # by whose seed no vote's sample shows the fault
    parasite = day.join("parasite")
    parasite.announce("a", view.claim_id, 0, ZERO_ADDRESS, GUESS, SALT)
    wendy = day.whistleblower("wendy")
    assert day.run(lambda: bool(day.named("opened")))
    open_blindly(parasite, view)
    rich, poor = wendy.market.free(account("wendy")), parasite.free(account("parasite"))
    bond = view_bond(day, job_id)
    assert day.run(lambda: day.market_state.claims[view.claim_id].status.phase == Phase.CONVICTED)
    (waiting,) = wendy.market.rewards(job_id)
    assert waiting.amount > 0 and waiting.winner == account("wendy"), "two findings that differ"
    del day.services["ann"]
    day.solver("carol")
    assert day.run(lambda: bool(day.named("shared")), turns=600), day.events[-5:]
    assert not wendy.market.rewards(job_id)
    assert wendy.market.free(account("wendy")) - rich == waiting.amount + bond, "all of it, and the bond"
    assert parasite.free(account("parasite")) - poor == bond, "its bond, and nothing else"
    assert day.market_state.active[account("ann"), Role.SOLVER] == 1_900


def test_a_reward_without_a_settled_claim_is_its_winners_once_the_job_closes(day: MarketDay) -> None:
    job_id, view = cheated(day)
    parasite = day.join("parasite")
    parasite.announce("a", view.claim_id, 0, ZERO_ADDRESS, GUESS, SALT)
    wendy = day.whistleblower("wendy")
    assert day.run(lambda: bool(day.named("opened")))
    open_blindly(parasite, view)
    assert day.run(lambda: day.market_state.claims[view.claim_id].status.phase == Phase.CONVICTED)
    (waiting,) = wendy.market.rewards(job_id)
    day.services = {"wendy": wendy}
    assert not day.run(lambda: bool(day.named("shared")), turns=20)
    close(day, job_id)
    before = wendy.market.free(account("wendy"))
    assert day.run(lambda: not wendy.market.rewards(job_id), seconds=40), wendy.status
    assert wendy.market.free(account("wendy")) - before >= waiting.amount, "and what bonds come back"
    assert ("shareWon", account("wendy")) in day.market_state.log


def view_bond(day: MarketDay, job_id: JobId) -> int:
    return int(day.markets["ann"].job(job_id).terms.challenge_bond)


def test_two_whistleblowers_that_agree_share_at_once(day: MarketDay) -> None:
    job_id, view = cheated(day)
    walt = day.join("walt")
    root = honest_root(day, job_id, view)
    walt.announce("a", view.claim_id, root[0], ZERO_ADDRESS, root[1], SALT)
    wendy = day.whistleblower("wendy")
    assert day.run(lambda: bool(day.named("opened")))
    tree, at = trees.build(view.roots), root[0]
    proofs = tree.proof(at), tree.proof(at + 1)
    walt.open_game(
        "o", view.claim, at, view.roots[at], proofs[0], view.roots[at + 1], proofs[1], root[1], SALT
    )
    rich = walt.free(account("walt"))
    assert day.run(lambda: bool(day.named("shared")), turns=600), day.events[-5:]
    (shared,) = day.named("shared")
    assert "agree" in shared["reason"]
    assert walt.free(account("walt")) - rich > view_bond(day, job_id)
    assert not wendy.market.rewards(job_id)


def honest_root(day: MarketDay, job_id: JobId, view: ClaimView) -> tuple[int, bytes]:
    """Segment and root that an honest replay finds."""
    market = day.markets["walt"]
    finding = audit_claim(
        open_state_provider(market, day.blocks(), market.job(job_id), RESOURCE_LIMITS), view
    )
    assert isinstance(finding, WrongSegment)
    return finding.segment, finding.root


def test_T53_a_whistleblower_has_its_part_where_a_puppet_wins_first(day: MarketDay) -> None:
    """Nobody claims the place again, so no settled claim decides, and both have won their games."""
    job_id, view = cheated(day)
    puppet = day.join("puppet")
    puppet.announce("a", view.claim_id, 0, ZERO_ADDRESS, GUESS, SALT)
    wendy = day.whistleblower("wendy")
    assert day.run(lambda: bool(day.named("opened")))
    open_blindly(puppet, view)
    day.services = {"wendy": wendy}
    puppets = next(g for g in puppet.games(job_id) if g.game.challenger == account("puppet"))
    day.market_state.run_out(puppets.game.deadline)
    puppet.move("t", puppets.game_id, puppets.game, Timeout())
    (waiting,) = wendy.market.rewards(job_id)
    assert waiting.winner == account("puppet")
    assert day.run(lambda: len(wendy.market.rewards(job_id)[0].found) == 2)
    assert all(found.won for found in wendy.market.rewards(job_id)[0].found)
    close(day, job_id)
    before = wendy.market.free(account("wendy")), puppet.free(account("puppet"))
    assert day.run(lambda: not wendy.market.rewards(job_id), seconds=40), wendy.status
    assert wendy.market.free(account("wendy")) - before[0] >= waiting.amount // 2
    assert puppet.free(account("puppet")) - before[1] == waiting.amount - waiting.amount // 2


@pytest.mark.parametrize("what", ["a part", "no reward waits", "its own reward", "a vote"])
def test_T53_a_game_about_a_fallen_claim_is_played_on_for_a_part_in_its_reward(
    day: MarketDay, what: str
) -> None:
    job_id, view = cheated(day)
    wendy = day.whistleblower("wendy")
    assert day.run(lambda: bool(day.named("opened")))
    (game,) = wendy.market.games(job_id)
    me = game.game.challenger
    ours = replace(game, game=replace(game.game, phase=GamePhase.PICK_NODE, ballot=int(what == "a vote")))
    fallen = replace(view, status=replace(view.status, phase=Phase.CONVICTED))
    fallen = replace(fallen, votes=tuple(replace(vote, gone=True) for vote in view.votes))
    winner = me if what == "its own reward" else account("puppet")
    rewards = [] if what == "no reward waits" else [WaitingReward(view.claim_id, Wei(5), winner, ())]
    now = Seconds(game.game.deadline - 1)
    played = list(plays(me, now, counted(now), job_id, [fallen], [ours], rewards))
    games = [play.game_id for play in played if isinstance(play, Play)]
    assert games == ([game.game_id] if what == "a part" else [])


def test_T55_a_reward_is_asked_for_once_its_round_is_settled_without_its_place(day: MarketDay) -> None:
    job_id, view = cheated(day)
    me, other = account("wendy"), account("puppet")
    found = tuple(Found(who, at, 1, 2, bytes([at]) * 32, True) for at, who in ((0, me), (1, other)))
    waiting = WaitingReward(view.claim_id, Wei(5), other, found)
    fallen = replace(view, status=replace(view.status, phase=Phase.CONVICTED))
    job = day.markets["ann"].job(job_id)
    for settled_rounds in (view.claim.round, view.claim.round + 1):
        now = replace(job, progress=replace(job.progress, settled_rounds=settled_rounds))
        asked = [share.won for share in shares(me, now, [fallen], [], [waiting])]
        assert asked == ([True] if settled_rounds > view.claim.round else [])


def test_whose_game_was_lost_pays_nothing_to_have_the_others_paid(day: MarketDay) -> None:
    """A puppet convicts its claim during an honest game whose source is gone with it (docs/threats.md,
    T53)."""
    _, view = cheated(day)
    me, other = account("wendy"), account("puppet")
    fallen = replace(view, status=replace(view.status, phase=Phase.CONVICTED))
    job = day.markets["ann"].job(view.claim.job_id)
    for won in (True, False):
        found = Found(me, 0, 1, 2, bytes(32), won), Found(other, 1, 1, 2, bytes(32), True)
        waiting = WaitingReward(view.claim_id, Wei(5), other, found, gone=True)
        assert [share.won for share in shares(me, job, [fallen], [], [waiting])] == ([True] if won else [])
