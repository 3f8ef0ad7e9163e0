"""The market's rules in scenes that docs/protocol.md tells in words; random lives are in tests/property."""

from __future__ import annotations

import pytest

from assay.protocol.dispute import RevealSteps
from assay.protocol.types import Kind, Phase, Role, Wei
from spec import events as e
from spec.ledger import bond
from tests.fakes.story import ANN, BOB, CLIENT, Story, begin
from tests.twin.scene import INNER


@pytest.fixture
def story() -> Story:
    return begin()


def test_a_lost_challenge_pays_the_defender_half_its_bond(story: Story) -> None:
    """Rule 5.3; attack 16: a challenger that loses on purpose clears nothing."""
    terms = story.market_state.jobs[story.job_id].terms
    claim_id = story.accept(story.commit(Kind.TASK, 0, ANN))
    game_id = story.challenge(claim_id)
    roots = tuple(story.scene.state(INNER) for _ in range(3))
    story.tell(e.Play(game_id, story.market_state.games[game_id].game, RevealSteps(roots)), ANN)
    before = story.free(ANN)
    assert story.refuse(e.Settle(story.market_state.claims[claim_id].claim), ANN, 200_000) == "GamesOpen"
    story.silence(game_id)
    assert story.free(ANN) - before == terms.challenge_bond // 2
    assert story.market_state.funds.ledger.burnt == terms.challenge_bond - terms.challenge_bond // 2
    assert story.phase(claim_id) == Phase.ACCEPTED
    assert story.market_state.funds.ledger.balance(bond(game_id)) == 0


def test_a_refused_event_changes_nothing(story: Story) -> None:
    before = story.market_state
    assert story.refuse(e.Stake(Role.SOLVER, Wei(10**9)), ANN) == "InsufficientBalance"
    assert story.refuse(e.TakeShard(story.job_id, 0, Wei(0)), BOB) == "ShardTaken"
    assert story.refuse(e.Post(before.jobs[story.job_id].terms, Wei(10**5)), CLIENT) == "JobExists"
    assert story.market_state is before
