"""Verifiers that attest without replaying lose their stakes, whatever happens to the claim."""

from __future__ import annotations

from functools import partial

from assay.dispute.trace import StepTrace
from assay.node.audit import keyed_trace
from assay.node.findings import sampled
from assay.node.states import open_state_provider
from assay.protocol.sampling import verifier_key
from assay.protocol.types import Kind, Phase, Role
from drills.verifiers import CopyingVerifier, SilentVerifier
from tests.fakes.jobs import RESOURCE_LIMITS, account
from tests.fakes.market_day import MarketDay


def test_attack_10_traces_that_a_peer_handed_over_cost_the_copier_its_stake(day: MarketDay) -> None:
    job_id = day.post(rounds=1, shards=1)
    day.solver("ann")
    day.verifier("vera")
    day.verifier("carl", partial(CopyingVerifier, source=account("vera")))
    day.whistleblower("wendy")
    assert day.run(lambda: any(p.view.challenger_won for p in day.market_state.games.values())), day.events[
        -5:
    ]
    (view,) = (v for v in day.markets["wendy"].claims(job_id) if v.claim.kind == Kind.TASK)
    state_provider = open_state_provider(
        day.markets["wendy"], day.blocks(), day.markets["wendy"].job(job_id), RESOURCE_LIMITS
    )
    (segment,) = sampled(state_provider.work.terms, view, account("vera"))
    trace = keyed_trace(state_provider, view, segment, verifier_key(account("vera"), view.status.seed))
    assert isinstance(trace, StepTrace)
    true = trace.root
    assert view.traces[account("carl")] == (true,) == view.traces[account("vera")], "it was really copied"
    game = next(p.view for p in day.market_state.games.values() if p.view.challenger_won)
    assert game.game.defender == account("carl") and game.reason == "timeout"
    assert day.market_state.active[account("carl"), Role.VERIFIER] == 950
    assert day.market_state.active[account("vera"), Role.VERIFIER] == 1_000
    assert day.run(day.closed(job_id)) and Phase.CONVICTED not in day.phases(job_id)


def test_attack_32_who_shows_no_vote_pays_for_each_draw_and_the_job_goes_on(day: MarketDay) -> None:
    job_id = day.post(rounds=1, shards=1)
    day.solver("ann")
    for name in ("vera", "walt"):
        day.verifier(name)
    stake = 9_000  # against the others' 1,000 this stake is drawn, whatever the seeds
    day.join("sid", verifier=stake)
    day.verifier("sid", SilentVerifier)
    assert day.run(day.closed(job_id), turns=600), [s.status for s in day.services.values()]
    drawn = len(day.named("fault-planted"))
    assert drawn, "it was drawn"
    fine = day.market_state.jobs[job_id].view.terms.miss_penalty
    assert day.market_state.active[account("sid"), Role.VERIFIER] == stake - drawn * fine
    assert all(day.market_state.active[account(name), Role.VERIFIER] == 1_000 for name in ("vera", "walt"))
