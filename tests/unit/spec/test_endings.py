"""Invariant 21 by exhaustion: each kind of lock in each state, the call that ends it, and by when.

The call is an outsider's, or the owner's own where the lock is nobody else's business: a shard that is held,
stake that is unbonding, a job's escrow (its client halts, anybody closes).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from itertools import product

import pytest

from assay.protocol.params import MAX_CALLS
from assay.protocol.types import ClaimId, Kind, Phase, Role, Seconds, Terms, Wei
from spec import events as e
from spec.ledger import Bucket, escrow
from spec.market_state import MarketState
from tests.fakes.outsider import SLACK, Ended, bonds, bound, end_all, stakes_in_claims
from tests.fakes.story import ANN, BOB, CLIENT, WHISTLER, Story, begin

STRAGGLERS = {"min_shards": 1, "straggler_time": Seconds(2_000), "task_time": Seconds(10_000)}
Amount = Callable[[MarketState], int]


class Standing(Enum):
    """State of the claim's place in its job."""

    STANDS = auto()
    OVERTAKEN = auto()
    LEFT_OUT = auto()
    LATE = auto()
    """Its round can be closed without it, and nobody does: it is left out as long as that is so."""


class Dispute(Enum):
    """The open dispute on the claim. ANSWERED: a game in which it is the challenger's move."""

    NONE = auto()
    GAME = auto()
    ANSWERED = auto()
    DEMAND = auto()


class Seat(Enum):
    """State of the seat of the claim's one verifier."""

    SILENT = auto()
    VALID = auto()
    INVALID = auto()


@dataclass(frozen=True)
class State:
    """One state of a claim that is not over."""

    phase: Phase
    standing: Standing
    dispute: Dispute
    seat: Seat

    @property
    def falls(self) -> bool:
        """Whether its claimant loses what is open on it by doing nothing."""
        return self.dispute in (Dispute.GAME, Dispute.DEMAND)

    @property
    def decides(self) -> type[e.Event]:
        """The event that ends the dispute."""
        return e.ExpireDemand if self.dispute == Dispute.DEMAND else e.Play


def states() -> Iterator[State]:
    """All valid combinations."""
    for phase, standing, dispute, seat in product(
        (Phase.COMMITTED, Phase.SEEDED, Phase.ACCEPTED), Standing, Dispute, Seat
    ):
        accepted, drawn = phase == Phase.ACCEPTED, phase != Phase.COMMITTED
        if accepted and standing in (Standing.LEFT_OUT, Standing.LATE):
            continue  # it is part of its round
        if not drawn and seat != Seat.SILENT:
            continue
        yield State(phase, standing, dispute, seat)


def bring_about(state: State) -> tuple[Story, ClaimId]:
    """A market with bob's task in this state; ann's is right and accepted at the same time or earlier."""
    story = begin(**STRAGGLERS)
    first = story.accept(story.commit(Kind.TASK, 0, ANN))
    if state.standing == Standing.OVERTAKEN:
        story.accept(story.commit(Kind.TASK, 1, BOB))
        story.commit(Kind.OUTER, 0, ANN)
    claim_id = story.commit(Kind.TASK, 1, BOB)
    if state.phase != Phase.COMMITTED:
        story.seed(claim_id)
        if state.seat != Seat.SILENT:
            story.vote(claim_id, valid=state.seat == Seat.VALID)
    if state.phase == Phase.ACCEPTED:
        if state.seat == Seat.SILENT:
            story.run_out(story.terms.vote_time + 1)
        story.tell(e.Tally(story.claim(claim_id)), CLIENT)
    if state.standing in (Standing.LEFT_OUT, Standing.LATE):
        story.time = story.market_state.jobs[story.job_id].stragglers_end - 10
    dispute(story, claim_id, state.dispute)
    if state.standing == Standing.OVERTAKEN:
        story.silence(story.challenge(first, CLIENT))
    if state.standing in (Standing.LEFT_OUT, Standing.LATE):
        story.time += 11
    if state.standing == Standing.LEFT_OUT:
        story.commit(Kind.OUTER, 0, ANN)
    now = story.market_state.claims[claim_id]
    assert now.status.phase == state.phase and now.live
    assert story.stands(claim_id) == (state.standing == Standing.STANDS)
    late = story.market_state.closable(story.job_id, Seconds(story.time))
    assert state.standing != Standing.LATE or late
    assert (now.status.open_games > 0) == (state.dispute != Dispute.NONE)
    return story, claim_id


def dispute(story: Story, claim_id: ClaimId, kind: Dispute) -> None:
    if kind in (Dispute.GAME, Dispute.ANSWERED):
        game_id = story.challenge(claim_id)
        if kind == Dispute.ANSWERED:
            story.answer(game_id)
    if kind == Dispute.DEMAND:
        story.tell(story.demand(claim_id), WHISTLER)


def stake_behind(claim_id: ClaimId) -> Amount:
    """Stake that the claim locks of its claimant (invariant 5)."""

    def amount(market: MarketState) -> int:
        state = market.claims[claim_id]
        return market.jobs[state.claim.job_id].terms.solver_stake if state.live else 0

    return amount


def seats_on(claim_id: ClaimId) -> Amount:
    """Stake that the claim locks of its verifiers."""

    def amount(market: MarketState) -> int:
        state = market.claims[claim_id]
        held = state.held() if state.live or state.status.phase == Phase.CONVICTED else []
        return len(held) * market.jobs[state.claim.job_id].terms.verifier_stake

    return amount


def outsider_ends(story: Story) -> list[Ended]:
    """Actions of an outsider until everything has ended."""
    most = bound(story.terms)
    roots = story.scene.segments
    after, done = end_all(story.market_state, Seconds(story.time), story.block, most, roots=roots)
    assert stakes_in_claims(after) == 0 and bonds(after) == 0
    return done


def freed_by(done: list[Ended], amount: Amount) -> Ended:
    """The event by which the amount, which was more than nothing, became nothing for good."""
    assert amount(done[0].before) > 0 and amount(done[-1].after) == 0
    return next(each for each in reversed(done) if amount(each.before) > 0 and amount(each.after) == 0)


def stakes_end(state: State) -> type[e.Event]:
    """The event that frees or takes the solver's stake."""
    if state.falls:
        return state.decides
    return e.Settle if state.standing == Standing.STANDS else e.Void


def seats_end(state: State) -> type[e.Event]:
    """The event that frees the verifier's stake, or what is left of it."""
    if state.seat == Seat.SILENT:
        # Fined before its claim's dispute is decided, if that takes longer.
        return e.Tally if state.standing == Standing.STANDS and not state.falls else stakes_end(state)
    return e.FreeSeats if state.falls else stakes_end(state)


def times(terms: Terms, standing: Standing) -> dict[type[e.Event], int]:
    """After how long each of these has ended what it ends, at most."""
    votes, window = (1 + MAX_CALLS) * terms.vote_time, terms.challenge_window
    return {
        e.Play: terms.move_time,
        e.ExpireDemand: terms.move_time,
        e.Void: terms.move_time if standing == Standing.OVERTAKEN else window,
        e.Tally: votes,
        e.FreeSeats: terms.move_time + window,
        e.Settle: votes + 2 * window,
    }


@pytest.mark.parametrize(
    "state", list(states()), ids=lambda s: "-".join(part.name for part in vars(s).values())
)
def test_Invariant21_every_lock_of_a_claim_ends_in_time_by_an_outsiders_call(state: State) -> None:
    story, claim_id = bring_about(state)
    done = outsider_ends(story)
    ends = {"stake": (freed_by(done, stake_behind(claim_id)), stakes_end(state))}
    if seats_on(claim_id)(story.market_state) > 0:
        ends["seat"] = freed_by(done, seats_on(claim_id)), seats_end(state)
    if state.dispute != Dispute.NONE:
        ends["bond"] = freed_by(done, bonds), state.decides
    for kind, (ended, expected) in ends.items():
        assert type(ended.event) is expected, kind
        assert ended.time - story.time <= times(story.terms, state.standing)[expected] + SLACK, kind


def test_Invariant21_there_are_as_many_states_as_are_meant() -> None:
    """COMMITTED and SEEDED in every standing, ACCEPTED in two; each under every dispute."""
    assert len(list(states())) == 4 * (4 * 1 + 4 * 3 + 2 * 3)


@pytest.mark.parametrize("valid", [True, False])
@pytest.mark.parametrize("played", [False, True])
def test_Invariant21_a_seat_of_a_fallen_claim_ends_after_its_window(valid: bool, played: bool) -> None:
    """CONVICTED; `played`: its vote is in a game that is opened in the window's last second."""
    story = begin()
    claim_id = story.accept(story.commit(Kind.TASK, 0, ANN), valid)
    story.silence(story.challenge(claim_id))
    fell, window = story.time, story.terms.challenge_window
    if played and valid:
        story.time = fell + window - 2
        story.challenge_vote(claim_id)
    ended = freed_by(outsider_ends(story), seats_on(claim_id))
    assert type(ended.event) is (e.Play if played and valid else e.FreeSeats)
    assert ended.time <= fell + window + (story.terms.move_time if played else 0) + SLACK


def test_Invariant21_a_kept_reward_ends_where_its_finders_agree() -> None:
    """Rule 5.4: at once."""
    story = begin()
    claim_id = story.accept(story.commit(Kind.TASK, 0, ANN))
    first, second = story.challenge(claim_id), story.challenge(claim_id, BOB)
    story.silence(first)
    assert second in story.market_state.games
    ended = freed_by(outsider_ends(story), lambda market: market.claims[claim_id].reward)
    assert type(ended.event) is e.ShareAlike
    assert ended.time - story.time <= story.terms.move_time + SLACK


@pytest.mark.parametrize("again", [False, True])
def test_Invariant21_a_kept_reward_on_which_finders_disagree_ends_too(again: bool) -> None:
    """`again`: another has computed the claim's place again; otherwise nobody does, and the job is halted."""
    story = begin()
    claim_id = story.accept(story.commit(Kind.TASK, 0, ANN))
    story.challenge(claim_id, BOB, b"o" * 32)
    story.silence(story.challenge(claim_id))
    if again:
        story.tell(e.TakeShard(story.job_id, 0, story.terms.price_floor), ANN)
        story.accept(story.commit(Kind.TASK, 0, ANN))
    story.tell(e.Halt(story.job_id), CLIENT)
    ended = freed_by(outsider_ends(story), lambda market: market.claims[claim_id].reward)
    assert type(ended.event) is (e.Share if again else e.ShareWon)
    assert ended.time - story.time <= bound(story.terms)


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("halted", [False, True])
def test_Invariant21_a_jobs_escrow_ends_once_its_client_halts_it(begun: bool, halted: bool) -> None:
    """`begun`: its solvers have left a task accepted, and one uncommitted; `halted`: before they left."""
    story = begin()
    if halted:
        story.tell(e.Halt(story.job_id), CLIENT)
    if begun:
        story.accept(story.commit(Kind.TASK, 0, ANN))
    if not halted:
        story.tell(e.Halt(story.job_id), CLIENT)
    ended = freed_by(outsider_ends(story), lambda market: market.funds.ledger.balance(escrow(story.job_id)))
    assert type(ended.event) is e.Close
    assert ended.time - story.time <= bound(story.terms)


def test_Invariant21_who_holds_a_shard_or_unbonds_asks_nobody() -> None:
    """By its own calls: `release` at any time, even for an ended job, and `finishUnbond` once it is due."""
    story = begin()
    story.tell(e.StartUnbond(Role.SOLVER, Wei(100)), ANN)
    story.tell(e.Halt(story.job_id), CLIENT)
    story.tell(e.Close(story.job_id), BOB, story.terms.task_time + 1)
    story.tell(e.Release(story.job_id, 0), ANN)
    assert story.market_state.funds.locked(ANN, Role.SOLVER) == 0
    story.tell(e.FinishUnbond(Role.SOLVER, 0), ANN, story.market_state.deployment.unbond_delay)
    assert story.market_state.funds.ledger.total(Bucket.UNBONDING) == 0
