"""Clients that audit a share of their jobs: exactly the drawn claims and votes are audited and disputed."""

from __future__ import annotations

from functools import partial

import pytest

from assay.compute.orders import Cancelled
from assay.node.findings import WrongSegment
from assay.node.orders import JudgeSegment
from assay.program.fault import StateFault
from assay.protocol.types import ZERO_ADDRESS, JobId, Phase
from assay.whistleblower import policy
from assay.whistleblower.policy import Target
from assay.whistleblower.service import WhistleblowerService
from assay.whistleblower.shares import Shares
from drills.orders import Plan
from drills.verifiers import LazyVerifier
from tests.fakes.conspiracy import conspiracy
from tests.fakes.jobs import account
from tests.fakes.market_day import MarketDay
from tests.fakes.opened import states_of

OTHER = JobId(b"o" * 32)
FALSE_STATE = Plan(0, 1, StateFault(step=1, slot=1, element=7))
"""One false state at the task of shard 1 in round 0."""


def client(day: MarketDay, share: float, *jobs: JobId, key: bytes = b"s" * 32) -> WhistleblowerService:
    """The client's own audit; it has bonds free."""
    return day.whistleblower("client", shares=Shares(key, dict.fromkeys(jobs, share)))


def looked_at(day: MarketDay) -> set[Target]:
    found = [e for e in (*day.named("audited"), *day.named("found")) if e["role"] == "whistleblower"]
    return {(bytes.fromhex(e["claim"]), e["verifier"]) for e in found}  # type: ignore[misc]


def test_a_false_claim_that_all_verifiers_pass_is_convicted_by_the_client_alone(day: MarketDay) -> None:
    job_id = day.post(rounds=1)
    conspiracy(day, FALSE_STATE)
    client(day, 1.0, job_id)
    assert day.run(lambda: Phase.CONVICTED in day.phases(job_id)), [s.status for s in day.services.values()]
    (game,) = [p.view.game for p in day.market_state.games.values() if p.view.challenger_won]
    assert game.challenger == account("client")


def test_without_an_audit_nothing_is_replayed_and_the_false_claim_is_paid(day: MarketDay) -> None:
    job_id = day.post(rounds=1)
    conspiracy(day, FALSE_STATE)
    client(day, 0.0, job_id)
    assert day.run(day.closed(job_id), turns=600)
    assert looked_at(day) == set() and not day.market_state.games
    assert set(day.phases(job_id)) == {Phase.SETTLED}


def test_what_is_drawn_is_audited_and_nothing_else_of_no_other_job(day: MarketDay) -> None:
    job_id = day.post(rounds=2, nonce=1)
    day.solvers()
    day.verifiers()
    whistle = client(day, 0.4, job_id, key=b"k" * 32)
    assert day.run(day.closed(job_id), turns=900)
    other = day.post(rounds=1, nonce=2)
    assert day.run(day.closed(other), turns=600)
    every: set[Target] = set()
    for view in whistle.market.claims(job_id):
        every |= {(view.claim_id, ZERO_ADDRESS)}
        every |= {(view.claim_id, vote.verifier) for vote in view.votes}
    shares = whistle.limits.shares
    assert shares is not None
    drawn = {target for target in every if shares.takes(job_id, *target)}
    assert looked_at(day) == drawn and 0 < len(drawn) < len(every)
    assert {whose == ZERO_ADDRESS for _, whose in drawn} == {True, False}, "claims and votes"


def test_a_false_vote_on_a_claim_that_is_not_audited_costs_its_stake(day: MarketDay) -> None:
    """Votes are drawn by themselves."""
    job_id = day.post(rounds=1, shards=1)
    day.solver("ann")
    day.verifier("lazy", LazyVerifier)
    day.verifier("vera")

    class Votes(Shares):
        def takes(self, job_id: JobId, claim_id: bytes, verifier: str) -> bool:
            return verifier == account("lazy")

    day.whistleblower("client", shares=Votes(b"", {job_id: 1.0}))
    assert day.run(lambda: any(p.view.challenger_won for p in day.market_state.games.values()))
    (game,) = [p.view.game for p in day.market_state.games.values() if p.view.challenger_won]
    assert game.defender == account("lazy") and {whose for _, whose in looked_at(day)} == {account("lazy")}


def test_a_vote_on_states_that_nobody_can_reach_accuses_the_claim(day: MarketDay) -> None:
    """A fault of the claim that is found while a vote is audited is pursued as the claim's."""
    job_id = day.post(rounds=1)
    conspiracy(day, FALSE_STATE)
    assert day.run(lambda: Phase.ACCEPTED in day.phases(job_id))
    whistle = client(day, 1.0, job_id)
    view = next(v for v in whistle.market.claims(job_id) if any(x.valid for x in v.votes))
    finding = WrongSegment(view.claim_id, 0, view.roots, b"r" * 32)
    target = view.claim_id, view.votes[0].verifier
    audit = policy.AuditVote(job_id, *target, "drawn")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("assay.node.audit.audit_vote", lambda *_: finding)
        assert whistle.actions.attempt("audit", job_id, partial(whistle.handlers()[policy.AuditVote], audit))
    assert list(whistle.findings) == [(view.claim_id, ZERO_ADDRESS)]


def test_draws_follow_from_the_secret_and_are_of_the_share_asked_for() -> None:
    job_id, count = JobId(b"j" * 32), 4_000
    targets = [(bytes([n % 256]) * 16 + n.to_bytes(16, "big"), account("v")) for n in range(count)]

    def drawn(key: bytes, share: float) -> list[bool]:
        shares = Shares(key, {job_id: share})
        return [shares.takes(job_id, *target) for target in targets]  # type: ignore[arg-type]

    tenth = drawn(b"s" * 32, 0.1)
    assert tenth == drawn(b"s" * 32, 0.1) != drawn(b"t" * 32, 0.1)
    assert 320 < sum(tenth) < 480
    assert all(drawn(b"s" * 32, 1.0)) and not any(drawn(b"s" * 32, 0.0))
    assert not Shares(b"s" * 32, {job_id: 1.0}).takes(OTHER, *targets[0])  # type: ignore[arg-type]


def test_a_cancelled_audit_ends_at_the_next_step_and_finds_nothing(day: MarketDay) -> None:
    job_id = day.post(rounds=1, shards=1)
    day.solver("ann")
    assert day.run(lambda: bool(day.phases(job_id)))
    wendy = day.whistleblower("wendy")
    view, told = wendy.market.claims(job_id)[0], list[int]()

    def cancel(done: int, total: int) -> None:
        told.append(done)
        if done == 1:
            raise Cancelled("it was cancelled")

    order = JudgeSegment(wendy.spec(job_id), "audit", view, 0)
    with pytest.raises(Cancelled):
        wendy.pool.submit(order, progress=cancel).result()
    assert told == [0, 1] and not states_of(wendy, job_id).is_known_right(view, 0)
    assert wendy.pool.submit(order).result() == b"" and states_of(wendy, job_id).is_known_right(view, 0)
