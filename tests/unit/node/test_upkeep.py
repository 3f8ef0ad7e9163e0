"""Work of nodes on a job that closed with a claim of theirs open: they defend it and free its stakes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from assay.node.upkeep import FINAL_S, VOID_AGAIN, Endings, disputable_until, over, watched
from assay.protocol.types import (
    Claim,
    ClaimId,
    ClaimView,
    JobId,
    JobView,
    Phase,
    Role,
    Seconds,
    StakeView,
    TxResult,
    Wei,
)
from assay.solver.observation import Takes
from assay.whistleblower.policy import Limits, Mode
from drills.whistleblowers import JunkChallenger
from tests.fakes.clock import FakeClock
from tests.fakes.jobs import RESOURCE_LIMITS, account
from tests.fakes.market_day import FUNDS, MarketDay, secret
from tests.fakes.port import FakeMarket

BOND, SOLVER_STAKE, VERIFIER_STAKE = 40, 100, 50
NEVER = Seconds(10**9)


MISS_PENALTY = 7
"""Of ``tests.fakes.jobs``."""


def begun(day: MarketDay) -> JobId:
    """A job whose first task, ann's, is accepted, and that can be closed without the other. Ann does nothing
    for others; the verifiers are down."""
    times = {"task_time": 120, "straggler_time": 140, "outer_time": 20, "move_time": 2_000}
    times |= {"vote_time": 30}
    job_id = day.post(rounds=1, min_shards=1, **times)
    ann = day.solver("ann")
    ann.limits = replace(ann.limits, patience=NEVER)
    day.verifiers()
    assert day.run(lambda: Phase.ACCEPTED in day.phases(job_id))
    del day.services["v0"], day.services["v1"]
    return job_id


def of_bob(day: MarketDay, job_id: JobId) -> ClaimView | None:
    """Bob's task, once it is committed."""
    views = day.markets["ann"].claims(job_id)
    return next((view for view in views if view.claim.claimant == account("bob")), None)


def locked(day: MarketDay) -> dict[str, int]:
    """Locked stake of each account."""
    return {
        name: amount
        for name in day.markets
        for role in Role
        if (amount := day.market_state.locked.get((account(name), role), 0))
    }


def close_without_bob(day: MarketDay, job_id: JobId) -> int:
    """Bob's node goes down and the job closes; how many calls there were until then."""
    del day.services["bob"]
    assert day.run(day.closed(job_id)), [s.status for s in day.services.values()]
    view = of_bob(day, job_id)
    assert view is not None and view.left_out and view.status.phase in (Phase.COMMITTED, Phase.SEEDED)
    return len(day.market_state.log)


def voted(day: MarketDay, job_id: JobId) -> Callable[[], bool]:
    def look() -> bool:
        view = of_bob(day, job_id)
        return view is not None and sum(vote.shown for vote in view.votes) == 2

    return look


def calls(day: MarketDay, since: int) -> Iterator[str]:
    """The Market port's calls since then."""
    return (str(entry[0]) for entry in day.market_state.log[since:] if len(entry) == 2)


def test_stakes_behind_a_claim_that_a_closed_job_left_out_come_back(day: MarketDay) -> None:
    job_id = begun(day)
    nodes = [day.solver("bob"), day.verifier("v0"), day.verifier("v1")]
    assert day.run(voted(day, job_id))
    del day.services["v0"], day.services["v1"]
    before = close_without_bob(day, job_id)
    assert locked(day) == {"bob": SOLVER_STAKE + MISS_PENALTY, "v0": VERIFIER_STAKE, "v1": VERIFIER_STAKE}
    assert {name for name, market in day.markets.items() if watched(market)} == {"bob", "v0", "v1"}
    day.services = {node.status.address: node for node in nodes}
    assert day.run(lambda: not locked(day), turns=50)
    assert sorted(calls(day, before)) == ["release", "void"], "and nothing else is done for the job"
    assert not any(watched(market) for market in day.markets.values())


def test_claims_of_a_job_that_is_over_are_not_read_again(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a staked node would read, and keep, the claims of every job that ever existed."""
    job_id = begun(day)
    nodes = [day.solver("bob"), day.verifier("v0"), day.verifier("v1")]
    assert day.run(voted(day, job_id))
    del day.services["v0"], day.services["v1"]
    close_without_bob(day, job_id)
    market, read, asked = day.markets["v0"], FakeMarket.claims, list[bytes]()

    def claims(self: FakeMarket, job_id: JobId) -> Sequence[ClaimView]:
        asked.append(job_id)
        return read(self, job_id)

    def look() -> list[JobView]:
        """While something else locks this verifier's stake."""
        with monkeypatch.context() as patch:
            patch.setattr(FakeMarket, "stake", lambda self, *of: StakeView(Wei(5), Wei(5), Wei(0)))
            patch.setattr(FakeMarket, "claims", claims)
            return watched(market)

    assert look() and asked == [job_id], "a claim that was left out still locks it"
    asked.clear()
    day.services = {node.status.address: node for node in nodes}
    assert day.run(lambda: not locked(day) and market.ended(job_id), turns=200)
    assert not look() and asked == []


def test_a_claim_is_voided_again_when_once_did_not_free_it(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job's contract looks through so many rewinds a call and no more (Jobs.compensate)."""
    job_id = begun(day)
    bob = day.solver("bob")
    assert day.run(lambda: of_bob(day, job_id) is not None)
    close_without_bob(day, job_id)
    market = day.markets["bob"]
    looked: list[str] = []

    def void(intent: str, claim: Claim) -> TxResult:
        if looked:
            return FakeMarket.void(market, intent, claim)
        looked.append(intent)
        done = TxResult(f"{1:064x}", 1, 60_000, "void")
        market.outcomes[intent] = done
        return done

    monkeypatch.setattr(market, "void", void)
    day.services = {"bob": bob}
    assert not day.run(lambda: not locked(day), turns=50)
    assert len(looked) == 1, "the fault was planted"
    day.market_state.advance(VOID_AGAIN)
    assert day.run(lambda: not locked(day), turns=5)


def test_a_vote_frees_its_stake_though_the_claimant_stays_away(day: MarketDay) -> None:
    job_id = begun(day)
    day.solver("bob")
    verifiers = [day.verifier("v0"), day.verifier("v1")]
    assert day.run(voted(day, job_id))
    del day.services["v0"], day.services["v1"]
    before = close_without_bob(day, job_id)
    day.services = {"v1": verifiers[1]}
    assert day.run(lambda: locked(day) == {"bob": MISS_PENALTY}, turns=50), (
        "bob's shard is his own to give back"
    )
    assert list(calls(day, before)) == ["void"]


def test_a_claim_is_defended_after_its_job_has_closed_without_it(day: MarketDay) -> None:
    """Otherwise a challenger that opens a game just before a round ends takes an honest straggler's stake."""
    job_id = begun(day)
    bob = day.solver("bob")
    assert day.run(lambda: of_bob(day, job_id) is not None)
    view = of_bob(day, job_id)
    assert view is not None
    parts = (day.join("jack"), day.blocks(), FakeClock(day.market_state), day.folder / "jack", secret("jack"))
    limits = Limits(Mode.PLAY, Wei(BOND))
    jack = JunkChallenger(
        *parts, limits, RESOURCE_LIMITS, emit=day.events.append, round=0, accused=view.claim.shard
    )
    day.services["jack"] = jack
    assert day.run(lambda: "RevealSteps" in {e["move"] for e in day.named("moved")})
    assert day.named("fault-planted")
    del day.services["jack"]
    close_without_bob(day, job_id)
    (game,) = day.market_state.games.values()
    assert not game.view.decided and watched(bob.market) and watched(jack.market)
    day.services = {"jack": jack, "bob": bob}
    assert day.run(lambda: game.view.decided and not locked(day), seconds=40), bob.status
    assert not game.view.challenger_won and game.view.reason == "timeout"
    assert [e["move"] for e in day.named("moved")].count("RevealLeaf") == 1, "it came to the last element"
    assert day.market_state.active[account("bob"), Role.SOLVER] == 2_000
    assert jack.market.free(jack.market.me) == FUNDS - BOND
    assert not any(watched(market) for market in day.markets.values())


@pytest.mark.parametrize("answered", [True, False])
def test_attack_33_a_demand_is_answered_or_collected_after_its_job_has_closed(
    day: MarketDay, answered: bool
) -> None:
    job_id = begun(day)
    bob = day.solver("bob", blocks=day.blocks(withholds=True))
    assert day.run(lambda: of_bob(day, job_id) is not None)
    del day.services["bob"]
    wendy = day.whistleblower("wendy", demand=True)
    assert day.run(lambda: bool(day.market_state.demands))
    day.services["bob"] = bob
    close_without_bob(day, job_id)
    closed = wendy.market.job(job_id)
    assert watched(bob.market) and watched(wendy.market)
    if answered:
        day.services["bob"] = bob
    assert day.run(lambda: all(d.outcome for d in day.market_state.demands.values()), seconds=40)
    assert {d.outcome for d in day.market_state.demands.values()} == {"supplied" if answered else "withheld"}
    kept = 2_000 if answered else 2_000 - SOLVER_STAKE
    assert day.market_state.active[account("bob"), Role.SOLVER] == kept
    assert day.run(lambda: not locked(day))
    assert wendy.market.job(job_id) == closed, "whatever became of the claim"


def test_a_task_that_its_round_goes_on_without_is_ended_by_its_claimant(day: MarketDay) -> None:
    """Nobody else who might close the round has a reason to free its stakes."""
    job_id = begun(day)
    day.solver("bob", takes=Takes.TASKS)
    assert day.run(lambda: of_bob(day, job_id) is not None)
    del day.services["ann"]
    before, state = len(day.market_state.log), day.market_state
    state.advance(220)  # the stragglers' time has ended
    view = of_bob(day, job_id)
    assert view is not None
    window_end = view.status.since + state.jobs[job_id].view.terms.challenge_window
    state.advance(window_end - state.time)
    assert not day.run(lambda: "void" in calls(day, before), turns=1), "it may be challenged until then"
    assert day.run(lambda: "void" in calls(day, before), turns=3)
    assert "commit" not in calls(day, before), "before its round is closed"
    assert not day.named("refused")


def test_a_claim_is_over_once_it_its_votes_and_its_games_are(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = begun(day)
    market = day.markets["ann"]
    view = next(v for v in market.claims(job_id) if v.status.phase == Phase.ACCEPTED)
    vote = replace(view.votes[0], shown=True, valid=True, gone=False)
    game: Any = SimpleNamespace(decided=False, game=SimpleNamespace(claim_id=view.claim_id))

    end = disputable_until(view, market.job(job_id).terms)

    def seen(phase: Phase, *votes: Any, games: Sequence[Any] = (), at: Seconds = end, **changes: Any) -> bool:
        now = replace(view, status=replace(view.status, phase=phase), votes=votes, **changes)
        monkeypatch.setattr(market, "claim", lambda _: now)
        monkeypatch.setattr(market, "games", lambda _: games)
        return over(market, at, job_id, view.claim_id)

    for phase in (Phase.COMMITTED, Phase.SEEDED, Phase.ACCEPTED):
        assert not seen(phase, vote) and not seen(phase, vote, stale=True)
    assert seen(Phase.SETTLED, vote) and seen(Phase.VOID, vote)
    assert not seen(Phase.CONVICTED, vote), "its votes may be disputed"
    later = Seconds(end + 1)
    assert seen(Phase.CONVICTED, vote, at=later), "whoever has left its stake there"
    assert not seen(Phase.CONVICTED, vote, games=[game], at=later)
    assert seen(Phase.CONVICTED, replace(vote, gone=True))
    assert not seen(Phase.CONVICTED, games=[game])
    game.decided = True
    assert seen(Phase.CONVICTED, games=[game])


def test_a_claim_that_the_chain_has_lost_is_over_when_its_job_is(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, lost = begun(day), ClaimId(b"l" * 32)
    assert not over(day.markets["ann"], Seconds(0), job_id, lost)
    monkeypatch.setattr(day.markets["ann"], "ended", lambda _: True)
    assert over(day.markets["ann"], Seconds(0), job_id, lost)


def test_attack_T56_a_claim_is_over_for_good_once_no_reorganisation_brings_it_back(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, lost = begun(day), ClaimId(b"l" * 32)
    market, endings = day.markets["ann"], Endings()

    def holds(at: int, ended: bool) -> bool:
        monkeypatch.setattr(market, "ended", lambda _: ended)
        return endings.holds(market, Seconds(at), job_id, lost)

    assert not holds(0, True) and not holds(FINAL_S - 1, True)
    assert not holds(FINAL_S, False) and not holds(FINAL_S + 1, True), "it was back"
    assert not holds(2 * FINAL_S, True) and holds(2 * FINAL_S + 1, True)
