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
    """Lets the clock of the player to move run out."""
    story.run_out(1)
    story.tell(e.Play(game_id, story.market_state.games[game_id].game, Timeout()), BOB)


def goes_on_without(how: str) -> tuple[Story, ClaimId, list[int]]:
    """Bob's task, about which two findings disagree; the job continues without it."""
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
def test_T53_who_wins_its_game_has_its_part_though_the_job_goes_on_without_the_claim(how: str) -> None:
    """No claim of its place will decide, so a puppet that wins first gets only half."""
    story, claim_id, (first, second) = goes_on_without(how)
    before = {who: story.worth_of(who) for who in (WHISTLER, CLIENT)}
    time_out(story, second)
    stake, bond = story.terms.solver_stake, story.terms.challenge_bond
    assert story.phase(claim_id) == Phase.CONVICTED
    state = story.market_state.claims[claim_id]
    assert (state.reward, state.winner, state.gone) == (stake // 2, CLIENT, True)
    assert story.refuse(e.ShareWon(story.claim(claim_id), state.kept), BOB) == "GamesOpen"
    time_out(story, first)
    kept = story.market_state.claims[claim_id].kept
    assert [(found.finder, found.won) for found in kept] == [(CLIENT, True), (WHISTLER, True)]
    assert story.refuse(e.ShareWon(story.claim(claim_id), kept[:1]), BOB) == "WrongFindings"
    lie = (replace(kept[0], won=False), kept[1])
    assert story.refuse(e.ShareWon(story.claim(claim_id), lie), BOB) == "WrongFindings"
    story.tell(e.ShareWon(story.claim(claim_id), kept), BOB)
    other = state.reward // 2
    assert story.worth_of(CLIENT) - before[CLIENT] == bond + state.reward - other
    assert story.worth_of(WHISTLER) - before[WHISTLER] == bond + other
    state = story.market_state.claims[claim_id]
    assert (state.reward, state.winner) == (0, ZERO_ADDRESS)
    assert story.market_state.funds.ledger.balance(SEIZED) == story.terms.verifier_fee * (how == "overtaken")
    assert story.refuse(e.ShareWon(story.claim(claim_id), kept), BOB) == "MayBeSettled"


def test_T53_a_demand_that_convicts_has_its_part_beside_a_game_that_is_won() -> None:
    """Rule 5.4: the account that convicted the claim is paid, although it has shown no root."""
    story = begin()
    claim_id = story.accept(story.commit(Kind.TASK, 0, ANN))
    story.tell(story.demand(claim_id), WHISTLER)
    ((demand_id, made),) = story.market_state.demands.items()
    story.time = Seconds(story.time + story.terms.move_time - 10)
    game = story.challenge(claim_id, BOB, OTHER)
    story.run_out(20)
    story.tell(e.ExpireDemand(demand_id, made, story.claim(claim_id)), CLIENT)
    close(story)
    time_out(story, game)
    state = story.market_state.claims[claim_id]
    assert state.winner == WHISTLER and [found.won for found in state.kept] == [True]
    before = story.free(WHISTLER), story.free(BOB)
    story.tell(e.ShareWon(story.claim(claim_id), state.kept), BOB)
    gained = story.free(WHISTLER) - before[0], story.free(BOB) - before[1]
    assert gained == (state.reward // 2, state.reward - state.reward // 2)


def disagreed() -> tuple[Story, ClaimId]:
    """Ann's task of round 0 fell to the whistler's root; Bob has shown another."""
    story = begin()
    claim_id = story.accept(story.commit(Kind.TASK, 0, ANN))
    games = [story.challenge(claim_id), story.challenge(claim_id, BOB, OTHER)]
    story.silence(games[0])
    assert story.market_state.claims[claim_id].winner == WHISTLER
    kept = story.market_state.claims[claim_id].kept
    assert story.refuse(e.ShareWon(story.claim(claim_id), kept), BOB) == "MayBeSettled"
    return story, claim_id


def close(story: Story) -> None:
    """Halt the job and close it, once nobody can commit to it any more."""
    story.tell(e.Halt(story.job_id), CLIENT)
    grace = GRACE_MOVES * story.terms.move_time
    story.tell(e.Close(story.job_id), CLIENT, grace + story.terms.task_time)


def test_a_reward_whose_finders_disagree_ends_with_its_job() -> None:
    """Rule 5.4: among those whose own games were won."""
    story, claim_id = disagreed()
    close(story)
    assert story.refuse(e.ShareWon(story.claim(claim_id), ()), BOB) == "WrongFindings"
    state = story.market_state.claims[claim_id]
    assert story.refuse(e.ShareWon(story.claim(claim_id), state.kept), BOB) == "GamesOpen"
    time_out(story, 2)
    state = story.market_state.claims[claim_id]
    assert story.refuse(e.ShareAlike(claim_id, state.kept), BOB) == "NoTruth"
    pay = e.ShareWon(story.claim(claim_id), state.kept)
    before = story.free(WHISTLER), story.free(BOB)
    story.tell(pay, BOB)
    gained = story.free(WHISTLER) - before[0], story.free(BOB) - before[1]
    assert sum(gained) == state.reward > 0 and gained[1] == state.reward // 2
    assert story.market_state.funds.ledger.balance(SEIZED) == story.terms.verifier_fee  # Vera's
    assert story.refuse(pay, BOB) == "NoReward"
    elsewhere = replace(pay.claim, job_id=JobId(b"x" * 32))
    assert story.refuse(e.ShareWon(elsewhere, ()), BOB) == "NoSuchJob"


def settle_all(story: Story) -> None:
    """Everything that is accepted, round by round, tasks first."""
    story.time += 2 * story.terms.challenge_window
    states = [state for state in story.market_state.claims.values() if state.status.phase == Phase.ACCEPTED]
    for state in sorted(states, key=lambda each: (each.claim.round, each.claim.kind)):
        story.tell(e.Settle(state.claim), CLIENT)


def test_T55_a_reward_waits_no_longer_than_a_claim_may_be_settled_at_its_place() -> None:
    """Games that only delay a reward cannot do so beyond the settlement of its round, however long the job
    lasts."""
    story = begin(**STRAGGLERS)
    story.accept(story.commit(Kind.TASK, 0, ANN))
    bobs = story.commit(Kind.TASK, 1, BOB)
    games = [story.challenge(bobs), story.challenge(bobs, CLIENT, OTHER)]
    story.silence(games[0])
    story.tell(e.Play(games[1], story.market_state.games[games[1]].game, Timeout()), BOB)
    state = story.market_state.claims[bobs]
    assert not state.gone and state.winner == WHISTLER and len(state.kept) == 2
    pay = e.ShareWon(story.claim(bobs), state.kept)
    story.time = Seconds(story.market_state.jobs[story.job_id].stragglers_end + story.terms.outer_time + 1)
    story.commit(Kind.OUTER, 0, ANN)
    assert story.refuse(pay, BOB) == "MayBeSettled"
    settle_all(story)
    assert not story.market_state.jobs[story.job_id].closed
    before = story.free(WHISTLER), story.free(CLIENT)
    story.tell(pay, BOB)
    gained = story.free(WHISTLER) - before[0], story.free(CLIENT) - before[1]
    assert gained == (state.reward - state.reward // 2, state.reward // 2)


def test_a_reward_of_a_place_that_is_settled_is_shared_by_its_claim_alone() -> None:
    story, claim_id = disagreed()
    time_out(story, 2)
    story.tell(e.TakeShard(story.job_id, 0, story.terms.price_floor), ANN)
    again = story.accept(story.commit(Kind.TASK, 0, ANN))
    story.tell(e.Halt(story.job_id), CLIENT)
    settle_all(story)
    assert story.phase(again) == Phase.SETTLED
    story.tell(e.Close(story.job_id), CLIENT, story.terms.task_time + 1)
    kept = story.market_state.claims[claim_id].kept
    assert story.refuse(e.ShareWon(story.claim(claim_id), kept), BOB) == "MayBeSettled"


@pytest.mark.parametrize("fell", ["for its input", "alone", "before an earlier one"])
def test_a_finding_about_the_input_counts_where_its_sources_or_the_winner_say_so(fell: str) -> None:
    """Rule 5.4: by felling an earlier claim a ring makes any root the right one of the input: then it has no
    more than any game that it lets itself win. Where none fell, a finding about it is right."""
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
    rings_part = {"for its input": reward // 2, "alone": reward, "before an earlier one": reward // 2}[fell]
    assert story.free(BOB) - before[1] == rings_part
    assert story.free(WHISTLER) - before[0] == reward - rings_part


@pytest.mark.parametrize("comes", [False, True])
def test_a_finding_about_an_outer_claims_input_counts_while_no_task_has_come(comes: bool) -> None:
    """Rule 5.4: once the outer claim has fallen, a shard that was missing may come, and changes the input.
    Then those share whose own games were won."""
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
    half = state.reward // 2
    assert gained == ((state.reward - half, half) if comes else (0, state.reward))
