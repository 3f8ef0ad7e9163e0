"""Liability survives: claims that a rewind has overtaken."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from assay.protocol.dispute import Timeout
from assay.protocol.types import ZERO_ADDRESS, Claim, ClaimId, Kind, Phase
from spec import events as e
from spec.claims import worth
from spec.ledger import Bucket, compensation
from tests.fakes.story import ANN, BOB, CLIENT, VERA, WHISTLER, Story, begin


@dataclass
class Felled:
    """Bob's late claim with a game open on it, overtaken since Ann's early one fell to her own friend."""

    story: Story
    late: ClaimId
    outer: ClaimId
    game_id: int

    @property
    def claim(self) -> Claim:
        return self.story.claim(self.late)

    def end(self) -> None:
        """Ends the game on the late claim: the player whose clock has run out loses."""
        game = self.story.market_state.games[self.game_id].game
        self.story.run_out(1)
        self.story.tell(e.Play(self.game_id, game, Timeout()), BOB)


def fell(answered: bool, about_input: bool = False) -> Felled:
    """`answered`: Bob has moved, and his challenger has not. `about_input`: the game is an `openInput`."""
    story = begin()
    early = story.accept(story.commit(Kind.TASK, 0, ANN))
    story.accept(story.commit(Kind.TASK, 1, BOB))
    outer = story.commit(Kind.OUTER, 0, ANN)
    late = story.accept(story.commit(Kind.TASK, 1, BOB))
    game_id = (story.challenge_input if about_input else story.challenge)(late)
    if answered:
        story.answer(game_id)
    story.silence(story.challenge(early, CLIENT))
    assert story.phase(early) == Phase.CONVICTED and not story.stands(late)
    return Felled(story, late, outer, game_id)


@pytest.fixture
def felled() -> Felled:
    return fell(answered=False)


def test_A3_a_claim_under_a_game_is_not_voided_and_falls_although_it_was_overtaken(felled: Felled) -> None:
    """Attack A3: a ring makes its own early claim fall to save its late one."""
    story, late = felled.story, felled.claim
    assert story.refuse(e.Void(late), BOB) == "GamesOpen"
    rewinds = story.market_state.jobs[story.job_id].rewinds_so_far
    before = {who: story.worth_of(who) for who in (BOB, WHISTLER, VERA)}
    burnt, stake, fee = story.burnt, story.terms.solver_stake, story.terms.verifier_fee
    felled.end()
    assert story.phase(felled.late) == Phase.CONVICTED
    assert before[BOB] - story.worth_of(BOB) == stake
    bond = story.terms.challenge_bond
    assert story.worth_of(WHISTLER) - before[WHISTLER] == stake // 2 - fee + bond, "nothing was rewound"
    assert story.burnt - burnt == stake - stake // 2
    assert story.market_state.jobs[story.job_id].rewinds_so_far == rewinds
    assert story.refuse(e.Void(late), BOB) == "WrongPhase"
    assert story.market_state.holder(story.job_id, 1).solver == ZERO_ADDRESS


def test_what_was_set_aside_for_a_claim_that_fell_is_burnt(felled: Felled) -> None:
    """Rule 5.2: at `freeSeats`; and its votes are paid what was kept for them."""
    story, late = felled.story, felled.claim
    felled.end()
    pot = compensation(story.job_id, 1)
    outer = story.claim(felled.outer)
    story.tell(e.Void(outer), CLIENT)
    due = worth(late, story.terms)
    assert story.market_state.funds.ledger.balance(pot) == due > 0
    burnt, before = story.burnt, story.worth_of(VERA)
    assert story.refuse(e.FreeSeats(late), BOB, story.terms.challenge_window - 1) == "NotDue"
    story.tell(e.FreeSeats(late), BOB)
    assert story.burnt - burnt == due and story.worth_of(VERA) - before == story.terms.verifier_fee
    assert story.market_state.funds.ledger.total(Bucket.COMPENSATION) == 0
    assert story.refuse(e.FreeSeats(late), BOB) == "NoSeats"


def test_a_game_about_an_overtaken_claim_that_is_lost_pays_its_claimant() -> None:
    """Rule 5.3: it had to answer; then `void` ends it with compensation."""
    felled = fell(answered=True)
    story, late = felled.story, felled.claim
    before = story.worth_of(BOB)
    felled.end()
    assert story.worth_of(BOB) - before == story.terms.challenge_bond // 2
    story.tell(e.Void(late), CLIENT)
    assert story.phase(felled.late) == Phase.VOID
    assert story.worth_of(BOB) - before == story.terms.challenge_bond // 2 + late.price


def test_A3_a_lost_game_about_an_overtaken_claims_input_costs_nothing() -> None:
    """Rule 5.3: what it would have proven it with may be gone with the rewind."""
    felled = fell(answered=True, about_input=True)
    story, bond = felled.story, felled.story.terms.challenge_bond
    before = story.worth_of(BOB), story.worth_of(WHISTLER) + bond, story.burnt
    felled.end()
    assert (story.worth_of(BOB), story.worth_of(WHISTLER), story.burnt) == before
    assert story.phase(felled.late) == Phase.ACCEPTED
    story.tell(e.Void(felled.claim), CLIENT)


def test_a_lost_game_about_a_standing_claims_input_pays_its_claimant() -> None:
    story = begin()
    claim_id = story.accept(story.commit(Kind.TASK, 0, ANN))
    game_id = story.challenge_input(claim_id)
    story.answer(game_id)
    before = story.worth_of(ANN)
    story.silence(game_id)
    assert story.worth_of(ANN) - before == story.terms.challenge_bond // 2


def test_a_wrong_binding_convicts_an_overtaken_claim_while_a_game_on_it_is_open(felled: Felled) -> None:
    """Rule 4.4: its source, of the same shard's last task, was there at its commit and still is."""
    story = felled.story
    proof = story.binding(felled.late)
    before, taken = story.worth_of(BOB), story.terms.solver_stake + story.terms.verifier_stake
    burnt = story.burnt
    story.tell(proof, WHISTLER)
    assert story.phase(felled.late) == Phase.CONVICTED
    assert before - story.worth_of(BOB) == story.terms.solver_stake
    assert story.burnt - burnt == taken - taken // 2


def test_a_wrong_binding_convicts_no_overtaken_claim_without_a_game() -> None:
    felled = fell(answered=True)
    story = felled.story
    felled.end()
    assert story.refuse(story.binding(felled.late), WHISTLER) == "NotStanding"


def test_a_binding_to_a_source_of_after_a_rewind_convicts_no_overtaken_claim(
    felled: Felled,
) -> None:
    """Rule 4.4: the claim was right about what was there at its commit."""
    story = felled.story
    source = story.market_state.places[story.job_id, Kind.TASK, 0, 1]
    story.silence(story.challenge(source, CLIENT))
    assert story.phase(source) == Phase.CONVICTED
    for shard, by in ((0, ANN), (1, BOB)):
        if story.market_state.holder(story.job_id, shard).solver == ZERO_ADDRESS:
            story.tell(e.TakeShard(story.job_id, shard, story.terms.price_floor), by)
    again = story.accept(story.commit(Kind.TASK, 1, BOB))
    assert story.claim(again).rewinds > story.claim(felled.late).rewinds
    assert felled.game_id in story.market_state.games
    assert story.refuse(story.binding(felled.late), WHISTLER) == "NotStanding"
