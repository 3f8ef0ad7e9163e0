"""Rewards that wait until it is known whose finding is right, and those that need not (rule 5.4)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from assay.protocol.dispute import Timeout
from assay.protocol.game_state import INPUT_SEGMENT
from assay.protocol.params import GRACE_MOVES
from assay.protocol.types import ZERO_ADDRESS, ClaimId, JobId, Kind, Phase, Role, Seconds, Wei
from spec import events as e
from spec.stakes import SEIZED
from tests.fakes.story import ANN, BOB, CLIENT, SALT, WHISTLER, Story, begin
from tests.twin.scene import INNER

OTHER = b"o" * 32
STRAGGLERS = {"min_shards": 1, "straggler_time": Seconds(2_000), "task_time": Seconds(10_000)}


def time_out(story: Story, game_id: int) -> None:
    """Whose move it is has let its time pass."""
    story.tell(e.Play(game_id, story.market_state.games[game_id].game, Timeout()), BOB)


def goes_on_without(how: str) -> tuple[Story, ClaimId, list[int]]:
    """Bob's task, about which two disagree; the job goes on without it."""
    story = begin(**STRAGGLERS)
    anns = story.accept(story.commit(Kind.TASK, 0, ANN))
    if how == "overtaken":
        story.accept(story.commit(Kind.TASK, 1, BOB))
        story.commit(Kind.OUTER, 0, ANN)
    bobs = story.commit(Kind.TASK, 1, BOB)
    end = story.market_state.jobs[story.job_id].stragglers_end
    story.time = story.time if how == "overtaken" else end - 10
    games = [story.challenge(bobs), story.challenge(bobs, CLIENT, OTHER)]
    if how == "overtaken":
        story.silence(story.challenge(anns, CLIENT))
    else:
        story.time = Seconds(end + story.terms.move_time)
    if how == "left out":
        story.commit(Kind.OUTER, 0, ANN)
    return story, bobs, games


@pytest.mark.parametrize("how", ["overtaken", "late", "left out"])
def test_who_convicts_a_claim_that_its_job_goes_on_without_is_paid_at_once(how: str) -> None:
    """Whatever others say of it: no claim of its place will tell who was right."""
    story, claim_id, (first, second) = goes_on_without(how)
    before = {who: story.worth_of(who) for who in (WHISTLER, CLIENT)}
    time_out(story, first)
    stake, bond = story.terms.solver_stake, story.terms.challenge_bond
    assert story.phase(claim_id) == Phase.CONVICTED
    assert story.worth_of(WHISTLER) - before[WHISTLER] == stake // 2 + bond
    time_out(story, second)
    assert story.worth_of(CLIENT) - before[CLIENT] == bond
    state = story.market_state.claims[claim_id]
    assert (state.reward, state.winner, state.kept) == (0, ZERO_ADDRESS, ())
    assert story.market_state.funds.ledger.balance(SEIZED) == story.terms.verifier_fee * (how == "overtaken")


def disagreed() -> tuple[Story, ClaimId]:
    """Ann's task of round 0 fell to the whistler's root; Bob has shown another."""
    story = begin()
    claim_id = story.accept(story.commit(Kind.TASK, 0, ANN))
    games = [story.challenge(claim_id), story.challenge(claim_id, BOB, OTHER)]
    story.silence(games[0])
    assert story.market_state.claims[claim_id].winner == WHISTLER
    assert story.refuse(e.PayUnsettled(story.claim(claim_id)), BOB) == "MayBeSettled"
    return story, claim_id


def close(story: Story) -> None:
    """Halt the job and close it, once nobody can commit to it any more."""
    story.tell(e.Halt(story.job_id), CLIENT)
    grace = GRACE_MOVES * story.terms.move_time
    story.tell(e.Close(story.job_id), CLIENT, grace + story.terms.task_time)


def test_a_reward_whose_finders_disagree_ends_with_its_job() -> None:
    """Rule 5.4: nobody who has shown another root keeps it from who convicted the claim."""
    story, claim_id = disagreed()
    close(story)
    pay = e.PayUnsettled(story.claim(claim_id))
    assert story.refuse(pay, BOB) == "GamesOpen"
    time_out(story, 2)
    state = story.market_state.claims[claim_id]
    assert story.refuse(e.ShareAlike(claim_id, state.kept), BOB) == "NoTruth"
    before = story.free(WHISTLER)
    story.tell(pay, BOB)
    assert story.free(WHISTLER) - before == state.reward > 0
    assert story.market_state.funds.ledger.balance(SEIZED) == story.terms.verifier_fee  # Vera's
    assert story.refuse(pay, BOB) == "NoReward"
    elsewhere = replace(pay.claim, job_id=JobId(b"x" * 32))
    assert story.refuse(e.PayUnsettled(elsewhere), BOB) == "NoSuchJob"


def settle_all(story: Story) -> None:
    """Everything that is accepted, round by round, tasks first."""
    story.time += 2 * story.terms.challenge_window
    states = [state for state in story.market_state.claims.values() if state.status.phase == Phase.ACCEPTED]
    for state in sorted(states, key=lambda each: (each.claim.round, each.claim.kind)):
        story.tell(e.Settle(state.claim), CLIENT)


def test_a_reward_of_a_place_that_is_settled_is_shared_by_its_claim_alone() -> None:
    story, claim_id = disagreed()
    time_out(story, 2)
    story.tell(e.TakeShard(story.job_id, 0, story.terms.price_floor), ANN)
    again = story.accept(story.commit(Kind.TASK, 0, ANN))
    story.tell(e.Halt(story.job_id), CLIENT)
    settle_all(story)
    assert story.phase(again) == Phase.SETTLED
    story.tell(e.Close(story.job_id), CLIENT, story.terms.task_time + 1)
    assert story.refuse(e.PayUnsettled(story.claim(claim_id)), BOB) == "MayBeSettled"


@pytest.mark.parametrize("fell", ["for its input", "alone", "before an earlier one"])
def test_a_finding_about_the_input_counts_where_its_sources_or_the_winner_say_so(fell: str) -> None:
    """Rule 5.4: by felling an earlier claim a ring makes any root the right one of the input. Where none
    fell, a finding about it is right, whatever the claim fell for."""
    story, by_input = begin(), fell == "for its input"
    for shard, by in ((0, ANN), (1, BOB)):
        story.accept(story.commit(Kind.TASK, shard, by))
    outer = story.commit(Kind.OUTER, 0, ANN)
    fallen = story.commit(Kind.TASK, 0, ANN)
    root = story.scene.state(INNER)
    story.tell(e.Announce(fallen, INPUT_SEGMENT, ZERO_ADDRESS, root, SALT), BOB)
    whistlers = story.challenge_input(fallen, root=root) if by_input else story.challenge(fallen)
    rings = story.challenge_input(fallen, BOB, root)
    story.silence(whistlers)
    time_out(story, rings)
    reward, kept = story.market_state.claims[fallen].reward, story.market_state.claims[fallen].kept
    assert story.market_state.claims[fallen].winner == WHISTLER and len(kept) == 2
    story.tell(e.TakeShard(story.job_id, 0, story.terms.price_floor), ANN)
    if fell == "before an earlier one":
        story.tell(e.Stake(Role.SOLVER, Wei(5_000)), ANN)
        story.silence(story.challenge(outer, CLIENT))
        story.commit(Kind.OUTER, 0, ANN)
    settled = story.accept(story.commit(Kind.TASK, 0, ANN, root))
    settle_all(story)
    assert story.phase(settled) == Phase.SETTLED
    claims = story.claim(fallen), story.claim(settled)
    roots = [tuple(story.scene.segments[claim.segments_root].levels[0]) for claim in claims]
    before = story.free(WHISTLER), story.free(BOB)
    story.tell(e.Share(claims[0], roots[0], claims[1], roots[1], kept), CLIENT)
    rings_part = {"for its input": reward // 2, "alone": reward, "before an earlier one": 0}[fell]
    assert story.free(BOB) - before[1] == rings_part
    assert story.free(WHISTLER) - before[0] == reward - rings_part


@pytest.mark.parametrize("comes", [False, True])
def test_a_finding_about_an_outer_claims_input_counts_while_no_task_has_come(comes: bool) -> None:
    """Rule 5.4: once the outer claim has fallen, a shard that was missing may come, and changes the input."""
    story = begin(**STRAGGLERS)
    story.accept(story.commit(Kind.TASK, 0, ANN))
    story.time = story.market_state.jobs[story.job_id].stragglers_end + 1
    fallen = story.commit(Kind.OUTER, 0, ANN)
    root = story.scene.state(INNER)
    story.tell(e.Announce(fallen, INPUT_SEGMENT, ZERO_ADDRESS, root, SALT), BOB)
    whistlers, bobs = story.challenge(fallen), story.challenge_input(fallen, BOB, root)
    story.silence(whistlers)
    time_out(story, bobs)
    state = story.market_state.claims[fallen]
    if comes:
        story.accept(story.commit(Kind.TASK, 1, BOB))
    story.time = story.market_state.jobs[story.job_id].stragglers_end + 1
    settled = story.commit(Kind.OUTER, 0, ANN, root)
    settle_all(story)
    claims = story.claim(fallen), story.claim(settled)
    roots = [tuple(story.scene.segments[claim.segments_root].levels[0]) for claim in claims]
    before = story.free(WHISTLER), story.free(BOB)
    story.tell(e.Share(claims[0], roots[0], claims[1], roots[1], state.kept), CLIENT)
    gained = story.free(WHISTLER) - before[0], story.free(BOB) - before[1]
    assert gained == ((state.reward, 0) if comes else (0, state.reward))
