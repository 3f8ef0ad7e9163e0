"""Tasks that their round leaves out (rule 4.3.5): it can be closed, or was fixed without them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from eth_utils.crypto import keccak

from assay.protocol.game_state import INPUT_SEGMENT
from assay.protocol.types import ZERO_ADDRESS, ZERO_DIGEST, Claim, ClaimId, Kind, Phase, Role, Seconds
from spec import events as e
from spec.claims import worth
from spec.ledger import Bucket, compensation
from tests.fakes.story import ANN, BOB, CLIENT, ROOT, SALT, VERA, WHISTLER, Story, begin

STRAGGLERS = {"min_shards": 1, "straggler_time": Seconds(2_000), "task_time": Seconds(10_000)}


def waiting(seeded: bool = True, voted: bool = True, round_: int = 0) -> tuple[Story, ClaimId]:
    """Bob's task, of whose round Ann's is accepted."""
    story = begin(**STRAGGLERS)
    for _ in range(round_):
        for shard, by in ((0, ANN), (1, BOB)):
            story.accept(story.commit(Kind.TASK, shard, by))
        story.commit(Kind.OUTER, 0, ANN)
    story.accept(story.commit(Kind.TASK, 0, ANN))
    claim_id = story.commit(Kind.TASK, 1, BOB)
    if seeded:
        story.seed(claim_id)
    if voted:
        story.vote(claim_id)
    assert story.stands(claim_id)
    return story, claim_id


def pass_by(story: Story, fixed: bool = False) -> None:
    """Ends the stragglers' time; `fixed`: the round also gets its outer claim."""
    story.time = story.market_state.jobs[story.job_id].stragglers_end + story.terms.outer_time
    if fixed:
        story.commit(Kind.OUTER, 0, ANN)


def window_end(story: Story, claim_id: ClaimId) -> Seconds:
    """Until when the claim may be challenged."""
    return Seconds(story.market_state.claims[claim_id].status.since + story.terms.challenge_window)


def stalled() -> tuple[Story, ClaimId, Seconds]:
    """Bob's task in a round in which ann's is accepted, after the stragglers' time; and when that ended."""
    story = begin(**STRAGGLERS)
    anns, bobs = story.commit(Kind.TASK, 0, ANN), story.commit(Kind.TASK, 1, BOB)
    story.time = story.market_state.jobs[story.job_id].stragglers_end + 1
    story.seed(bobs)
    story.accept(anns)
    accepted = story.market_state.claims[anns].status.since
    assert accepted == story.market_state.jobs[story.job_id].accepted_at
    return story, bobs, accepted


def test_a_round_that_was_stalled_waits_a_votes_time_for_those_that_are_voted_on() -> None:
    """Rule 4.3.1: the acceptance that makes it enough leaves nobody out at once."""
    story, bobs, accepted = stalled()
    story.vote(bobs)
    story.time = Seconds(accepted + story.terms.vote_time - 1)
    story.tell(e.Tally(story.claim(bobs)), CLIENT)
    assert story.phase(bobs) == Phase.ACCEPTED
    outer = story.commit(Kind.OUTER, 0, ANN)
    assert story.stands(outer), "it waits for nobody else"


def test_a_round_that_was_stalled_waits_no_longer() -> None:
    story, bobs, accepted = stalled()
    story.vote(bobs)
    story.time = Seconds(accepted + story.terms.vote_time)
    assert story.stands(bobs)
    assert story.refuse(e.Tally(story.claim(bobs)), CLIENT) == "NotStanding"
    story.time = Seconds(story.time + 1)
    assert not story.stands(bobs)
    story.commit(Kind.OUTER, 0, ANN)
    story.tell(e.Void(story.claim(bobs)), CLIENT, window_end(story, bobs) + 1 - story.time)
    assert story.phase(bobs) == Phase.VOID


def seed(claim: Claim) -> e.RecordSeed:
    return e.RecordSeed(claim, keccak(b"block"), e.Header(keccak(b"block"), keccak(b"randao")))


@pytest.mark.parametrize("fixed", [False, True])
def test_a_task_that_is_left_out_gets_no_seed(fixed: bool) -> None:
    story, claim_id = waiting(seeded=False, voted=False)
    pass_by(story, fixed)
    assert not story.stands(claim_id)
    assert story.refuse(seed(story.claim(claim_id)), CLIENT) == "NotStanding"
    again = replace(seed(story.claim(claim_id)), block_hash=ZERO_DIGEST)
    assert story.refuse(again, CLIENT) == "NotStanding", "nor another block for it"
    assert story.market_state.current((story.job_id, Kind.TASK, 0, 1), Seconds(story.time)) is None


@pytest.mark.parametrize("fixed", [False, True])
def test_of_a_task_that_is_left_out_nobody_is_fined_and_nobody_called(fixed: bool) -> None:
    story, claim_id = waiting(voted=False)
    pass_by(story, fixed)
    before = story.worth_of(VERA)
    story.run_out(story.terms.vote_time)
    assert story.refuse(e.Tally(story.claim(claim_id)), CLIENT) == "NotStanding"
    story.tell(e.Abstain(story.claim(claim_id)), VERA)  # long after voteTime
    assert story.worth_of(VERA) == before
    assert story.market_state.funds.locked(VERA, Role.VERIFIER) == story.terms.verifier_stake  # Ann's


def test_a_seat_of_a_task_that_stands_abstains_in_time_alone() -> None:
    story, claim_id = waiting(voted=False)
    story.run_out(story.terms.vote_time + 1)
    assert story.refuse(e.Abstain(story.claim(claim_id)), VERA) == "TooLate"


def challenges(story: Story, claim_id: ClaimId) -> dict[str, e.Event]:
    """Every kind; announced."""
    claim, disproof = story.claim(claim_id), story.disproof(claim_id, 0)
    shown = (0, ZERO_ADDRESS, ROOT), (INPUT_SEGMENT, ZERO_ADDRESS, ROOT), (0, VERA, ZERO_DIGEST)
    for segment, verifier, root in shown:
        story.tell(e.Announce(claim_id, segment, verifier, root, SALT), WHISTLER)
    story.announce_disproof(claim_id, disproof)
    return {
        "game": story.opening(claim_id),
        "input": e.OpenInput(claim, ROOT, SALT),
        "demand": story.demand(claim_id),
        "vote": story.opening_of_vote(claim_id),
        "disproof": disproof,
        "binding": story.binding(claim_id),
    }


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("by", ["game", "input", "demand", "vote", "disproof", "binding"])
def test_a_task_that_is_left_out_may_be_challenged_in_its_window(fixed: bool, by: str) -> None:
    story, claim_id = waiting(round_=1)
    pass_by(story, fixed)
    challenge = challenges(story, claim_id)[by]
    assert not story.stands(claim_id)
    story.time = window_end(story, claim_id)
    late = replace(story)
    story.tell(challenge, WHISTLER, 0)
    assert late.refuse(challenge, WHISTLER, 1) == "WindowClosed"


@pytest.mark.parametrize("fixed", [False, True])
def test_A3_a_task_that_is_left_out_is_voided_only_when_nobody_may_challenge_it(fixed: bool) -> None:
    """Its claimant cannot save its stake as soon as it sees which verifiers were drawn."""
    story, claim_id = waiting()
    void = e.Void(story.claim(claim_id))
    assert story.refuse(void, BOB) == "NotStale"
    pass_by(story, fixed)
    story.time = Seconds(window_end(story, claim_id) - 2)
    before = story.worth_of(BOB), story.worth_of(VERA), story.burnt
    assert story.refuse(void, BOB) == "NotDue" == story.refuse(void, BOB)
    story.tell(void, CLIENT)
    assert story.phase(claim_id) == Phase.VOID
    assert (story.worth_of(BOB), story.worth_of(VERA), story.burnt) == before, "nobody is paid, nobody loses"
    assert story.market_state.funds.locked(BOB, Role.SOLVER) == story.terms.miss_penalty
    assert story.market_state.funds.locked(VERA, Role.VERIFIER) == story.terms.verifier_stake  # Ann's


@pytest.mark.parametrize("fixed", [False, True])
def test_A3_a_game_of_the_windows_last_second_keeps_a_task_from_being_voided(fixed: bool) -> None:
    story, claim_id = waiting()
    void = e.Void(story.claim(claim_id))
    pass_by(story, fixed)
    story.time = Seconds(window_end(story, claim_id) - 2)
    game_id = story.challenge(claim_id)
    assert story.time == window_end(story, claim_id)
    assert story.refuse(void, BOB) == "GamesOpen"
    story.answer(game_id)
    story.silence(game_id)
    story.tell(void, BOB)


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("by", ["game", "demand", "binding"])
def test_a_task_that_is_left_out_falls_and_nothing_is_rewound(fixed: bool, by: str) -> None:
    """Its claimant pays and its shard opens; nothing counts as wasted, whatever its round has done since."""
    story, claim_id = waiting(round_=1)
    pass_by(story, fixed)
    job = story.market_state.jobs[story.job_id]
    stake, fee = story.terms.solver_stake, story.terms.verifier_fee
    before = story.worth_of(BOB), story.worth_of(WHISTLER)
    guilty = story.terms.verifier_stake if by == "binding" else 0
    if by == "game":
        story.silence(story.challenge(claim_id))
    elif by == "demand":
        story.tell(story.demand(claim_id), WHISTLER)
        ((demand_id, made),) = story.market_state.demands.items()
        lapsed = e.ExpireDemand(demand_id, made, story.claim(claim_id))
        story.run_out(story.terms.move_time + 1)
        story.tell(lapsed, CLIENT)
    else:
        story.tell(story.binding(claim_id), WHISTLER)
    assert story.phase(claim_id) == Phase.CONVICTED
    assert before[0] - story.worth_of(BOB) == stake
    pool = (stake + guilty) // 2 - (0 if guilty else fee)
    assert story.worth_of(WHISTLER) - before[1] == pool
    after = story.market_state.jobs[story.job_id]
    assert (after.rewinds, after.round, after.round_start) == (job.rewinds, job.round, job.round_start)
    assert after.shards[1].solver == ZERO_ADDRESS
    assert story.market_state.accepted(story.job_id) == (0 if fixed else 1)
    if not fixed:
        story.commit(Kind.OUTER, 0, ANN)  # the round continues


def settled(story: Story) -> None:
    """Everything that is accepted, in order, after every window."""
    story.time += 2 * story.terms.challenge_window
    for kind in (Kind.TASK, Kind.OUTER):
        for state in story.market_state.claims.values():
            if state.status.phase == Phase.ACCEPTED and state.claim.kind == kind:
                story.tell(e.Settle(state.claim), CLIENT)


@pytest.mark.parametrize("falls", [False, True])
def test_A4_a_halted_job_ends_once_its_late_task_has(falls: bool) -> None:
    """Attack A4: nobody closes the round of a halted job; its second task is never accepted."""
    story, claim_id = waiting()
    story.tell(e.Halt(story.job_id), CLIENT)
    pass_by(story)
    if falls:
        story.silence(story.challenge(claim_id))
    settled(story)
    if not falls:
        assert story.refuse(e.Close(story.job_id), CLIENT) == "NotFinished"
        story.tell(e.Void(story.claim(claim_id)), WHISTLER)
    story.tell(e.Close(story.job_id), CLIENT)
    assert story.market_state.funds.ledger.total(Bucket.ESCROW) == 0


def test_a_task_that_was_left_out_stands_again_once_its_round_begins_again() -> None:
    """Rule 4.3.5: Ann's accepted one has fallen, and the round cannot be closed any more."""
    story, claim_id = waiting(seeded=False, voted=False)
    pass_by(story)
    assert not story.stands(claim_id)
    anns = story.market_state.places[story.job_id, Kind.TASK, 0, 0]
    story.silence(story.challenge(anns))
    assert story.phase(anns) == Phase.CONVICTED and story.stands(claim_id)
    story.accept(claim_id)
    assert story.phase(claim_id) == Phase.ACCEPTED


def test_a_task_that_is_left_out_of_a_round_that_can_be_closed_is_wasted_with_it() -> None:
    """Rule 5.2: an earlier task has fallen before the round was fixed without it."""
    story, claim_id = waiting(round_=1)
    pass_by(story)
    early = story.market_state.places[story.job_id, Kind.TASK, 0, 0]
    others = [
        story.market_state.places[story.job_id, *place] for place in ((Kind.OUTER, 0, 0), (Kind.TASK, 1, 0))
    ]
    story.silence(story.challenge(early))
    due = sum(worth(story.claim(each), story.terms) for each in (claim_id, *others))
    assert story.market_state.funds.ledger.balance(compensation(story.job_id, 1)) == due
    before = story.worth_of(BOB), story.worth_of(VERA)
    story.tell(e.Void(story.claim(claim_id)), CLIENT)  # a rewind has overtaken it: at once
    assert story.worth_of(BOB) - before[0] == story.claim(claim_id).price
    assert story.worth_of(VERA) - before[1] == story.terms.verifier_fee


def test_a_round_that_can_be_closed_takes_no_further_task() -> None:
    """Rule 4.3.1: not even from a solver that has just taken its shard."""
    story = begin(**STRAGGLERS)
    story.accept(story.commit(Kind.TASK, 0, ANN))
    end = story.market_state.jobs[story.job_id].stragglers_end
    story.tell(e.Release(story.job_id, 1), BOB)
    story.time = Seconds(end - 100)
    story.tell(e.TakeShard(story.job_id, 1, story.terms.price_floor), BOB)
    claim = story.scene.claim(story.job_id, story.terms, Kind.TASK, 0, 1, story.terms.genesis_root)
    commit = e.Commit(claim, tuple(story.scene.segments[claim.segments_root].levels[0]))
    story.time = Seconds(end - 1)
    in_time = replace(story)
    in_time.tell(commit, BOB)
    assert story.refuse(commit, BOB, 2) == "TooLate"
