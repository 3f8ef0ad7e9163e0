"""Attacks 47 and 48 on a whole market: a pool that loses, keeps back and doubles what it is sent, fees that
jump, and an endpoint that lies."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from assay.chain.contracts.artifacts import Artifacts
from assay.chain.eth.rpc import HttpRpc
from tests.adversaries.chain_day import BITS, NAMES, ChainDay
from tests.fakes.anvil import Anvil
from tests.fakes.hostile_rpc import HostilePool, Liar

pytestmark = pytest.mark.slow
GWEI = 10**9


@pytest.mark.parametrize("seed", range(3))
def test_attack_48_a_hostile_pool_and_fees_that_jump_cost_time_alone(
    anvil: Anvil, rpc: HttpRpc, artifacts: Artifacts, tmp_path: Path, seed: int
) -> None:
    r = random.Random(seed)
    with HostilePool(anvil.url, 0.1, seed) as pool:
        day = ChainDay(rpc, artifacts, tmp_path)
        day.urls.update({name: [pool.url] for name in NAMES})
        for name in NAMES[1:]:
            day.start(name)
        day.connect("client")
        job_id = day.post()
        spikes = 0
        for _ in range(300):
            if day.closed(job_id)():
                break
            if r.random() < 0.3:
                rpc.request("anvil_setNextBlockBaseFeePerGas", [hex(r.choice([1, 30, 200]) * GWEI)])
                spikes += 1
            day.turn()
        assert day.closed(job_id)(), day.events[-10:]
        assert spikes > 5 and min(pool.done[what] for what in ("lost", "late", "twice")) > 3, pool.done
        assert day.unsound(job_id) == [] and day.model(job_id) == BITS


@pytest.mark.parametrize("liar_first", [False, True])
def test_attack_47_a_liar_beside_an_honest_endpoint_changes_nothing(
    anvil: Anvil, rpc: HttpRpc, artifacts: Artifacts, tmp_path: Path, liar_first: bool
) -> None:
    with Liar(anvil.url, 0.05, seed=4) as liar:
        urls = [liar.url, anvil.url] if liar_first else [anvil.url, liar.url]
        day = ChainDay(rpc, artifacts, tmp_path)
        day.urls.update(dict.fromkeys(("ann", "v0", "wendy"), urls))
        for name in day.urls:
            day.start(name)
        job_id = day.post()
        assert day.run(day.closed(job_id)), day.events[-10:]
        assert sum(liar.done.values()) > 30 and liar.done["eth_call"], liar.done
        assert day.unsound(job_id) == [] and day.model(job_id) == BITS
