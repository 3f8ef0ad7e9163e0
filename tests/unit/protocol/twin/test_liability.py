"""Liability survives: claims that a rewind has overtaken, or that their round goes on without."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from assay.protocol.dispute import RevealSteps, Timeout
from assay.protocol.twin import events as e
from assay.protocol.twin.claims import worth
from assay.protocol.twin.ledger import Bucket, compensation
from assay.protocol.types import ZERO_ADDRESS, Claim, ClaimId, Kind, Phase, Role, Seconds
from tests.fakes.story import ANN, BOB, CLIENT, ROOT, SALT, VERA, WHISTLER, Story, begin
from tests.twin.scene import INNER


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
        """Whose clock has run out loses the game on the late claim."""
        game = self.story.market_state.games[self.game_id].game
        self.story.tell(e.Play(self.game_id, game, Timeout()), BOB)


def fell(answered: bool) -> Felled:
    """`answered`: Bob has moved, and his challenger has not."""
    story = begin()
    early = story.accept(story.commit(Kind.TASK, 0, ANN))
    story.accept(story.commit(Kind.TASK, 1, BOB))
    outer = story.commit(Kind.OUTER, 0, ANN)
    late = story.accept(story.commit(Kind.TASK, 1, BOB))
    game_id = story.challenge(late)
    if answered:
        roots = tuple(story.scene.state(INNER) for _ in range(3))
        story.tell(e.Play(game_id, story.market_state.games[game_id].game, RevealSteps(roots)), BOB)
    story.silence(story.challenge(early, CLIENT))
    assert story.phase(early) == Phase.CONVICTED
    assert not story.market_state.stands(story.market_state.claims[late])
    return Felled(story, late, outer, game_id)


@pytest.fixture
def felled() -> Felled:
    return fell(answered=False)


def test_A3_a_claim_under_a_game_is_not_voided_and_falls_although_it_was_overtaken(felled: Felled) -> None:
    """Attack A3: a ring fells its own early claim to save its late one."""
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


def binding(story: Story, claim_id: ClaimId) -> e.ProveBinding:
    """Bob's own second slot is not what his last task left."""
    claim = story.claim(claim_id)
    source = story.claim(story.market_state.places[story.job_id, Kind.TASK, 0, 1])
    mine, theirs = (story.scene.state_tree(root) for root in (claim.input_root, source.output_root))
    shown = story.market_state.binding_root(mine.levels[0][1], ROOT)
    story.tell(e.Announce(claim_id, 1, ZERO_ADDRESS, shown, SALT), WHISTLER)
    leaves = (mine.levels[0][1], tuple(mine.proof(1))), (theirs.levels[0][1], tuple(theirs.proof(1)))
    return e.ProveBinding(claim, 1, *leaves[0], source, *leaves[1], ROOT, SALT)


def test_a_wrong_binding_convicts_an_overtaken_claim_while_a_game_on_it_is_open(felled: Felled) -> None:
    """Rule 4.4: its source, of the same shard's last task, was there at its commit and still is."""
    story = felled.story
    proof = binding(story, felled.late)
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
    assert story.refuse(binding(story, felled.late), WHISTLER) == "NotStanding"


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
    assert story.refuse(binding(story, felled.late), WHISTLER) == "NotStanding"


STRAGGLERS = {"min_shards": 1, "straggler_time": Seconds(2_000), "task_time": Seconds(10_000)}


def test_A4_a_pending_task_is_voided_once_its_round_can_be_closed_and_the_job_ends() -> None:
    """Attack A4: nobody closes the round of a halted job; its second task is never accepted."""
    story = begin(**STRAGGLERS)
    done = story.accept(story.commit(Kind.TASK, 0, ANN))
    waits = story.commit(Kind.TASK, 1, BOB)
    story.seed(waits)
    story.vote(waits)
    story.tell(e.Halt(story.job_id), CLIENT)
    late, before = story.claim(waits), story.worth_of(BOB) + story.worth_of(VERA)
    assert story.refuse(e.Void(late), CLIENT) == "NotStale"
    story.time = story.market_state.jobs[story.job_id].stragglers_end
    assert story.refuse(e.Tally(late), CLIENT) == "TooLate"
    assert story.refuse(e.Close(story.job_id), CLIENT) == "NotFinished"
    story.tell(e.Void(late), WHISTLER)
    assert story.phase(waits) == Phase.VOID
    assert story.worth_of(BOB) + story.worth_of(VERA) == before, "nobody is paid, nobody loses"
    assert story.market_state.funds.locked(BOB, Role.SOLVER) == story.terms.miss_penalty
    assert story.market_state.funds.locked(VERA, Role.VERIFIER) == story.terms.verifier_stake  # Ann's
    story.tell(e.Settle(story.claim(done)), CLIENT, story.terms.challenge_window)
    story.tell(e.Close(story.job_id), CLIENT)
    assert story.market_state.funds.ledger.total(Bucket.ESCROW) == 0


def test_A4_a_game_keeps_a_late_task_from_being_voided() -> None:
    story = begin(**STRAGGLERS)
    story.accept(story.commit(Kind.TASK, 0, ANN))
    waits = story.commit(Kind.TASK, 1, BOB)
    game_id = story.challenge(waits)
    story.time = story.market_state.jobs[story.job_id].stragglers_end
    assert story.refuse(e.Void(story.claim(waits)), CLIENT) == "GamesOpen"
    story.silence(game_id)
    assert story.phase(waits) == Phase.CONVICTED


def test_a_round_that_can_be_closed_takes_no_further_task() -> None:
    """Rule 4.3: not even from who has taken its shard a moment ago."""
    story = begin(**STRAGGLERS)
    story.accept(story.commit(Kind.TASK, 0, ANN))
    end = story.market_state.jobs[story.job_id].stragglers_end
    story.tell(e.Release(story.job_id, 1), BOB)
    story.time = Seconds(end - 100)
    story.tell(e.TakeShard(story.job_id, 1, story.terms.price_floor), BOB)
    claim = story.scene.claim(story.job_id, story.terms, Kind.TASK, 0, 1, story.terms.genesis_root)
    commit = e.Commit(claim, story.scene.segments[claim.segments_root].levels[0])
    story.time = Seconds(end - 1)
    in_time = replace(story)
    in_time.tell(commit, BOB)
    assert story.refuse(commit, BOB, 2) == "TooLate"
