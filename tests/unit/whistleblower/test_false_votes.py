"""Votes on claims that fall: those that vouched for what is false are disputed, all others are paid."""

from __future__ import annotations

from functools import partial

from assay.protocol import sampling
from assay.protocol.errors import Reverted
from assay.protocol.types import ClaimView, JobId, Kind, Phase, Role
from drills.orders import WeightPlan
from drills.solvers import FaultySolver
from drills.verifiers import ColludingVerifier, LazyVerifier
from tests.fakes.jobs import account
from tests.fakes.market_day import MarketDay

STAKE, VERIFIER_STAKE = 1_000, 50
"""Each verifier's stake, and the stake that a seat locks."""


def lied_to(day: MarketDay, samples: int, nonce: int = 1, **kinds: object) -> JobId:
    """A job of one task, whose solver changes a weight in segment 1; `kinds` of verifiers by name."""
    job_id = day.post(rounds=1, shards=1, samples=samples, nonce=nonce)
    day.solver("ann", partial(FaultySolver, plan=WeightPlan(0, 3, 0, 5)))
    for name, kind in kinds.items():
        day.verifier(name, kind)  # type: ignore[arg-type]
    return job_id


def colluding() -> object:
    return partial(ColludingVerifier, accomplices=frozenset({account("ann")}))


def fallen(day: MarketDay, job_id: JobId) -> ClaimView:
    views = [v for v in day.markets["client"].claims(job_id) if v.status.phase == Phase.CONVICTED]
    assert len(views) == 1 and views[0].claim.kind == Kind.TASK
    return views[0]


def stakes(day: MarketDay, *names: str) -> list[int]:
    return [day.market_state.active[account(name), Role.VERIFIER] for name in names]


def over(day: MarketDay, job_id: JobId) -> bool:
    """The claim has fallen, and no vote on it holds stake."""
    return Phase.CONVICTED in day.phases(job_id) and not fallen(day, job_id).fallen


def test_attack_13_votes_that_cover_for_a_false_segment_fall_by_their_own_traces(day: MarketDay) -> None:
    job_id = lied_to(day, 4, v0=colluding(), v1=colluding())
    day.whistleblower("wendy", await_votes=True)
    assert day.run(lambda: over(day, job_id)), [s.status for s in day.services.values()]
    view = fallen(day, job_id)
    assert all(vote.shown and vote.gone and view.traces[vote.verifier] for vote in view.votes)
    assert stakes(day, "v0", "v1") == [STAKE - VERIFIER_STAKE] * 2
    assert sum("RefutedVote" in e["finding"] for e in day.named("found")) == 2
    games = [played.view.game for played in day.market_state.games.values()]
    assert [game.ballot for game in games] == [0], "the votes were proven false at once"


def test_invented_traces_fall_by_a_game_after_their_claim(day: MarketDay) -> None:
    job_id = lied_to(day, 4, v0=LazyVerifier, v1=LazyVerifier)
    day.whistleblower("wendy", await_votes=True, audit_votes=False)
    assert day.run(lambda: over(day, job_id), turns=600), [s.status for s in day.services.values()]
    votes = [played.view for played in day.market_state.games.values() if played.view.game.ballot]
    assert len(votes) == 2 and all(view.challenger_won for view in votes)
    assert stakes(day, "v0", "v1") == [STAKE - VERIFIER_STAKE] * 2


def test_a_verifier_that_found_the_fault_disputes_the_votes_that_did_not(day: MarketDay) -> None:
    job_id = lied_to(day, 4, v0=colluding(), v1=partial(ColludingVerifier, accomplices=frozenset()))
    assert day.run(lambda: over(day, job_id)), [s.status for s in day.services.values()]
    view = fallen(day, job_id)
    said = {vote.verifier: bool(view.traces[vote.verifier]) for vote in view.votes}
    assert said == {account("v0"): True, account("v1"): False}
    assert stakes(day, "v0", "v1") == [STAKE - VERIFIER_STAKE, STAKE]


def test_votes_whose_samples_were_right_are_paid_once_nobody_may_dispute_them(day: MarketDay) -> None:
    job_id = lied_to(day, 1, nonce=4, v0=colluding(), v1=colluding())
    day.whistleblower("wendy", await_votes=True)
    assert day.run(lambda: Phase.CONVICTED in day.phases(job_id))
    view, terms = fallen(day, job_id), day.market_state.jobs[job_id].view.terms
    samples = {
        v.verifier: sampling.sample_segments(view.status.seed, v.verifier, terms.loops) for v in view.votes
    }
    right = [name for name in ("v0", "v1") if 1 not in samples[account(name)]]
    assert len(samples) == 2 and right, "of this seed a sample does not show the fault"
    before = [day.market_state.free.get(account(name), 0) for name in right]
    assert day.run(lambda: over(day, job_id)), [s.status for s in day.services.values()]
    assert day.market_state.time > view.status.since + terms.challenge_window
    assert [entry[0] for entry in day.market_state.log].count("freeSeats") == 1
    after = [day.market_state.free[account(name)] for name in right]
    assert after == [amount + terms.verifier_fee for amount in before]
    assert stakes(day, *right) == [STAKE] * len(right)


def test_votes_are_disputed_although_their_job_closes_meanwhile(day: MarketDay) -> None:
    """Otherwise a client that is their accomplice halts its job, and saves them."""
    job_id = day.post(rounds=1, shards=1, samples=4, challenge_window=3_000)
    day.solver("ann", partial(FaultySolver, plan=WeightPlan(0, 3, 0, 5)))
    for name in ("v0", "v1"):
        day.verifier(name, colluding())  # type: ignore[arg-type]
    day.whistleblower("wendy", await_votes=True)
    assert day.run(lambda: Phase.CONVICTED in day.phases(job_id))
    day.services.clear()
    close(day, job_id)
    view, terms = fallen(day, job_id), day.market_state.jobs[job_id].view.terms
    assert view.fallen and day.market_state.time < view.status.since + terms.challenge_window
    day.whistleblower("wendy", await_votes=True)
    assert day.run(lambda: over(day, job_id), turns=40), day.services["wendy"].status
    assert stakes(day, "v0", "v1") == [STAKE - VERIFIER_STAKE] * 2


def close(day: MarketDay, job_id: JobId) -> None:
    """The client halts its job, and closes it once nobody can commit to it any more."""
    client = day.markets["client"]
    client.halt("halt", job_id)
    while True:
        try:
            client.close(f"close/{day.market_state.time}", job_id)
            return
        except Reverted:
            assert day.market_state.time < 1_010_000
            day.market_state.advance(50)
