"""A reorganisation gives a claim another seed: its vote is worked out again, under the seed that counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from assay.protocol import sampling
from assay.protocol.errors import Reverted
from assay.protocol.types import ClaimId, TxResult
from tests.fakes.market_day import MarketDay
from tests.fakes.port import FakeMarket

OTHER_SEED = bytes(range(16)) + bytes(16)


def reseed(day: MarketDay, claim_id: ClaimId) -> None:
    """As if the draw had been made by another block, and come out the same."""
    rules = day.market_state.rules
    state = rules.claims[claim_id].with_status(seed=OTHER_SEED)
    day.market_state.rules = replace(rules, claims={**rules.claims, claim_id: state})


def test_attack_31_a_vote_under_a_replaced_seed_is_worked_out_again(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = day.post(rounds=1, shards=1, verifiers=1)
    day.solver("ann")
    v0 = day.verifier("v0")
    market, refused = day.markets["v0"], list[str]()

    def vote(intent: str, claim_id: ClaimId, seed: bytes, valid: bool, traces: Sequence[bytes]) -> TxResult:
        if not refused:
            reseed(day, claim_id)
        try:
            return FakeMarket.vote(market, intent, claim_id, seed, valid, traces)
        except Reverted as error:
            refused.append(error.error)
            raise

    monkeypatch.setattr(market, "vote", vote)
    assert day.run(day.closed(job_id)), v0.status
    assert refused == ["WrongSeed"], "it landed under the new seed"
    view = next(view for view in market.claims(job_id) if view.votes)
    assert view.status.seed == OTHER_SEED
    assert view.votes[0].valid and view.status.valid == 1 and day.market_state.burnt == 0
    replayed = [e["segments"] for e in day.named("replayed")]
    loops = market.job(job_id).terms.loops
    assert len(replayed) == 2
    assert replayed[1] == sampling.sample_segments(OTHER_SEED, market.me, loops)
