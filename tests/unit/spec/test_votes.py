"""Votes answer for themselves: what a conviction takes, and what becomes of the votes on a fallen claim."""

from __future__ import annotations

from dataclasses import replace

import pytest

from assay.protocol.demands import StateLeaf
from assay.protocol.dispute import RevealSteps
from assay.protocol.types import ZERO_DIGEST, ClaimId, Kind, Phase, Role, Seconds
from spec import events as e
from spec.stakes import SEIZED
from tests.fakes.story import ANN, BOB, CLIENT, SALT, VERA, WHISTLER, Story, begin
from tests.twin.scene import INNER


@pytest.fixture
def story() -> Story:
    return begin()


def seats(story: Story) -> int:
    """What Vera's seats have locked."""
    return story.market_state.funds.locked(VERA, Role.VERIFIER)


def held_back(story: Story) -> int:
    return story.market_state.funds.ledger.balance(SEIZED)


def disprove(story: Story, claim_id: ClaimId, slot: int) -> e.ProveVote:
    """What shows that Vera's trace gives another value for the slot; announced."""
    proof = story.disproof(claim_id, slot)
    story.announce_disproof(claim_id, proof)
    return proof


def test_A1_who_loses_its_own_game_on_purpose_takes_no_vote_with_it(story: Story) -> None:
    """Attack A1: Ann's claim is right, and so is Vera's vote; Ann's other account convicts Ann."""
    before = {who: story.worth_of(who) for who in (ANN, WHISTLER, VERA)}
    claim_id = story.accept(story.commit(Kind.TASK, 0, ANN), honest=True)
    story.silence(story.challenge(claim_id))
    stake, fee = story.terms.solver_stake, story.terms.verifier_fee
    assert story.phase(claim_id) == Phase.CONVICTED
    assert story.worth_of(VERA) == before[VERA], "a game takes its defender's stake alone"
    ring = sum(before[who] - story.worth_of(who) for who in (ANN, WHISTLER))
    assert ring == stake - stake // 2 + fee, "what is burnt, and the vote's fee"
    assert before[ANN] - story.worth_of(ANN) == stake
    story.tell(e.FreeSeats(story.claim(claim_id)), BOB, story.terms.challenge_window + 1)
    assert story.worth_of(VERA) == before[VERA] + fee and seats(story) == 0


def test_A2_who_lets_a_demand_lapse_on_purpose_takes_no_vote_with_it(story: Story) -> None:
    """Rules 5.1 and 7.3: nor by withholding a state that its claim's verifiers had."""
    claim_id = story.accept(story.commit(Kind.TASK, 0, ANN), honest=True)
    claim, before = story.claim(claim_id), story.worth_of(VERA)
    story.tell(story.demand(claim_id), WHISTLER)
    ((demand_id, made),) = story.market_state.demands.items()
    story.tell(e.ExpireDemand(demand_id, made, claim), WHISTLER, story.terms.move_time + 1)
    assert story.phase(claim_id) == Phase.CONVICTED and story.worth_of(VERA) == before
    story.tell(e.FreeSeats(claim), BOB, story.terms.challenge_window + 1)
    assert story.worth_of(VERA) == before + story.terms.verifier_fee


@pytest.mark.parametrize("valid", [True, False])
def test_a_vote_on_a_fallen_claim_is_paid_and_freed_after_the_window(story: Story, valid: bool) -> None:
    """Rule 5.5: whether it was valid or not; nobody can dispute it any more."""
    claim_id = story.accept(story.commit(Kind.TASK, 0, ANN), valid)
    claim, before = story.claim(claim_id), story.worth_of(VERA)
    assert story.refuse(e.FreeSeats(claim), BOB) == "WrongPhase"
    story.silence(story.challenge(claim_id))
    window, fee = story.terms.challenge_window, story.terms.verifier_fee
    assert story.market_state.claims[claim_id].status.since == story.time
    assert seats(story) == story.terms.verifier_stake and held_back(story) == fee
    fell = story.time
    assert story.refuse(e.FreeSeats(claim), BOB, window) == "NotDue" and story.time == fell + window
    story.tell(e.FreeSeats(claim), BOB)
    assert seats(story) == 0 and held_back(story) == 0
    assert story.worth_of(VERA) == before + fee
    assert story.refuse(e.FreeSeats(claim), BOB) == "NoSeats"


def test_of_a_fallen_claim_without_votes_no_seat_waits(story: Story) -> None:
    """Rule 5.1: who was silent is free at the conviction."""
    claim_id = story.commit(Kind.TASK, 0, ANN)
    story.seed(claim_id)
    assert seats(story) == story.terms.verifier_stake
    before = story.worth_of(VERA)
    story.silence(story.challenge(claim_id))
    assert seats(story) == 0 and held_back(story) == 0 and story.worth_of(VERA) == before
    freed = e.FreeSeats(story.claim(claim_id))
    assert story.refuse(freed, BOB, story.terms.challenge_window + 1) == "NoSeats"


def test_a_vote_disproved_on_a_fallen_claim_pays_half_its_stake(story: Story) -> None:
    """Rule 5.5: in a game, whose end its stake waits for, even beyond the window."""
    claim_id = story.accept(story.commit(Kind.TASK, 0, ANN))
    story.silence(story.challenge(claim_id))
    stake, fee, window = story.terms.verifier_stake, story.terms.verifier_fee, story.terms.challenge_window
    story.time = Seconds(story.market_state.claims[claim_id].status.since + window - 2)
    before, burnt = story.worth_of(WHISTLER), story.burnt
    game_id = story.challenge_vote(claim_id)
    assert story.refuse(e.FreeSeats(story.claim(claim_id)), BOB, 2) == "GamesOpen"
    story.silence(game_id)
    assert story.worth_of(WHISTLER) - before == stake // 2
    assert story.burnt - burnt == stake - stake // 2 + fee, "and the fee that was kept for it"
    assert seats(story) == 0 and held_back(story) == 0
    assert story.refuse(e.FreeSeats(story.claim(claim_id)), BOB, window) == "NoSeats"


def test_a_fallen_claims_vote_is_challenged_in_its_window_alone(story: Story) -> None:
    claim_id = story.accept(story.commit(Kind.TASK, 0, ANN))
    story.silence(story.challenge(claim_id))
    story.time = Seconds(story.market_state.claims[claim_id].status.since + story.terms.challenge_window - 1)
    late = disprove(story, claim_id, 0)
    assert story.refuse(late, WHISTLER) == "WindowClosed"


@pytest.mark.parametrize("fallen", [False, True])
def test_a_vote_whose_own_trace_gives_another_state_falls_at_once(story: Story, fallen: bool) -> None:
    """Rule 5.5: its claim's state at the sampled segment's end has other bytes; there is nothing to play."""
    claim_id = story.accept(story.commit(Kind.TASK, 0, ANN))
    if fallen:
        story.silence(story.challenge(claim_id))
    before, burnt, stake = story.worth_of(WHISTLER), story.burnt, story.terms.verifier_stake
    proof = disprove(story, claim_id, 1)
    assert story.refuse(replace(proof, sample=1), WHISTLER) == "NotAnnounced"
    for wrong in (
        {"trace_proof": (bytes(32),)},
        {"state_proof": ()},
        {"ref": 0},
        {"data": bytes(len(proof.said.data))},
        {"leaf_proof": (bytes(32),)},
        {"node_proof": ()},
    ):
        bent = replace(proof, said=replace(proof.said, **wrong))
        story.announce_disproof(claim_id, bent)
        assert story.refuse(bent, WHISTLER) == "BadProof", wrong
    bent = replace(proof, committed=replace(proof.committed, data=proof.said.data))
    assert story.refuse(bent, WHISTLER) == "BadProof"
    story.tell(proof, WHISTLER)
    assert story.worth_of(WHISTLER) - before == stake // 2
    fee = story.terms.verifier_fee if fallen else 0
    assert story.burnt - burnt == stake - stake // 2 + fee
    assert seats(story) == 0 and story.market_state.claims[claim_id].status.valid == 0
    assert story.phase(claim_id) == (Phase.CONVICTED if fallen else Phase.ACCEPTED)
    story.announce_disproof(claim_id, proof)
    assert story.refuse(proof, WHISTLER) == "NoSuchVote"


def test_a_disproof_was_announced_with_what_the_votes_trace_says_and_where(story: Story) -> None:
    """Rule 6.2: who announces nothing that only its finder knows cannot show what it then sees of another."""
    claim_id = story.accept(story.commit(Kind.TASK, 0, ANN))
    proof = story.disproof(claim_id, 1)
    for root in (
        ZERO_DIGEST,
        story.market_state.disproof_root(StateLeaf(0, 0), proof.said.data),
        story.market_state.disproof_root(StateLeaf(1, 1), proof.said.data),
        story.market_state.disproof_root(proof.place, proof.committed.data),
    ):
        story.tell(e.Announce(claim_id, 0, VERA, root, SALT), WHISTLER)
        assert story.refuse(proof, WHISTLER) == "NotAnnounced"
    story.announce_disproof(claim_id, proof)
    assert story.refuse(proof, BOB) == "NotAnnounced"
    story.tell(proof, WHISTLER)


def test_a_vote_whose_trace_gives_the_claims_state_is_not_disproved(story: Story) -> None:
    claim_id = story.accept(story.commit(Kind.TASK, 0, ANN), honest=True)
    for slot in range(INNER.slots):
        assert story.refuse(disprove(story, claim_id, slot), WHISTLER) == "NoDifference"


def test_a_wrong_binding_takes_the_votes_that_vouched_for_it(story: Story) -> None:
    """Rule 5.1: a verifier checks the bindings of every claim that it calls valid."""
    for shard, by in ((0, ANN), (1, BOB)):
        story.accept(story.commit(Kind.TASK, shard, by))
    story.commit(Kind.OUTER, 0, ANN)
    claim_id = story.accept(story.commit(Kind.TASK, 0, ANN))
    proof = story.binding(claim_id)
    before = {who: story.worth_of(who) for who in (ANN, VERA, WHISTLER)}
    burnt = story.burnt
    story.tell(proof, WHISTLER)
    taken = story.terms.solver_stake + story.terms.verifier_stake
    assert before[ANN] - story.worth_of(ANN) == story.terms.solver_stake
    assert before[VERA] - story.worth_of(VERA) == story.terms.verifier_stake
    assert story.burnt - burnt == taken - taken // 2
    assert story.worth_of(WHISTLER) - before[WHISTLER] == taken // 2, "nothing built on it"
    assert held_back(story) == 0


def test_A8_a_false_invalid_vote_costs_missPenalty_whatever_games_are_open(story: Story) -> None:
    """Rule 4.8: its accomplice's game on the claim saves nothing; the claim's end says who was right."""
    claim_id = story.commit(Kind.TASK, 0, ANN)
    story.seed(claim_id)
    story.vote(claim_id, valid=False)
    before = story.worth_of(VERA)
    game_id = story.challenge(claim_id, CLIENT)
    story.tell(e.Tally(story.claim(claim_id)), BOB)
    assert story.worth_of(VERA) == before and seats(story) == story.terms.verifier_stake
    roots = tuple(story.scene.state(INNER) for _ in range(3))
    story.tell(e.Play(game_id, story.market_state.games[game_id].game, RevealSteps(roots)), ANN)
    story.silence(game_id)
    status = story.market_state.claims[claim_id].status
    assert (status.phase, status.shown, status.valid) == (Phase.ACCEPTED, 1, 0)
    burnt = story.burnt
    story.tell(e.Settle(story.claim(claim_id)), BOB, 2 * story.terms.challenge_window)
    assert before - story.worth_of(VERA) == story.terms.miss_penalty == story.burnt - burnt
    assert seats(story) == 0


def test_an_invalid_vote_on_a_claim_that_is_voided_costs_nothing(story: Story) -> None:
    """Rule 5.2: nobody will know."""
    wrong = story.accept(story.commit(Kind.TASK, 0, ANN))
    story.accept(story.commit(Kind.TASK, 1, BOB))
    story.commit(Kind.OUTER, 0, ANN)
    late = story.accept(story.commit(Kind.TASK, 1, BOB), valid=False)
    before = story.worth_of(VERA)
    story.silence(story.challenge(wrong))
    story.tell(e.Void(story.claim(late)), CLIENT)
    assert story.worth_of(VERA) == before


def test_a_vote_brings_a_trace_for_each_sample_and_an_invalid_one_none(story: Story) -> None:
    """Rule 4.7: in one transaction, once, by who was drawn, until voteTime is over."""
    claim_id = story.commit(Kind.TASK, 0, ANN)
    vote = e.Vote(claim_id, ZERO_DIGEST, True, (b"t" * 32,))
    assert story.refuse(vote, VERA) == "WrongPhase"
    assert story.refuse(replace(vote, claim_id=ClaimId(b"x" * 32)), VERA) == "WrongClaim"
    story.seed(claim_id)
    assert story.refuse(vote, VERA) == "WrongSeed"
    vote = replace(vote, seed=story.market_state.claims[claim_id].status.seed)
    assert story.refuse(vote, BOB) == "NotDrawn"
    assert story.refuse(replace(vote, traces=()), VERA) == "WrongTraces"
    assert story.refuse(replace(vote, traces=vote.traces * 2), VERA) == "WrongTraces"
    assert story.refuse(replace(vote, valid=False), VERA) == "WrongTraces"
    late = replace(story)
    assert late.refuse(vote, VERA, story.terms.vote_time + 1) == "TooLate"
    story.tell(vote, VERA)
    assert story.refuse(vote, VERA) == story.refuse(e.Abstain(story.claim(claim_id)), VERA) == "AlreadyVoted"
    (cast,) = (ballot.vote for ballot in story.market_state.claims[claim_id].seats())
    assert (cast.shown, cast.valid, cast.gone, cast.traces_root) == (True, True, False, b"t" * 32)
    story.tell(e.Tally(story.claim(claim_id)), BOB)
    assert story.phase(claim_id) == Phase.ACCEPTED
