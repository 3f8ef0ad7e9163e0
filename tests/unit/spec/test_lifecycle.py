"""The market's rules in scenes that docs/protocol.md tells in words; random lives are in tests/property."""

from __future__ import annotations

from dataclasses import replace

import pytest
from eth_utils.crypto import keccak

from assay.protocol import sampling
from assay.protocol.dispute import RevealSteps
from assay.protocol.keys import Consent
from assay.protocol.params import worst_case
from assay.protocol.types import ZERO_ADDRESS, ZERO_DIGEST, Address, Kind, Phase, Role, Seconds, Wei
from spec import events as e
from spec.attestations import SEED_PATIENCE
from spec.claims import worth
from spec.ledger import Bucket, bond, compensation
from spec.lifecycle import Refused
from tests.fakes.story import ANN, BOB, CLIENT, VERA, WHISTLER, Story, begin
from tests.twin.scene import INNER


@pytest.fixture
def story() -> Story:
    return begin()


def test_a_conviction_burns_half_pays_wasted_work_and_rewinds(story: Story) -> None:
    """Rules 5.1 and 5.2, unit by unit."""
    terms = story.market_state.jobs[story.job_id].terms
    wrong = story.accept(story.commit(Kind.TASK, 0, ANN))
    right = story.accept(story.commit(Kind.TASK, 1, BOB))
    outer = story.commit(Kind.OUTER, 0, ANN)
    anns, bobs = story.commit(Kind.TASK, 0, ANN), story.commit(Kind.TASK, 1, BOB)
    claims = {claim_id: story.market_state.claims[claim_id].claim for claim_id in (outer, anns, bobs)}
    game_id = story.challenge(wrong)
    before = {who: story.free(who) for who in (ANN, BOB, WHISTLER)}
    story.silence(game_id)

    burnt, pool = terms.solver_stake - terms.solver_stake // 2, terms.solver_stake // 2
    set_aside = sum(worth(claim, terms) for claim in claims.values())
    ledger = story.market_state.funds.ledger
    assert (ledger.burnt, story.phase(wrong)) == (burnt, Phase.CONVICTED)
    reward = pool - set_aside - terms.verifier_fee + terms.challenge_bond
    assert story.free(WHISTLER) - before[WHISTLER] == reward
    assert ledger.balance(compensation(story.job_id, 1)) == set_aside
    progress = story.market_state.progress(story.job_id, Seconds(story.time))
    assert (progress.round, progress.rewinds, progress.round_start) == (0, 1, story.time)
    assert story.market_state.holder(story.job_id, 0).solver == ZERO_ADDRESS
    assert story.market_state.holder(story.job_id, 1).solver == BOB
    there = story.market_state.current((story.job_id, Kind.TASK, 0, 1), Seconds(story.time))
    assert there == right and not any(story.stands(claim_id) for claim_id in (outer, anns, bobs))

    assert story.refuse(e.Void(story.market_state.claims[right].claim), BOB) == "NotStale"
    for claim_id in (outer, bobs, anns):
        story.tell(e.Void(story.market_state.claims[claim_id].claim), CLIENT)
    share = claims[bobs].price
    assert 0 < share < set_aside
    assert story.free(BOB) - before[BOB] == share, "in full; nobody had voted yet"
    assert story.free(ANN) == before[ANN]
    assert story.market_state.funds.ledger.burnt == burnt + set_aside - share
    assert story.market_state.funds.ledger.balance(compensation(story.job_id, 1)) == 0
    # Bob's standing task, its vote, his shard; and the vote on the claim that fell
    assert story.locked() == terms.solver_stake + 2 * terms.verifier_stake + terms.miss_penalty
    assert story.refuse(e.Settle(story.market_state.claims[bobs].claim), BOB) == "WrongPhase"


def test_a_lost_challenge_pays_the_defender_half_its_bond(story: Story) -> None:
    """Rule 5.3; attack 16: a challenger who loses on purpose clears nothing."""
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


def test_a_convicted_vote_is_not_paid_and_acceptance_stands(story: Story) -> None:
    """Rule 5.3; attack 9."""
    terms = story.market_state.jobs[story.job_id].terms
    claim_id = story.accept(story.commit(Kind.TASK, 0, ANN))
    before = story.free(WHISTLER)
    story.silence(story.challenge_vote(claim_id))
    assert story.free(WHISTLER) - before == terms.verifier_stake // 2
    assert (story.phase(claim_id), story.market_state.claims[claim_id].status.valid) == (Phase.ACCEPTED, 0)
    fee_before = story.free(VERA)
    assert story.refuse(e.Settle(story.market_state.claims[claim_id].claim), CLIENT, 150_000) == "NotDue"
    story.tell(e.Settle(story.market_state.claims[claim_id].claim), CLIENT, 50_000)  # it was not attested
    assert story.free(VERA) == fee_before
    assert story.locked() == 2 * terms.miss_penalty  # the shards


def test_whoever_is_silent_pays_and_another_is_called_to_the_seat(story: Story) -> None:
    """Rule 4.7, attacks 32 and R5: silence costs missPenalty of what the draw locked, abstaining nothing."""
    terms = story.market_state.jobs[story.job_id].terms
    for account in (WHISTLER, CLIENT):
        story.tell(e.Subscribe(terms.class_id), account)
        story.tell(e.Stake(Role.VERIFIER, Wei(5_000)), account)
    claim_id = story.commit(Kind.TASK, 0, ANN)
    story.seed(claim_id)
    claim, seed = story.market_state.claims[claim_id].claim, story.market_state.claims[claim_id].status.seed
    (silent,) = story.market_state.claims[claim_id].drawn
    assert story.market_state.funds.locked(silent, Role.VERIFIER) == terms.verifier_stake
    assert story.refuse(e.Tally(claim), ANN) == "NotDue"
    story.tell(e.Tally(claim), ANN, terms.vote_time + 1)
    assert story.market_state.funds.active(silent, Role.VERIFIER) == 5_000 - terms.miss_penalty
    assert story.market_state.funds.locked(silent, Role.VERIFIER) == 0
    state = story.market_state.claims[claim_id]
    called = state.drawn[1]
    assert (state.status.calls, state.status.seed, state.status.phase) == (1, seed, Phase.SEEDED)
    story.tell(e.Abstain(claim), called)
    assert story.market_state.funds.active(called, Role.VERIFIER) == 5_000
    assert story.market_state.funds.locked(called, Role.VERIFIER) == 0
    story.tell(e.Tally(claim), ANN)
    last = story.market_state.claims[claim_id].drawn[2]
    story.tell(e.Abstain(claim), last)
    story.tell(e.Tally(claim), ANN)
    state = story.market_state.claims[claim_id]
    assert (state.status.phase, state.status.valid) == (Phase.ACCEPTED, 0)
    assert state.window_end(terms) == state.status.since + 2 * terms.challenge_window


def test_attack_29_a_seed_comes_from_the_header_and_from_the_hash_only_in_the_end(story: Story) -> None:
    """Rule 4.5."""
    claim_id = story.commit(Kind.TASK, 0, ANN)
    claim, seed_block = (
        story.market_state.claims[claim_id].claim,
        story.market_state.claims[claim_id].status.seed_block,
    )
    block_hash, randao = keccak(b"block"), keccak(b"randao")

    def refusal(header: e.Header | None) -> str:
        with pytest.raises(Refused) as refused:
            story.tell(e.RecordSeed(claim, block_hash, header), BOB)
        return refused.value.error

    def seed(header: e.Header | None) -> bytes:
        after = replace(story)
        after.tell(e.RecordSeed(claim, block_hash, header), BOB)
        return after.market_state.claims[claim_id].status.seed

    story.block = seed_block
    assert seed(e.Header(block_hash, randao)) == sampling.claim_seed(randao, claim_id)
    assert refusal(e.Header(keccak(b"another"), randao)) == "WrongHeader"
    assert refusal(e.Header(block_hash, ZERO_DIGEST)) == "NoRandao"
    story.block = seed_block + SEED_PATIENCE - 3  # `tell` takes three blocks
    assert refusal(None) == "HeaderAwaited"
    story.block = seed_block + SEED_PATIENCE - 2
    assert refusal(e.Header(block_hash, ZERO_DIGEST)) == "NoRandao"
    story.block = seed_block + SEED_PATIENCE - 2
    assert seed(None) == sampling.claim_seed(block_hash, claim_id)


def test_a_seed_that_the_history_has_lost_gives_another_seed_block(story: Story) -> None:
    """Rule 4.5."""
    claim_id = story.commit(Kind.TASK, 0, ANN)
    claim = story.market_state.claims[claim_id].claim
    story.tell(e.RecordSeed(claim, ZERO_DIGEST, None), BOB)  # the history no longer holds the seed block
    status = story.market_state.claims[claim_id].status
    assert (status.phase, status.seed_block) == (Phase.COMMITTED, story.block + 2)
    story.seed(claim_id)
    assert story.phase(claim_id) == Phase.SEEDED


def test_a_commit_of_before_a_rewind_is_refused_after_it(story: Story) -> None:
    """Rule 4.3: one slot of its input may be another one now."""
    terms = story.market_state.jobs[story.job_id].terms
    wrong = story.accept(story.commit(Kind.TASK, 0, ANN))
    claim = story.scene.claim(story.job_id, terms, Kind.TASK, 0, 1, terms.genesis_root)
    roots = tuple(story.scene.segments[claim.segments_root].levels[0])
    story.silence(story.challenge(wrong))
    assert story.market_state.progress(story.job_id, Seconds(story.time)).rewinds == 1
    assert story.refuse(e.Commit(claim, roots), BOB) == "RewoundSince"
    story.tell(e.Commit(replace(claim, rewinds=1), roots), BOB)


def test_a_shard_is_not_taken_below_the_least_price(story: Story) -> None:
    """Rule 4.2."""
    terms = story.market_state.jobs[story.job_id].terms
    story.tell(e.Release(story.job_id, 0), ANN)
    assert terms.price_floor < terms.price_cap
    assert story.refuse(e.TakeShard(story.job_id, 0, Wei(terms.price_cap)), ANN, 0) == "PriceBelow"
    story.tell(e.TakeShard(story.job_id, 0, Wei(terms.price_cap)), ANN, terms.price_period)


def test_what_is_held_up_by_a_full_pipeline_gets_its_time_back(story: Story) -> None:
    """Rule 4.3: the clock of tasks that could not be committed starts when the pipeline does."""
    terms = story.market_state.jobs[story.job_id].terms
    tasks = []
    for round_ in range(2):
        tasks.append([story.accept(story.commit(Kind.TASK, s, by)) for s, by in ((0, ANN), (1, BOB))])
        tasks[-1].append(story.commit(Kind.OUTER, 0, ANN if round_ % 2 == 0 else BOB))
    claim = story.scene.claim(story.job_id, terms, Kind.TASK, 2, 0, story.scene.state(INNER))
    roots = tuple(story.scene.segments[claim.segments_root].levels[0])
    assert story.refuse(e.Commit(claim, roots), ANN) == "PipelineFull"
    assert story.refuse(e.Expire(story.job_id, 0), BOB, terms.task_time + 1) == "NotDue"
    first, second, outer = (story.market_state.claims[c].claim for c in tasks[0])
    assert story.refuse(e.Settle(outer), BOB, 200_000) == "EarlierUnsettled"
    for settled in (first, second, outer):
        story.tell(e.Settle(settled), BOB)
    assert story.market_state.progress(story.job_id, Seconds(story.time)).round_start == story.time
    assert story.refuse(e.Expire(story.job_id, 0), BOB, terms.task_time - 5) == "NotDue"
    story.tell(e.Commit(claim, roots), ANN)
    story.tell(e.Expire(story.job_id, 1), ANN, 6)
    assert story.market_state.holder(story.job_id, 1).solver == ZERO_ADDRESS


def test_a_halted_job_refunds_what_no_round_needs(story: Story) -> None:
    story.tell(e.Halt(story.job_id), CLIENT)
    assert story.refuse(e.Halt(story.job_id), CLIENT) == "JobEnded"
    assert story.refuse(e.Close(story.job_id), ANN) == "NotFinished"
    before = story.free(CLIENT)
    terms = story.market_state.jobs[story.job_id].terms
    story.tell(e.Close(story.job_id), ANN, terms.task_time + 5)
    assert story.free(CLIENT) - before == worst_case(terms)
    assert story.market_state.funds.ledger.total(Bucket.ESCROW) == 0
    assert story.refuse(e.TopUp(story.job_id, Wei(1)), CLIENT) == "JobEnded"


def test_who_owns_a_shards_holder_gives_it_back(story: Story) -> None:
    """Rules 4.2 and 7.1: a key that is lost or stolen never would."""
    signed = Consent(WHISTLER, ANN, 0, Seconds(10**6))
    assert story.refuse(e.Release(story.job_id, 0), WHISTLER) == "NotHolder"
    story.tell(e.Bind(ANN, Seconds(10**6), signed), WHISTLER)
    locked = story.market_state.funds.locked(ANN, Role.SOLVER)
    story.tell(e.Release(story.job_id, 0), WHISTLER)
    freed = locked - story.market_state.funds.locked(ANN, Role.SOLVER)
    assert freed == story.market_state.jobs[story.job_id].terms.miss_penalty > 0
    assert story.refuse(e.Release(story.job_id, 1), WHISTLER) == "NotHolder", "another's"
    assert story.refuse(e.Release(story.job_id, 0), WHISTLER) == "NotHolder", "nobody's"


def test_a_refused_event_changes_nothing(story: Story) -> None:
    before = story.market_state
    assert story.refuse(e.Stake(Role.SOLVER, Wei(10**9)), ANN) == "InsufficientBalance"
    assert story.refuse(e.TakeShard(story.job_id, 0, Wei(0)), BOB) == "ShardTaken"
    assert story.refuse(e.Post(before.jobs[story.job_id].terms, Wei(10**5)), CLIENT) == "JobExists"
    assert story.market_state is before


def test_R6_who_is_owned_stakes_for_nobody(story: Story) -> None:
    def bind(operator: Address, owner: Address) -> None:
        expiry = Seconds(story.time + 100)
        nonce = story.market_state.keys.nonce(operator)
        story.tell(e.Bind(operator, expiry, Consent(owner, operator, nonce, expiry)), owner)

    bind(BOB, VERA)
    story.tell(e.Stake(Role.SOLVER, Wei(5), BOB), VERA)
    bind(VERA, ANN)
    assert story.refuse(e.Stake(Role.SOLVER, Wei(5), BOB), VERA) == "NotOwner"
    story.tell(e.Stake(Role.SOLVER, Wei(5), VERA), ANN)
