"""A junk challenge, played to its last move, and what it costs."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch

from assay.protocol.types import Phase, Wei
from assay.whistleblower.adversary import JunkChallenger
from assay.whistleblower.policy import Limits, Mode
from tests.fakes.clock import FakeClock
from tests.fakes.jobs import RESOURCE_LIMITS, account
from tests.fakes.market_day import MarketDay, secret

torch.set_num_threads(1)


def test_attack_23_a_junk_challenge_played_out_pays_the_defender_half_its_bond(tmp_path: Path) -> None:
    day = MarketDay(tmp_path)
    job_id = day.post(rounds=1, shards=1)
    ann = day.solver("ann")
    for i in range(2):
        day.verifier(f"v{i}")
    market = day.join("jack")
    parts = (market, day.blocks(), FakeClock(day.market_state), tmp_path / "jack", secret("jack"))
    make = partial(JunkChallenger, round=0, shard=0)
    day.services["jack"] = make(*parts, Limits(Mode.PLAY, Wei(100)), RESOURCE_LIMITS, emit=day.events.append)
    before = day.market_state.free[ann.market.me]
    assert day.run(day.closed(job_id), turns=600), [s.status for s in day.services.values()]
    (entry,) = day.market_state.games.values()
    assert entry.view.decided and not entry.view.challenger_won and entry.view.reason == "timeout"
    assert [e["move"] for e in day.named("moved")].count("RevealLeaf") == 1, "it came to the last element"
    assert market.free(account("jack")) == 10_000 - 40
    paid = day.market_state.free[ann.market.me] - before
    price = next(e.claim.price for e in day.market_state.claims.values() if e.claim.shard == 0)
    assert paid >= price + 20
    assert Phase.CONVICTED not in day.phases(job_id)
